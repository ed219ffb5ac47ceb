"""The topics of a cluster as a table, by pull requests: planned on the driver, pulled by tasks.

The driver asks the brokers where each queue starts and ends; what comes later is not part of the table. A
queue is cut into ranges of about `splitBytes`, so that several tasks pull a long one side by side, each over
connections of its own. Rows are those of the store directory: the records of a pull answer are the records
of the log.

Which messages: those of queues that may be read. Topics that brokers made for themselves (retry topics too)
are read only if they are named.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from orbitmq.errors import NoRouteError, ResponseError
from orbitmq.log_read import SPLIT_BYTES
from orbitmq.spark.source.batches import Columns
from orbitmq.spark.source.cluster_query import find_messages, joined
from orbitmq.spark.source.held import Held, uncovered, whole
from orbitmq.spark.source.lookup.times import CLOCK_MARGIN_MS
from orbitmq.spark.source.metrics import ReadMetrics, write_metrics
from orbitmq.spark.source.options import OFFSET_MAX, ReadOptions
from orbitmq.spark.source.pushdown import TableReader
from orbitmq.spark.streams.cluster import ClusterView, Span, is_pattern
from orbitmq.spark.streams.offsets import QueueRange, cut_tasks
from orbitmq.spark.streams.pull import read_ranges
from orbitmq.units import KiB
from orbitmq.wire.bodies.message_queue import MessageQueue

if TYPE_CHECKING:
    import pyarrow as pa

RETRY_S: Final = 15.0
"""So long a broker may be away while a query is planned: whoever waits at a prompt wants to know."""
MESSAGE_BYTES: Final = 1 * KiB
"""What a message is taken to be where its queue does not tell."""
SHORT_QUEUE: Final = 1_000
"""Queues of fewer messages are not asked for sizes."""

BROKERS: Final = "queries by key to the brokers"
"""What a read was narrowed by, as its figures tell it."""

Ranges = dict[MessageQueue, tuple[int, int]]


class ClusterTable(TableReader):
    """One query over a cluster."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options)
        Columns.of(schema, options)  # a wrong schema shall be told before anybody is asked
        self._schema, self._named = schema, options.topics

    def partitions(self) -> list[InputPartition]:
        """Ask the cluster and cut its queues into tasks."""
        options = self._options
        view = ClusterView(options.namesrv, options.topics or ("*",), retry_s=RETRY_S)
        try:
            ranges = self._ranges(view)
            if options.keys or options.ids:
                found = find_messages(view, options, ranges, _index_window(options))
                _note_index(options)
            else:
                found = [QueueRange.of(queue, *span) for queue, span in ranges.items()]
            found = _not_held(found, options.without)
            sizes = _message_bytes(view, found)
        finally:
            view.close()
        split_bytes = options.split_bytes or SPLIT_BYTES
        tasks = cut_tasks(joined(found), split_bytes, sizes, MESSAGE_BYTES)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the rows of one task."""
        if partition.value is not None:  # Spark's own, where a table has none
            given = self._options, self._schema, self._predicates
            yield from read_ranges(partition.value, *given)

    def _ranges(self, view: ClusterView) -> Ranges:
        """Return of each queue what has to be read. NoRouteError: a topic that was named is not there."""
        options = self._options
        spans = view.look_at_all().spans
        _require_topics(self._named, spans)
        if options.without is not None:
            _require_all_there(options.without, spans)
        ranges = {
            queue: (max(span.start, options.start_queue_offset or 0), span.end)
            for queue, span in spans.items()
            if options.queue_id is None or queue.queue_id == options.queue_id
        }
        if options.end_queue_offset is not None:
            last = options.end_queue_offset
            ranges = {queue: (start, min(end, last)) for queue, (start, end) in ranges.items()}
        return self._of_times(view, _not_empty(ranges))

    def _of_times(self, view: ClusterView, ranges: Ranges) -> Ranges:
        """Leave out what is too old or too young, with a margin: a clock may have been set back."""
        options = self._options
        if options.start_ms is not None and ranges:
            firsts = view.offsets_at(ranges, max(options.start_ms - CLOCK_MARGIN_MS, 0))
            ranges = {q: (max(start, firsts[q]), end) for q, (start, end) in ranges.items()}
        if options.end_ms is not None and ranges:
            lasts = view.offsets_at(ranges, min(options.end_ms + CLOCK_MARGIN_MS, OFFSET_MAX))
            # Brokers before RocketMQ 5 answer with the last message where all are older.
            ranges = {q: (start, min(end, lasts[q] + 1)) for q, (start, end) in ranges.items()}
        return _not_empty(ranges)


def _not_empty(ranges: Ranges) -> Ranges:
    return {queue: span for queue, span in ranges.items() if span[0] < span[1]}


def _require_topics(named: Sequence[str], spans: Mapping[MessageQueue, object]) -> None:
    found = {queue.topic for queue in spans}
    for topic in named:
        if topic not in found and not is_pattern(topic):
            what = "no name server knows it, or none of its queues may be read"
            raise NoRouteError(topic, what, "`orbitmq topic list` shows the topics of a cluster.")


def _require_all_there(held: Held, spans: Mapping[MessageQueue, Span]) -> None:
    for queue, span in spans.items():
        key = (queue.topic, queue.broker_name, queue.queue_id)
        name = f"topic {queue.topic}, broker {queue.broker_name}, queue {queue.queue_id}"
        held.require_all_there(key, span.start, whole(held.of_queue(*key)), name)


def _not_held(ranges: Sequence[QueueRange], held: Held | None) -> list[QueueRange]:
    """Leave out what is elsewhere as a whole; of what is there in part, tasks leave it out."""
    if held is None:
        return list(ranges)
    return [
        one._replace(start=start, end=end)
        for one in ranges
        for start, end in uncovered(whole(held.of_queue(*one[:3])), one.start, one.end)
    ]


def _note_index(options: ReadOptions) -> None:
    if options.metrics_path:
        write_metrics(
            options.metrics_path, ReadMetrics(found_by=[BROKERS]), f"lookup-{uuid4().hex}"
        )


def _index_window(options: ReadOptions) -> tuple[int, int]:
    """Return the store times that an index is asked for: it knows seconds only, and clocks go wrong."""
    start = 0 if options.start_ms is None else max(options.start_ms - CLOCK_MARGIN_MS, 0)
    end = OFFSET_MAX if options.end_ms is None else options.end_ms + CLOCK_MARGIN_MS
    return start, min(end, OFFSET_MAX)


def _message_bytes(view: ClusterView, ranges: Sequence[QueueRange]) -> dict[MessageQueue, int]:
    """Return about how large the messages of each long queue are, from its first ones."""
    firsts = {one.queue: one.start for one in ranges if one.end - one.start >= SHORT_QUEUE}
    try:
        samples = view.sizes(firsts) if firsts else {}
    except ResponseError:
        return {}  # only how the work is cut depends on it
    return {queue: sum(sizes) // len(sizes) for queue, sizes in samples.items() if sizes}
