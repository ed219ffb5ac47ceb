"""What an audit reads: the log of a store directory, or the queues of a cluster, and who reads them.

Lag is that of this moment, whatever times are asked for: so reading begins where the first of all groups
is to go on, if that lies before `--since`.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.client import Admin
from orbitmq.client.admin.base import is_system_group
from orbitmq.errors import ConfigError, NoRouteError, NotAStoreError, WrongFileError
from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.format import cq_unit
from orbitmq.format.kernels import Kernels, compiled
from orbitmq.log_read import LogPlan, Split, missing, open_segment, plan_log, rows_at
from orbitmq.message import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX
from orbitmq.spark.jobs.audit.options import AuditOptions
from orbitmq.spark.jobs.audit.readers import (
    MEMBERS,
    Readers,
    Standing,
    readers_of,
    stored_groups,
    stored_subscriptions,
    told_subscriptions,
)
from orbitmq.spark.jobs.audit.roles import Roles
from orbitmq.spark.jobs.export.covered import Span
from orbitmq.spark.jobs.export.job import From
from orbitmq.spark.jobs.export.log_source import task_splits
from orbitmq.spark.remote.address import is_remote
from orbitmq.spark.source.log_table import search_back_bytes
from orbitmq.spark.source.lookup.times import CLOCK_MARGIN_MS, time_stretch
from orbitmq.spark.source.options import BadRecords
from orbitmq.spark.source.row_columns import RowColumns
from orbitmq.spark.streams.cluster import ClusterView
from orbitmq.spark.streams.offsets import QueueRange, cut_tasks
from orbitmq.store.offline.group_places import read_places
from orbitmq.wire.bodies.message_queue import MessageQueue

logger = logging.getLogger(__name__)

MESSAGES_PER_TASK: Final = 100_000
MESSAGE_BYTES: Final = 1024
"""What a message of a cluster is taken to be, where only their number is known."""
SKIP_STEP: Final = (
    "Audit with bad-records=skip to go on without it; `orbitmq store check` tells more."
)


class Work(NamedTuple):
    """What one task reads: stretches of a log, or ranges of queues."""

    splits: tuple[Split, ...] = ()
    ranges: tuple[QueueRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to read, looked at once."""

    name: str  # as a report calls it
    works: list[Work]
    bytes: int
    readers: Readers
    roles: Roles
    namesrv: str = ""
    back_bytes: int = 0
    gaps: int = 0  # stretches of the log that are missing, and passed over
    ends: dict[MessageQueue, int] = field(
        default_factory=dict
    )  # of queues, where brokers told them


def look(given: From, options: AuditOptions, cores: int) -> Look:
    """Look at a store or a cluster. ConfigError, NoRouteError: what was named is not there."""
    if not given.store:
        with Admin(given.namesrv) as admin:
            return _ClusterLook(given, options, admin).look()
    return _StoreLook(given, options, cores).look()


def _wanted_group(options: AuditOptions, group: str) -> bool:
    return group in options.groups if options.groups else not is_system_group(group)


def _wanted_topic(options: AuditOptions, topic: str) -> bool:
    if topic.startswith(LMQ_PREFIX):
        return False  # light queues point to messages of other topics
    return not options.topics or topic in options.topics


def _roles(options: AuditOptions, known_groups: Iterable[str]) -> Roles:
    return Roles(
        frozenset(options.topics),
        frozenset(options.groups),
        frozenset(known_groups),
        options.trace_topic,
    )


def _require_groups(options: AuditOptions, known: Iterable[str], where: str) -> None:
    known = set(known)
    for group in options.groups:
        if group not in known:
            raise ConfigError("group", group, f"{where} knows no such group")
    for group, topic in options.subscriptions:
        if group not in known:
            raise ConfigError("subscription", f"{group}:{topic}", f"{where} knows no such group")


# --- a store directory ---


def require_near(store: str) -> None:
    """Raise ConfigError for a store whose log alone can be read."""
    if is_remote(store):
        rule = "an audit reads queues and groups beside the log: copy the store to a directory"
        raise ConfigError("from", store.partition("?")[0], rule)


class _StoreLook:
    """Looks at a store's files."""

    def __init__(self, given: From, options: AuditOptions, cores: int) -> None:
        require_near(given.store)
        self._root, self._settings, self._options = Path(given.store), given.settings, options
        self._cores = cores

    def look(self) -> Look:
        plan = plan_log(self._root, self._settings)
        places = read_places(plan.layout)
        stored = stored_subscriptions(plan.layout)
        known = {place.group for place in places} | stored_groups(plan.layout)
        known |= {group for group, _ in stored}
        _require_groups(self._options, known, f"{self._root}")
        standings = [
            Standing(one.group, one.topic, ("", one.queue_id), one.offset)
            for one in places
            if _wanted_group(self._options, one.group) and _wanted_topic(self._options, one.topic)
        ]
        span = Span(self._first(plan, standings), plan.end)
        return Look(
            str(self._root),
            [Work(splits=splits) for splits in task_splits(plan, [span], self._cores)],
            span.end - span.start,
            readers_of(standings, {**stored, **self._options.subscriptions}),
            _roles(self._options, known),
            back_bytes=search_back_bytes(self._settings),
            gaps=self._gaps(plan, span),
        )

    def _first(self, plan: LogPlan, standings: list[Standing]) -> int:
        """Return where reading begins."""
        since_ms = self._options.since_ms
        if since_ms is None or not plan.files:
            return plan.start
        kernels = compiled()
        first = time_stretch(plan, since_ms, None, kernels, lambda _: None)[0]
        for one in (*standings, *_never_read(plan.layout, standings)):
            if first > plan.start:
                first = min(first, _last_read(plan, one, kernels))
        return first

    def _gaps(self, plan: LogPlan, span: Span) -> int:
        gaps = missing(plan, *span) if span.end > span.start else []
        for gap in gaps:
            what = f"the log from {gap.start} to {gap.end} is missing"
            if self._options.bad_records is BadRecords.FAIL:
                raise NotAStoreError(gap.path, what, SKIP_STEP)
            logger.warning("%s: %s; going on without it", gap.path, what)
        return len(gaps)


def _never_read(layout: StoreLayout, standings: list[Standing]) -> Iterator[Standing]:
    """Yield the queues of which groups have no offset, though they read others of the topic."""
    queues: dict[str, set[int]] = {}
    for kind in (QueueKind.SIMPLE, QueueKind.BATCH):
        for queue in layout.list_queues(kind, on_problem=lambda _: None):
            queues.setdefault(queue.topic, set()).add(queue.queue_id)
    known = {(one.group, one.topic, one.queue[1]) for one in standings}
    for group, topic in {(one.group, one.topic) for one in standings}:
        for queue_id in queues.get(topic, set()):
            if (group, topic, queue_id) not in known:
                yield Standing(group, topic, ("", queue_id), 0)


def _last_read(plan: LogPlan, one: Standing, kernels: Kernels) -> int:
    """Return the log offset of the last message that a group has read of a queue: all unread ones lie behind
    it. Where no unit and record prove it, that is the start of the log."""
    offset = _unit_log_offset(plan.layout, one)
    for file in plan.files if offset is not None else ():
        if offset is not None and file.base_offset <= offset < file.base_offset + file.length:
            segment = open_segment(file.path, file.base_offset)
            rows = rows_at(segment, offset, kernels=kernels)[:1]
            topics = RowColumns(kernels, segment.data, rows).column("topic").to_pylist()
            found = zip(
                topics, rows["queue_id"].tolist(), rows["queue_offset"].tolist(), strict=True
            )
            proved = list(found) == [(one.topic, one.queue[1], one.offset - 1)]
            return offset if proved else plan.start
    return plan.start


def _unit_log_offset(layout: StoreLayout, one: Standing) -> int | None:
    """Return what the queue says of the last message that was read."""
    kind, size = QueueKind.SIMPLE, cq_unit.UNIT_BYTES
    file_bytes, at = layout.queue_file_bytes(kind), (one.offset - 1) * size
    if at < 0:
        return None
    try:
        path = layout.queue_file(kind, one.topic, one.queue[1], at - at % file_bytes)
        with path.open("rb") as file:
            file.seek(at % file_bytes)
            data = file.read(size)
    except (OSError, WrongFileError):
        return None
    return int.from_bytes(data[:8], "big") if len(data) == size else None


# --- a cluster ---


class _ClusterLook:
    """Asks the brokers of a cluster."""

    def __init__(self, given: From, options: AuditOptions, admin: Admin) -> None:
        self._namesrv, self._options, self._admin = given.namesrv, options, admin

    def look(self) -> Look:
        options = self._options
        groups = [info.group for info in self._admin.groups(system=True)]
        _require_groups(options, groups, "the cluster")
        wanted = [group for group in groups if _wanted_group(options, group)]
        standings = list(self._standings(wanted))
        told = told_subscriptions(self._told(wanted), MEMBERS)
        readers = readers_of(standings, {**told, **options.subscriptions})
        spans = self._spans(groups, set(readers))
        ranges = self._ranges(spans, standings)
        tasks = cut_tasks(ranges, MESSAGES_PER_TASK)
        return Look(
            f"the cluster of {self._namesrv}",
            [Work(ranges=task) for task in tasks],
            sum(one.end - one.start for one in ranges) * MESSAGE_BYTES,
            readers,
            _roles(options, groups),
            self._namesrv,
            ends={queue: span[1] for queue, span in spans.items()},
        )

    def _standings(self, groups: list[str]) -> Iterator[Standing]:
        for group in groups:
            for one in self._admin.progress(group).queues:
                if _wanted_topic(self._options, one.queue.topic):
                    queue = one.queue.broker_name, one.queue.queue_id
                    yield Standing(group, one.queue.topic, queue, one.consumer_offset)

    def _told(self, groups: list[str]) -> Iterator[tuple[str, str, str, str]]:
        for group in groups:
            for one in self._admin.consumers(group).subscriptions:
                yield group, one.topic, one.expression_type, one.expression

    def _spans(self, groups: list[str], read: set[str]) -> dict[MessageQueue, tuple[int, int]]:
        """Return how far the queues reach whose messages matter."""
        known = set(self._admin.topics(system=True))
        for topic in self._options.topics:
            if topic not in known:
                raise NoRouteError(
                    topic, "no name server knows it", "`orbitmq topic list` shows them."
                )
        own = {topic for topic in known if topic.startswith((RETRY_PREFIX, DLQ_PREFIX))}
        names = set(self._options.topics) or set(self._admin.topics())
        names |= (own | read | {self._options.trace_topic}) & known
        view = ClusterView(self._namesrv, sorted(names))
        try:
            return {queue: (one.start, one.end) for queue, one in view.look_at_all().spans.items()}
        finally:
            view.close()

    def _ranges(
        self, spans: dict[MessageQueue, tuple[int, int]], standings: list[Standing]
    ) -> list[QueueRange]:
        """Return what has to be read of each queue: from `--since` on, or from where a group goes on."""
        starts = {queue: start for queue, (start, _) in spans.items()}
        if self._options.since_ms is not None and spans:
            starts |= self._at(spans, self._options.since_ms)
        for one in standings:
            queue = MessageQueue(one.topic, *one.queue)
            if queue in starts:
                starts[queue] = min(starts[queue], max(one.offset, spans[queue][0]))
        return [
            QueueRange.of(queue, starts[queue], end)
            for queue, (_, end) in spans.items()
            if starts[queue] < end
        ]

    def _at(
        self, spans: dict[MessageQueue, tuple[int, int]], since_ms: int
    ) -> dict[MessageQueue, int]:
        view = ClusterView(self._namesrv, sorted({queue.topic for queue in spans}))
        try:
            view.look_at_all()
            firsts = view.offsets_at(list(spans), max(since_ms - CLOCK_MARGIN_MS, 0))
        finally:
            view.close()
        return {queue: min(max(firsts[queue], low), high) for queue, (low, high) in spans.items()}
