"""A stream over the topics of a cluster, by pull requests: an offset of the stream is `StreamOffset`.

Every batch looks for new topics, brokers and queues, and reads them from their first message. With the
option `group` the brokers are told how far the stream is, so that tools show its lag; nobody has to be
online in that group, and the stream itself goes by its checkpoint alone.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from orbitmq.client.core.name_rules import require_group
from orbitmq.errors import ConfigError, PipelineError
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.streams.cluster import RETRY_S, ClusterView, Span, View
from orbitmq.spark.streams.offsets import (
    INITIAL,
    Offsets,
    StreamOffset,
    moved,
    ranges,
    take_bytes,
    take_rows,
    tasks,
)
from orbitmq.spark.streams.stream_options import (
    UNLIMITED,
    Start,
    StartKind,
    default_limit,
    limits,
    pass_over,
)
from orbitmq.wire.bodies.message_queue import MessageQueue

if TYPE_CHECKING:
    import pyarrow as pa


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as they grow. One lives in the process beside the driver, a copy of it in each task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if not options.topics:
            rule = "name the topics of the stream, as Orders,Stock or Order*"
            raise ConfigError("topics", ",".join(options.topics), rule)
        if options.group:
            require_group(options.group)
        self._options, self._schema = options, schema
        self._start = Start.parse(options.starting_offsets)
        self._opened: ClusterView | None = None
        self._latest = View()
        self._target: View | None = None  # with the trigger AvailableNow
        self._told: Offsets = {}
        self._ahead_since: dict[MessageQueue, float] = {}

    # --- beside the driver ---

    @property
    def _cluster(self) -> ClusterView:
        if self._opened is None:
            self._opened = ClusterView(self._options.namesrv, self._options.topics)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return INITIAL.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return default_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._latest = self._cluster.look_at_all()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where the queues ended at the last look: this is asked for after every batch."""
        ends = {queue: span.end for queue, span in self._latest.spans.items()}
        return StreamOffset(ends).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        at = StreamOffset.from_json(start)
        spans = self._look(at).spans
        # Spark asks for the next batch when the one before it is in the sink. `commit` comes only with the
        # batch after that, and for the last one of a run never.
        self._commit(at)
        begins = self._begins(at, spans)
        taken = self._taken({**at.ends, **begins}, spans, limit)
        end = moved(at, begins, taken)
        return start if end is at else end.to_json()

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        found = ranges(StreamOffset.from_json(start), StreamOffset.from_json(end))
        return [InputPartition(task) for task in tasks(found)]

    def commit(self, end: Mapping[str, Any]) -> None:
        self._commit(StreamOffset.from_json(end))

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _look(self, at: StreamOffset) -> View:
        if self._target is not None:
            return self._target
        self._latest = self._cluster.look() if at.started else self._cluster.look_at_all()
        return self._latest

    def _commit(self, at: StreamOffset) -> None:
        if not self._options.group:
            return
        news = {q: offset for q, offset in at.ends.items() if self._told.get(q) != offset}
        for queue in self._cluster.commit(self._options.group, news) if news else ():
            self._told[queue] = news[queue]

    # --- where queues begin ---

    def _begins(self, at: StreamOffset, spans: Mapping[MessageQueue, Span]) -> Offsets:
        """Return where queues begin which do not go on where the stream is."""
        new = {queue: span for queue, span in spans.items() if queue not in at.ends}
        begins = {queue: span.start for queue, span in new.items()}
        if not at.started:
            begins = self._first_offsets(new)
        for queue in at.ends.keys() & spans.keys():
            offset, span = at.ends[queue], spans[queue]
            if offset < span.start:
                self._deleted(queue, offset, span.start)
                begins[queue] = span.start
            self._watch(queue, offset, span.end)
        return begins

    def _first_offsets(self, spans: Mapping[MessageQueue, Span]) -> Offsets:
        match self._start.kind:
            case StartKind.LATEST:
                return {queue: span.end for queue, span in spans.items()}
            case StartKind.TIME:
                found = self._cluster.offsets_at(spans, self._start.time_ms)
                return {q: min(max(found[q], span.start), span.end) for q, span in spans.items()}
            case StartKind.QUEUES:
                return self._named_offsets(spans)
        return {queue: span.start for queue, span in spans.items()}

    def _named_offsets(self, spans: Mapping[MessageQueue, Span]) -> Offsets:
        option = "startingOffsets"
        for queue in sorted(self._start.queues.keys() - spans.keys()):
            raise ConfigError(option, self._options.starting_offsets, f"there is no {_name(queue)}")
        begins = {}
        for queue, span in spans.items():
            offset = self._start.queues.get(queue, span.start)
            if offset > span.end:
                rule = f"{_name(queue)} has messages {span.start} to {span.end - 1}, not {offset}"
                raise ConfigError(option, self._options.starting_offsets, rule)
            if offset < span.start:
                self._deleted(queue, offset, span.start)
            begins[queue] = max(offset, span.start)
        return begins

    def _deleted(self, queue: MessageQueue, offset: int, first: int) -> None:
        what = f"{_name(queue)}: messages {offset} to {first - 1} were deleted before the stream read them"
        step = "Set the option badRecords to skip to go on behind them, or start the query anew."
        pass_over(self._options, what, step)

    def _watch(self, queue: MessageQueue, offset: int, end: int) -> None:
        """Give a queue that ends before what was read some time: its broker may be starting."""
        if offset <= end:
            self._ahead_since.pop(queue, None)
            return
        since = self._ahead_since.setdefault(queue, time.monotonic())
        if time.monotonic() - since > RETRY_S:
            raise PipelineError(
                f"{_name(queue)} ends at {end}, but the stream has read it up to {offset}: its topic was"
                " made anew, or its broker lost messages",
                "Start the query with a new checkpointLocation; startingOffsets says from where.",
            )

    # --- how much ---

    def _taken(
        self,
        begins: Mapping[MessageQueue, int],
        spans: Mapping[MessageQueue, Span],
        limit: ReadLimit,
    ) -> Offsets:
        taken = {
            queue: span.end - begins[queue]
            for queue, span in spans.items()
            if span.end > begins[queue]
        }
        rows_max, bytes_max = limits(self._options, limit)
        turn = sum(begins.values())
        if rows_max < sum(taken.values()):
            taken = take_rows(taken, rows_max, turn)
        if bytes_max != UNLIMITED and taken:
            wanted = {queue: begins[queue] for queue, count in taken.items() if count}
            taken = take_bytes(taken, self._cluster.sizes(wanted), bytes_max, turn)
        return taken

    # --- in a task ---

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        from orbitmq.spark.streams.pull import read_ranges

        yield from read_ranges(partition.value, self._options, self._schema)


def _name(queue: MessageQueue) -> str:
    return f"topic {queue.topic}, broker {queue.broker_name}, queue {queue.queue_id}"
