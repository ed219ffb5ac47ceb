"""What topics hold of messages that somebody may have sent: for those who send again without duplicates.

A replay and the sink note how far the queues of their targets reach before they send. Whoever goes on after a
kill looks at what came since. Such a look is worth something only when nothing more can come: `wait_settled`.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from orbitmq.client import Admin, MessageQueue, ReceivedMessage
from orbitmq.errors import JobFailedError, NoRouteError, ResponseError, SendFailedError
from orbitmq.wire.codes import ResponseCode

Ends = dict[MessageQueue, int]
"""Behind the last message of each queue, at some moment."""

_BUSY: Final = frozenset(
    (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL)
)
GONE_SECONDS: Final = 150.0
"""A broker closes a connection without heartbeats after two minutes."""
QUEUED_SECONDS: Final = 0.5
"""A Java broker refuses a send that waited for a thread for longer than 0.2 s."""
_PAUSE_SECONDS: Final = 0.05


def is_busy(error: Exception) -> bool:
    """Return whether a broker said that it stored nothing because it has too much to do."""
    if isinstance(error, SendFailedError):
        return all(is_busy(attempt) for _, attempt in error.attempts)
    return isinstance(error, ResponseError) and error.code in _BUSY


def ends_of(admin: Admin, topics: Iterable[str]) -> Ends:
    """Return how far the queues of topics reach. NoRouteError: there is no such topic."""
    return {stats.queue: stats.max_offset for topic in topics for stats in admin.topic_stats(topic)}


def messages_since(admin: Admin, topics: Iterable[str], ends: Ends) -> Iterator[ReceivedMessage]:
    """Yield what came to the queues of topics since their ends were noted. NoRouteError: no such topic."""
    for topic in topics:
        for stats in admin.topic_stats(topic):
            start = max(ends.get(stats.queue, 0), stats.min_offset)
            yield from admin.browse(stats.queue, start, stats.max_offset)


def served(admin: Admin, topics: Iterable[str]) -> list[str]:
    """Return the topics that are there; a broker may make the others when something is sent to them."""
    found = []
    for topic in topics:
        with suppress(NoRouteError):
            admin.topic_stats(topic)
            found.append(topic)
    return found


def wait_settled(
    admin: Admin, topics: Iterable[str], brokers: Iterable[str], group: str, client_id: str
) -> None:
    """Return when nothing more of a client that is gone can come to these topics, and readers see all of it.

    A broker that has seen its connection end has read all that it sent. JobFailedError: it is there still.
    WireError, ClientError: a broker is away, and nobody knows what it holds.
    """
    deadline = time.monotonic() + GONE_SECONDS
    for broker in brokers:
        admin.broker_runtime(broker)
    while any(client_id in _producers(admin, group, topic) for topic in served(admin, topics)):
        if time.monotonic() > deadline:
            what = f"{client_id} is still connected to the brokers and may be sending the same rows"
            raise JobFailedError(what, "End that process, then run this one again.")
        time.sleep(_PAUSE_SECONDS)
    time.sleep(QUEUED_SECONDS)
    for broker in brokers:
        _wait_dispatched(admin, broker, deadline)


def _producers(admin: Admin, group: str, topic: str) -> set[str]:
    return {client.client_id for client in admin.producers(group, topic)}


def _wait_dispatched(admin: Admin, broker: str, deadline: float) -> None:
    """Wait until all that is in the broker's log now is in its queues."""
    end, behind = _log_end(admin, broker)
    wanted = end
    while end - behind < wanted:
        if time.monotonic() > deadline:
            what = f"broker {broker} is {behind} bytes behind with filling its queues"
            raise JobFailedError(what, "Wait until it has caught up, then run this again.")
        time.sleep(_PAUSE_SECONDS)
        end, behind = _log_end(admin, broker)


def _log_end(admin: Admin, broker: str) -> tuple[int, int]:
    told = admin.broker_runtime(broker)
    return int(told.get("commitLogMaxOffset", 0)), int(told.get("dispatchBehindBytes", 0))
