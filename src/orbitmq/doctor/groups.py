"""The doctor on consumer groups: their offsets, their members, what the members want."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from orbitmq.client.admin.results import GroupProgress, QueueLag
from orbitmq.client.sync.admin import Admin
from orbitmq.doctor import members, offsets
from orbitmq.doctor.asked import Asked
from orbitmq.doctor.report import Finding, Report, Severity
from orbitmq.errors import OrbitError, ResponseError
from orbitmq.message import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo, ProcessQueueInfo

SAMPLE_MESSAGES: Final = 256
SAMPLED_GROUPS_MAX: Final = 20
"""Messages are read for so many groups only, unless one is asked for."""


class GroupDoctor:
    """Looks at the groups of a cluster. Not thread-safe."""

    def __init__(
        self,
        admin: Admin,
        asked: Asked,
        report: Report,
        advise: Callable[..., str],
        now_ms: int,
        filters_sql: bool,
    ) -> None:
        self._admin, self._asked, self._report, self._advise = admin, asked, report, advise
        self._now_ms, self._filters_sql = now_ms, filters_sql
        self._ranges: dict[str, dict[MessageQueue, tuple[int, int]]] = {}
        self._tags: dict[str, members.Sample] = {}

    def run(self) -> None:
        """Look at all groups, or at the one that was asked for."""
        try:
            groups = [info.group for info in self._admin.groups()]
        except OrbitError:
            return  # a broker does not answer: told already
        chosen = [group for group in groups if self._asked.wants_group(group)]
        illegal: list[Finding] = []
        found: list[Finding] = []
        for group in chosen:
            try:
                progress = self._admin.progress(group, self._asked.topic)
                illegal += self._illegal(progress)
                found += self._members(progress, sampled=len(chosen) <= SAMPLED_GROUPS_MAX)
            except OrbitError:
                continue  # a topic or a broker that is gone: told already
        if self._asked.group is not None and not chosen:
            found.append(self._unknown(self._asked.group))
        self._report.add(offsets.SUBJECT, f"{len(chosen)} groups", illegal)
        self._report.add(members.SUBJECT, f"of {len(chosen)} groups", found)

    def _unknown(self, group: str) -> Finding:
        return Finding(
            severity=Severity.CRITICAL,
            subject=members.SUBJECT,
            what="no broker knows the group",
            where=f"group {group}",
            meaning="no consumer of that name was ever here, or it was deleted: look at its name",
            command=self._advise("group", "create", group),
        )

    # --- offsets ---

    def _illegal(self, progress: GroupProgress) -> Iterator[Finding]:
        suspects = []
        for one in progress.queues:
            low, high = self._range(one.queue)
            if one.consumer_offset < low or one.consumer_offset > high:
                suspects.append(one)
        judged = [
            self._place(progress.group, one) for one in suspects if self._has_offset(progress, one)
        ]
        yield from offsets.examine(judged, self._advise)

    def _has_offset(self, progress: GroupProgress, one: QueueLag) -> bool:
        """Tell whether the group has an offset there: brokers say 0 for none."""
        plan = self._admin.plan_reset(
            progress.group, one.queue.topic, "earliest", queue_id=one.queue.queue_id
        )
        return any(c.queue == one.queue and c.old_offset >= 0 for c in plan)

    def _place(self, group: str, one: QueueLag) -> offsets.GroupOffset:
        low, high = self._range(one.queue)
        return offsets.GroupOffset(
            group=group,
            topic=one.queue.topic,
            queue=f"{one.queue.broker_name} queue {one.queue.queue_id}",
            queue_id=one.queue.queue_id,
            offset=one.consumer_offset,
            min_offset=low,
            max_offset=high,
            since_ms=one.last_ms or None,
        )

    def _range(self, queue: MessageQueue) -> tuple[int, int]:
        if queue.topic not in self._ranges:
            stats = self._admin.topic_stats(queue.topic)
            self._ranges[queue.topic] = {
                one.queue: (one.min_offset, one.max_offset) for one in stats
            }
        return self._ranges[queue.topic].get(queue, (0, 2**63 - 1))

    # --- members ---

    def _members(self, progress: GroupProgress, *, sampled: bool) -> Iterator[Finding]:
        group = progress.group
        state = self._admin.consumers(group)
        lags = {one.queue: one for one in progress.queues}
        told = [
            (client.client_id, self._running(group, client.client_id)) for client in state.clients
        ]
        online = [_member(client_id, info, lags) for client_id, info in told if info is not None]
        if not state.clients and self._asked.group is not None and progress.lag:
            yield self._offline(progress)
        known = {
            one.topic: members.Wanted(one.expression, one.expression_type or members.TAG)
            for one in state.subscriptions
            if not one.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        }
        topics = {*known, *(topic for member in online for topic in member.wanted)}
        facts = members.GroupFacts(
            group=group,
            members=online,
            now_ms=self._now_ms,
            stuck_ms=self._asked.stuck_ms,
            filters_sql=self._filters_sql,
            known=known,
            samples=[self._sample(topic) for topic in sorted(topics)] if sampled else (),
            free=list(_free_queues(progress, told)),
        )
        show_members = self._advise("group", "members", group)
        yield from members.examine(facts, show_members, self._advise("group", "progress", group))

    def _running(self, group: str, client_id: str) -> ConsumerRunningInfo | None:
        try:
            return self._admin.running_info(group, client_id)
        except ResponseError:
            return None  # an old client that does not tell

    def _offline(self, progress: GroupProgress) -> Finding:
        return Finding(
            severity=Severity.WARNING,
            subject=members.SUBJECT,
            what="nobody of the group is online",
            where=f"group {progress.group}",
            numbers={"lag": progress.lag},
            since_ms=max((one.last_ms for one in progress.queues), default=0) or None,
            meaning="messages wait until a consumer of the group starts",
            command=self._advise("group", "progress", progress.group),
        )

    def _sample(self, topic: str) -> members.Sample:
        """Return the tags of the last messages of a topic."""
        if topic not in self._tags:
            self._tags[topic] = members.Sample(topic=topic, tags=self._last_tags(topic))
        return self._tags[topic]

    def _last_tags(self, topic: str) -> list[str | None]:
        try:
            stats = self._admin.topic_stats(topic)
        except OrbitError:
            return []
        each = max(1, SAMPLE_MESSAGES // max(len(stats), 1))
        return [
            message.tag or None
            for one in stats
            for message in self._admin.browse(
                one.queue, max(one.min_offset, one.max_offset - each), one.max_offset
            )
        ]


def _free_queues(
    progress: GroupProgress, told: Sequence[tuple[str, ConsumerRunningInfo | None]]
) -> Iterator[members.FreeQueue]:
    """Yield queues with messages that nobody holds; none if a member does not tell what it has."""
    infos = [info for _, info in told if info is not None and not info.mq_pop_table]
    if not infos or len(infos) < len(told):
        return
    held = {queue for info in infos for queue in info.mq_table}
    wanted = {topic for info in infos for topic in _wanted(info)}
    for one in progress.queues:
        if one.lag and one.queue not in held and one.queue.topic in wanted:
            yield members.FreeQueue(_queue_text(one.queue), one.lag)


def _queue_text(queue: MessageQueue) -> str:
    return f"{queue.topic}, {queue.broker_name} queue {queue.queue_id}"


def _member(
    client_id: str, info: ConsumerRunningInfo, lags: dict[MessageQueue, QueueLag]
) -> members.Member:
    wanted = _wanted(info)
    return members.Member(
        client_id=client_id,
        wanted={t: w for t, w in wanted.items() if not t.startswith((RETRY_PREFIX, DLQ_PREFIX))},
        held=[_held(queue, one, lags.get(queue)) for queue, one in info.mq_table.items()],
        orderly=info.properties.get("PROP_CONSUMEORDERLY") == "true",
    )


def _wanted(info: ConsumerRunningInfo) -> dict[str, members.Wanted]:
    """Return what a member wants of each topic."""
    return {
        str(one.get("topic")): members.Wanted(
            str(one.get("subString") or "*"), str(one.get("expressionType") or members.TAG)
        )
        for one in info.subscription_set
        if isinstance(one, dict)
    }


def _held(queue: MessageQueue, one: ProcessQueueInfo, lag: QueueLag | None) -> members.HeldQueue:
    return members.HeldQueue(
        queue=_queue_text(queue),
        cached=one.cached_msg_count,
        pulled_ms=one.last_pull_timestamp,
        consumed_ms=one.last_consume_timestamp,
        lag=0 if lag is None else lag.lag,
        in_flight=0 if lag is None else lag.in_flight,
        locked=one.locked,
    )
