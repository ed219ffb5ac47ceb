"""A table becomes a store, on Spark.

  encode  a task for each partition: rows to records in a file (`encode_task`), facts to the driver
  plan    the driver: partitions in order make one log, cut into segments; sums give queue offsets (`plan`)
  place   a task for each segment: records get their offsets and lie where they belong (`place_task`)
  settle  the driver: all segments are there, once and whole, and get their names; topics.json
  rebuild queues, index and checkpoint from the new log, which is read and checked for that (`rebuild`)
  commit  the driver: one rename (`staging`)

The rows of a queue have the order of the table: partition by partition, and in each from the first to the
last. A store is there whole or not at all.
"""

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame

from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import ConfigError
from orbitmq.files.disk import Disk
from orbitmq.files.state_file import write_state
from orbitmq.spark.failures import clear_errors
from orbitmq.spark.jobs.load.arrow_map import map_in_arrow
from orbitmq.spark.jobs.load.columns import message_columns, sorted_rows
from orbitmq.spark.jobs.load.encode_task import FACTS, FACTS_SCHEMA, Encode
from orbitmq.spark.jobs.load.facts import PartFacts, from_bytes
from orbitmq.spark.jobs.load.place_task import Place
from orbitmq.spark.jobs.load.plan import (
    Queue,
    SegmentPlan,
    cut_segments,
    in_order,
    queue_bases,
)
from orbitmq.spark.jobs.load.queues import QUEUES_MAX, require_topic
from orbitmq.spark.jobs.load.staging import Staging, require_new
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles, Wanted, settle
from orbitmq.spark.jobs.rebuild.job import RebuildReport, rebuild
from orbitmq.spark.progress import JobProgress
from orbitmq.store.config import StoreConfig
from orbitmq.wire.bodies.topic_config import DataVersion, TopicConfig

QUEUES: Final = 4
"""Queues of a topic whose rows name none: as many as a producer of RocketMQ asks for."""
RECORD_EXTRA_BYTES: Final = 64 * 1024
_LOG_PATHS: Final = ("storePathCommitLog", "readOnlyCommitLogStorePaths")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a table becomes messages."""

    topic: str | None = None  # of all rows; None: the column tells
    queues: int = QUEUES  # of a topic whose rows do not name theirs
    order_by: tuple[str, ...] = ()  # columns; none: the table as it is
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What a load made, or (dry run) would make."""

    dry_run: bool
    root: Path
    records: int
    record_bytes: int
    segments: int  # 0 in a dry run
    topics: dict[str, int]  # messages of each
    queues: int
    index_entries: int
    seconds: dict[str, float]  # per stage


def load(
    frame: DataFrame,
    store: Path | str,
    settings: Mapping[str, str] | None = None,
    options: LoadOptions | None = None,
    *,
    progress: JobProgress | None = None,
    clock: Clock | None = None,
    disk: Disk | None = None,
) -> LoadReport:
    """Make a store of a table; its directory must be empty, or not there. `settings` are RocketMQ's keys.

    ConfigError: the table has columns that no message has, or the directory is not empty.
    InvalidMessageError: a row that no broker would take. In both cases, as in all others, there is no store.
    """
    options = options or LoadOptions()
    target = Path(store).absolute()
    given = _settings(target, settings or {})
    config = _config(target, given, options)
    require_new(Path(store))
    columns = message_columns(sorted_rows(frame, options.order_by), options.topic)
    with (
        nullcontext(progress) if progress is not None else JobProgress(frame.sparkSession) as shown,
        clear_errors("load"),
    ):
        parts = disk or Disk(), clock or SystemClock()
        return _Load(columns, config, given, options, shown, *parts).run()


def _settings(target: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return a broker's settings without the place of its log, which must be the usual one."""
    for key in _LOG_PATHS:
        if given.get(key) and Path(given[key]).absolute() != target / "commitlog":
            raise ConfigError(key, given[key], "a load writes the log into the store directory")
    return {key: value for key, value in given.items() if key not in _LOG_PATHS}


def _config(target: Path, settings: Mapping[str, str], options: LoadOptions) -> StoreConfig:
    if not 1 <= options.queues <= QUEUES_MAX:
        raise ConfigError("--queues", options.queues, f"must be 1 to {QUEUES_MAX}")
    if options.topic is not None:
        require_topic(options.topic)
    config = StoreConfig.from_settings(target, settings)
    if len(config.store_host.address) != 4:
        raise ConfigError("brokerIP1", config.store_host.text(), "must be an IPv4 address")
    return config


class _Load:
    """One load. Not thread-safe."""

    def __init__(
        self,
        columns: DataFrame,
        config: StoreConfig,
        settings: Mapping[str, str],
        options: LoadOptions,
        progress: JobProgress,
        disk: Disk,
        clock: Clock,
    ) -> None:
        self._columns, self._config, self._options = columns, config, options
        self._settings = settings
        self._progress, self._disk, self._clock = progress, disk, clock
        self._staging = Staging(config.root, disk)
        self._job = uuid.uuid4().hex[:12]
        self._seconds: dict[str, float] = {}

    def run(self) -> LoadReport:
        if self._options.dry_run:
            return self._report(self._encode(None), [], None)
        with self._staging.held():
            return self._make()

    def _make(self) -> LoadReport:
        parts = self._encode(self._files("encode"))
        segments = self._place(parts)
        self._write_topics(parts)
        with self._timed("rebuild"):
            rebuilt = self._rebuild()
        if self._progress.interrupted:
            raise KeyboardInterrupt
        self._staging.commit()
        return self._report(parts, segments, rebuilt)

    def _files(self, stage: str) -> AttemptFiles:
        return AttemptFiles(str(self._staging.attempts), self._job, stage)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self._seconds[stage] = time.monotonic() - start

    # --- encode ---

    def _encode(self, files: AttemptFiles | None) -> list[PartFacts]:
        config, host = self._config, self._config.store_host.packed()
        work = Encode(
            files,
            self._progress.stage("encode"),
            queue_count=self._options.queues,
            body_bytes_max=config.message_bytes_max,
            record_bytes_max=min(
                config.message_bytes_max + RECORD_EXTRA_BYTES, config.segment_bytes - 8
            ),
            store_ms=self._clock.now_ms(),
            hosts=host + host,
        )
        with self._timed("encode"):
            rows = map_in_arrow(self._columns, work, FACTS_SCHEMA).collect()
        parts = in_order(from_bytes(bytes(row[FACTS])) for row in rows)
        if not parts:
            raise ConfigError("source", "the table", "has no rows, and a store without is no use")
        return parts

    # --- place ---

    def _place(self, parts: list[PartFacts]) -> list[SegmentPlan]:
        with self._timed("place"):
            segments = cut_segments(parts, self._config.segment_bytes)
            total = sum(segment.byte_count for segment in segments)
            counter = self._progress.stage("place", total)
            work = Place(self._files("place"), counter, self._config.segment_bytes)
            context = self._columns.sparkSession.sparkContext
            spread = context.parallelize(segments, len(segments))
            settle(
                self._wanted(segments), spread.mapPartitionsWithIndex(work).collect(), self._disk
            )
        return segments

    def _wanted(self, segments: list[SegmentPlan]) -> dict[int, Wanted]:
        length = self._config.segment_bytes
        layout = self._config.layout()
        return {
            one.number: Wanted(
                self._staged(layout.segment_path(one.number * length)), length, one.records
            )
            for one in segments
        }

    def _staged(self, path: Path) -> Path:
        """Return where a file of the store lies until the store is there."""
        return self._staging.store / path.relative_to(self._config.root)

    # --- what is made from the log ---

    def _write_topics(self, parts: list[PartFacts]) -> None:
        table = {
            topic: _builtin(
                TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count)
            )
            for topic, count in sorted(self._queue_counts(parts).items())
        }
        version = DataVersion().next(self._clock.now_ms())
        path = self._staged(self._config.layout().config("topics.json"))
        self._disk.make_directory(path.parent)
        write_state(self._disk, path, {"dataVersion": _builtin(version), "topicConfigTable": table})

    def _queue_counts(self, parts: list[PartFacts]) -> dict[str, int]:
        """Return how many queues each topic has: up to the highest that a row named, all to choose from."""
        counts: dict[str, int] = {}
        for queue in (queue for part in parts for queue in part.queues):
            least = self._options.queues if queue.chosen else 1
            counts[queue.topic] = max(counts.get(queue.topic, 0), least, queue.queue_id + 1)
        return counts

    def _rebuild(self) -> RebuildReport:
        return rebuild(
            self._columns.sparkSession,
            self._staging.store,
            self._settings,
            progress=self._progress,
            clock=self._clock,
            disk=self._disk,
        )

    def _report(
        self, parts: list[PartFacts], segments: list[SegmentPlan], rebuilt: RebuildReport | None
    ) -> LoadReport:
        _, totals = queue_bases(parts)
        return LoadReport(
            dry_run=self._options.dry_run,
            root=self._config.root,
            records=sum(part.records for part in parts),
            record_bytes=sum(part.record_bytes for part in parts),
            segments=len(segments),
            topics=_by_topic(totals),
            queues=len(totals),
            index_entries=rebuilt.index_entries if rebuilt is not None else 0,
            seconds=dict(self._seconds),
        )


def _by_topic(totals: Mapping[Queue, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for (topic, _), count in sorted(totals.items()):
        found[topic] = found.get(topic, 0) + count
    return found


def _builtin(value: Any) -> Any:
    return msgspec.to_builtins(value)
