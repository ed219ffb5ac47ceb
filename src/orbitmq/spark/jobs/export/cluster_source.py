"""A cluster's queues as the source of an export: what is new in them, cut into tasks.

A range is known by its queue: topic, broker, number. Log offsets of several brokers cannot be compared.
"""

import logging
from typing import Final, NoReturn

from orbitmq.errors import ConfigError, NoRouteError, PipelineError
from orbitmq.spark.jobs.export.cluster_task import ClusterExport, ClusterWork
from orbitmq.spark.jobs.export.covered import Covered, Key, Span, advanced
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.notes import Anchor
from orbitmq.spark.jobs.export.options import ExportOptions
from orbitmq.spark.jobs.export.source import Round
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles
from orbitmq.spark.progress import StageCounter
from orbitmq.spark.source.options import BadRecords, ReadOptions
from orbitmq.spark.streams.cluster import ClusterView
from orbitmq.spark.streams.offsets import QueueRange, cut_tasks
from orbitmq.wire.bodies.message_queue import MessageQueue

logger = logging.getLogger(__name__)

MESSAGES_PER_TASK: Final = 100_000


class ClusterSource:
    """The topics of one cluster. Not thread-safe."""

    def __init__(self, namesrv: str, options: ExportOptions) -> None:
        self._namesrv, self._options = namesrv, options
        self._view = ClusterView(namesrv, options.topics or ("*",))

    @property
    def kind(self) -> str:
        """What its offsets count, as a manifest says it."""
        return "queues"

    def look(self, held: Covered, _anchor: Anchor | None) -> Round:
        """Return what is new. PipelineError: these are other queues, or what is needed was deleted."""
        spans = self._view.look_at_all().spans
        self._require_topics({queue.topic for queue in spans})
        firsts = self._firsts(list(spans))
        covered, ranges = dict(held.spans), []
        for queue, (oldest, end) in spans.items():
            key: Key = (queue.topic, queue.broker_name, queue.queue_id)
            before = held.spans.get(key)
            self._require_there(key, before, oldest, end)
            reads, covered[key] = advanced(before, firsts.get(queue), oldest, end)
            ranges += [QueueRange.of(queue, max(start, oldest), last) for start, last in reads]
        tasks = [
            ClusterWork(number, task)
            for number, task in enumerate(cut_tasks(ranges, MESSAGES_PER_TASK))
        ]
        return Round(tasks, Covered(covered), 0, -1, None)

    def work(
        self, _round: Round, rows: LakeRows, files: AttemptFiles, counter: StageCounter
    ) -> ClusterExport:
        """Return what the tasks do."""
        options = ReadOptions(namesrv=self._namesrv, bad_records=self._options.bad_records)
        return ClusterExport(options, rows, files, counter, self._options.dry_run)

    def sample(
        self, _round: Round, _known: frozenset[str], _files: AttemptFiles, _counter: StageCounter
    ) -> NoReturn:
        """Messages would have to be pulled twice."""
        raise ConfigError("schema", None, "give one: a cluster's messages are not read to find it")

    def close(self) -> None:
        """Close the connections."""
        self._view.close()

    def _firsts(self, queues: list[MessageQueue]) -> dict[MessageQueue, int]:
        if self._options.since_ms is not None and queues:
            return self._view.offsets_at(queues, self._options.since_ms)
        first = self._options.from_offset
        return {} if first is None else dict.fromkeys(queues, first)

    def _require_topics(self, found: set[str]) -> None:
        for topic in self._options.topics:
            if topic not in found:
                what = "no name server knows it, or none of its queues may be read"
                raise NoRouteError(topic, what, "`orbitmq topic list` shows the topics.")

    def _require_there(self, key: Key, before: Span | None, oldest: int, end: int) -> None:
        if before is None:
            return
        name = f"topic {key[0]}, broker {key[1]}, queue {key[2]}"
        if end < before.end:
            what = f"{name} ends at {end}, but this lake holds it up to {before.end}"
            step = "Its topic was made anew, or this is another cluster: export to a new directory."
            raise PipelineError(what, step)
        if before.end < oldest:
            what = f"{name}: messages {before.end} to {oldest - 1} are not there"
            if self._options.bad_records is BadRecords.FAIL:
                step = "Export with bad-records=skip to go on without them."
                raise PipelineError(f"{what}: they were deleted before they were exported", step)
            logger.warning("%s; going on without them", what)
