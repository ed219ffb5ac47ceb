"""Finds where the read and write queues of a topic do not fit: messages out of reach, members without work.

A topic has two numbers on each broker: producers send to queues below `write_queues`, consumers read queues
below `read_queues`.

kind       | when                                        | meaning
unreadable | messages in queues from `read_queues` on    | they are kept, but nobody can read them
exposed    | `write_queues` > `read_queues`, none there   | the next message in such a queue is unreadable
draining   | `read_queues` > `write_queues`, lag in them | on the way to fewer queues: wait, then lower reads
idle       | `read_queues` > `write_queues`, no lag      | nothing will come there
idle member | an online member has only such queues       | it has nothing to do
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.client import Admin
    from orbitmq.client.admin.results import GroupProgress, QueueStats, TopicShare


class Kind(StrEnum):
    """What can be wrong with the queues of a topic."""

    UNREADABLE = "unreadable"
    EXPOSED = "exposed"
    DRAINING = "draining"
    IDLE = "idle"
    IDLE_MEMBER = "idle member"


@dataclass(slots=True)
class Finding:
    """One of the kinds, on one broker."""

    topic: str
    broker: str
    kind: Kind
    queue_ids: list[int]
    messages: int
    text: str


def check_topic(admin: "Admin", topic: str) -> Iterator[Finding]:
    """Yield what does not fit in one topic."""
    shares = admin.topic(topic).shares
    if all(share.read_queues == share.write_queues for share in shares):
        return
    stats = admin.topic_stats(topic)
    groups = [_progress(admin, group, topic) for group in admin.groups_of_topic(topic)]
    for share in shares:
        here = [one for one in stats if one.queue.broker_name == share.broker_name]
        if share.write_queues > share.read_queues:
            yield _unreadable(topic, share, here)
        elif share.read_queues > share.write_queues:
            yield from _idle(topic, share, here, groups)


def _progress(admin: "Admin", group: str, topic: str) -> "GroupProgress":
    from orbitmq.errors import ResponseError

    try:
        return admin.progress(group, topic, members=True)
    except ResponseError:  # a member that does not tell which queues it has
        return admin.progress(group, topic)


def _unreadable(topic: str, share: "TopicShare", stats: "list[QueueStats]") -> Finding:
    hidden = range(share.read_queues, share.write_queues)
    lost = {one.queue.queue_id: one.message_count for one in stats if one.queue.queue_id in hidden}
    count = sum(lost.values())
    step = f"`orbitmq topic create {topic} --queues {share.write_queues}` lets consumers read them."
    if count:
        ids = [queue_id for queue_id, messages in lost.items() if messages]
        text = f"{count} messages that nobody can read. {step}"
        return Finding(topic, share.broker_name, Kind.UNREADABLE, ids, count, text)
    text = f"What is sent there cannot be read. {step}"
    return Finding(topic, share.broker_name, Kind.EXPOSED, list(hidden), 0, text)


def _idle(
    topic: str, share: "TopicShare", stats: "list[QueueStats]", groups: "list[GroupProgress]"
) -> Iterator[Finding]:
    ids = list(range(share.write_queues, share.read_queues))
    stored = sum(one.message_count for one in stats if one.queue.queue_id in ids)
    lag = sum(_lag(group, share.broker_name, ids) for group in groups)
    step = f"`orbitmq topic create {topic} --queues {share.write_queues}`"
    if lag:
        text = f"Nothing new comes there; {lag} messages are still to be read. Wait, then {step}."
        yield Finding(topic, share.broker_name, Kind.DRAINING, ids, lag, text)
    else:
        kept = f" (and {stored} messages that every group has read)" if stored else ""
        text = f"Nothing new comes there. {step} takes them away{kept}."
        yield Finding(topic, share.broker_name, Kind.IDLE, ids, stored, text)
    for group in groups:
        for member, theirs in _members(group, topic).items():
            if all(name == share.broker_name and queue_id in ids for name, queue_id in theirs):
                text = f"{member} of group {group.group} has no other queues: it waits in vain."
                held = sorted(queue_id for _, queue_id in theirs)
                yield Finding(topic, share.broker_name, Kind.IDLE_MEMBER, held, 0, text)


def _lag(group: "GroupProgress", broker: str, ids: list[int]) -> int:
    return sum(
        one.lag
        for one in group.queues
        if one.queue.broker_name == broker and one.queue.queue_id in ids
    )


def _members(group: "GroupProgress", topic: str) -> dict[str, list[tuple[str, int]]]:
    """Return the queues of a topic that each member has."""
    held: dict[str, list[tuple[str, int]]] = {}
    for one in group.of_topic(topic):
        if one.client_id:
            held.setdefault(one.client_id, []).append((one.queue.broker_name, one.queue.queue_id))
    return held


def queue_range_text(ids: list[int]) -> str:
    """Return "4-7" for neighbours, else "4 6 7"."""
    if len(ids) > 2 and ids == list(range(ids[0], ids[-1] + 1)):
        return f"{ids[0]}-{ids[-1]}"
    return " ".join(map(str, ids))
