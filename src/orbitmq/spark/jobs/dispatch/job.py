"""Continuous dispatch: a streaming query over the tail of a commit log writes its queues and index.

Tasks scan splits of what is new and pack it (`dispatch/source.py`); the driver puts it into the files in
log order, syncs them, and tells the store (`DispatchWriter`). So there is one writer, and executors only
read. A small batch is one task.

What has been dispatched is told by the store's own file `done`, written after the bytes that it tells
of. Spark's checkpoint cannot be: it knows nothing of a store that recovered meanwhile. Each query
starts where `done` says, with a checkpoint of its own that goes away with it.
"""

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from orbitmq.errors import ConfigError, JobFailedError, StoreError
from orbitmq.files.listing import list_segments
from orbitmq.format.columns import Ints
from orbitmq.format.kernels import compiled
from orbitmq.log_read import BACK_BYTES
from orbitmq.spark.failures import clear_errors
from orbitmq.spark.jobs.dispatch.chunks import PackedChunk, unpack_chunk
from orbitmq.spark.jobs.dispatch.source import (
    FORMAT,
    DispatchSource,
    TailOptions,
    is_speaking,
)
from orbitmq.store.spark_dispatch.handover import DIRECTORY, Handover
from orbitmq.store.spark_dispatch.writer import DispatchWriter, NewEpochError, read_settings
from orbitmq.units import KiB, MiB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 128 * MiB
BATCH_BYTES_MIN: Final = 1 * MiB
SHOW_SECONDS: Final = 1.0
SAMPLE: Final = 10_000
"""Latencies are those of so many records, the newest ones."""
RETRIES: Final = 3
"""So often a query that failed is tried again, unless it has dispatched something."""

QUICK_NOTES: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming"
    ".checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
"""Spark's checkpoint is worth nothing to us, so the quicker way to write it: 15 ms a file instead of 60."""

_LOOK_SECONDS: Final = 0.1
_CHECKPOINT: Final = "checkpoint-"


class DispatchTimes:
    """Counts of a job, and how long records take from append to dispatched. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the rest
        self._sample: Ints = np.zeros(0, dtype=np.int64)
        self.records = 0
        self.batches = 0

    def add(self, store_ms: Sequence[Ints], now_ms: int) -> None:
        """Note a batch: when its records were appended, and that they are dispatched now."""
        with self._lock:
            self.batches += 1
            self.records += sum(len(times) for times in store_ms)
            taken = [now_ms - times for times in store_ms]
            self._sample = np.concatenate([self._sample, *taken])[-SAMPLE:]

    def percentiles(self) -> tuple[float, float]:
        """Return p50 and p99 in ms; 0 before the first record."""
        with self._lock:
            if not len(self._sample):
                return 0.0, 0.0
            median, slow = np.percentile(self._sample, [50, 99])
            return float(median), float(slow)


class DispatchProgress(NamedTuple):
    """How far the job is. `store` is "open", "closed" or "silent" (killed, or not started yet)."""

    dispatched_offset: int
    behind_bytes: int
    records: int  # since the job began
    batches: int
    latency_ms_p50: float  # from append to dispatched, of the last records
    latency_ms_p99: float
    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOptions:
    """How the job runs."""

    once: bool = False  # dispatch what is there now, then end
    batch_bytes: int = BATCH_BYTES
    checkpoint: Path | None = None  # None: in the store

    def __post_init__(self) -> None:
        if self.batch_bytes < BATCH_BYTES_MIN:
            rule = f"must be at least {BATCH_BYTES_MIN}"
            raise ConfigError("batch_bytes", self.batch_bytes, rule)


class DispatchJob:
    """One job. `run` belongs to one thread; any may call `stop`."""

    def __init__(
        self,
        spark: "SparkSession",
        root: Path,
        options: DispatchOptions | None = None,
        *,
        show: Callable[[DispatchProgress], None] | None = None,
    ) -> None:
        self._spark = spark
        self._root = root.absolute()
        self._options = options or DispatchOptions()
        self._show = show or (lambda _: None)
        self._handover = Handover(self._root)
        self._stopping = threading.Event()
        self._times = DispatchTimes()
        self._shown_at = 0.0
        self._failures = 0  # in a row, without a batch between them

    def run(self) -> DispatchProgress:
        """Dispatch until `stop`, or with `once` until all is dispatched; return how far that is."""
        read_settings(self._handover)  # before anything is made in a directory that is no store
        with self._handover.only_job():
            if self._options.once:
                self._require_speaking()
            self._spark.dataSource.register(DispatchSource)
            while True:
                with DispatchWriter(self._root, compiled()) as writer:
                    over = self._try_query(writer)
                    progress = self._progress(writer)
                if over or self._stopping.is_set():
                    self._show(progress)
                    return progress

    def stop(self) -> None:
        """End after the batch that is under way."""
        self._stopping.set()

    def _require_speaking(self) -> None:
        if not is_speaking(self._handover.readable_offset(), _now_ms()):
            what = "its broker was killed, and what its log holds is not known"
            raise StoreError(self._root, what, "Start the broker first: it recovers the store.")

    # --- one query ---

    def _try_query(self, writer: DispatchWriter) -> bool:
        """Run a query; False: start another one. Spark may lose a task or two, and that ends a query."""
        batches = self._times.batches
        try:
            over = self._run_query(writer)
        except JobFailedError as error:
            self._failures = 1 if self._times.batches > batches else self._failures + 1
            if self._failures > RETRIES or self._stopping.is_set():
                raise
            log.warning("%s: tried again from log offset %d: %s", self._root, writer.offset, error)
            self._stopping.wait(self._failures)
            return False
        if not over:
            log.info("%s: the store was opened again; going on from there", self._root)
        return over

    def _run_query(self, writer: DispatchWriter) -> bool:
        """Dispatch until somebody ends it, all is done, or the epoch is over; False: in the last case."""
        with self._checkpoint() as checkpoint, clear_errors("dispatch"):
            query = self._start(writer, checkpoint)
            try:
                while not query.awaitTermination(_LOOK_SECONDS):  # type: ignore[arg-type]
                    if self._stopping.is_set() or self._is_over(writer):
                        break
                    self._show_sometimes(writer)
            finally:
                query.stop()
        return not self._is_over(writer)

    def _is_over(self, writer: DispatchWriter) -> bool:
        return read_settings(self._handover).epoch != writer.epoch

    def _start(self, writer: DispatchWriter, checkpoint: Path) -> "StreamingQuery":
        def dispatch(frame: "DataFrame", _: int) -> None:
            self._dispatch(writer, frame)

        trigger = {"availableNow": True} if self._options.once else {"processingTime": "0 seconds"}
        writing = (
            self._spark.readStream.format(FORMAT)
            .option("tail", self._tail(writer).text())
            .load()
            .writeStream.foreachBatch(dispatch)
            .option("checkpointLocation", checkpoint.as_uri())
            .trigger(**trigger)
        )
        # The class is Spark's own affair: where two queries came to nothing, it may be that one has gone.
        quick = QUICK_NOTES if self._failures < 2 else {}
        with self._settings(quick):  # a query keeps what holds when it starts
            return writing.start()

    @contextmanager
    def _settings(self, settings: Mapping[str, str]) -> Iterator[None]:
        conf = self._spark.conf
        before = {name: conf.get(name, None) for name in settings}
        for name, value in settings.items():
            conf.set(name, value)
        try:
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    conf.unset(name)
                else:
                    conf.set(name, old)

    def _tail(self, writer: DispatchWriter) -> TailOptions:
        config, layout = writer.config, writer.layout
        return TailOptions(
            root=str(self._root),
            epoch=writer.epoch,
            start=writer.offset,
            segment_bytes=layout.segment_bytes,
            log_paths=tuple(str(path) for path in layout.commit_log_directories),
            delay_ms=config.delay_ms,
            with_items=config.index_enabled,
            back_bytes=max(BACK_BYTES, config.message_bytes_max + 128 * KiB),
            batch_bytes=self._options.batch_bytes,
            tasks=self._spark.sparkContext.defaultParallelism,
        )

    @contextmanager
    def _checkpoint(self) -> Iterator[Path]:
        """Make a directory for Spark's checkpoint; those of jobs that were killed go away."""
        parent = self._options.checkpoint or self._root / DIRECTORY
        for old in parent.glob(f"{_CHECKPOINT}*"):
            shutil.rmtree(old, ignore_errors=True)
        place = parent.absolute() / f"{_CHECKPOINT}{os.getpid()}-{time.time_ns()}"
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    # --- one batch ---

    def _dispatch(self, writer: DispatchWriter, frame: "DataFrame") -> None:
        rows = sorted(frame.collect(), key=lambda row: (row.split_start, row.first))
        if not rows:
            return
        end = covered_end(max(writer.offset, self._log_min(writer)), rows)
        chunks = [unpack_chunk(PackedChunk(row.rows, row.texts, row.items)) for row in rows]
        chunks = [chunk for chunk in chunks if len(chunk.rows)]
        try:
            writer.write(chunks, end)
        except NewEpochError:
            return  # the main thread sees it too, and starts over
        self._times.add([chunk.rows["store_ms"] for chunk in chunks], _now_ms())

    def _log_min(self, writer: DispatchWriter) -> int:
        """Return where the log starts: a disk that is too full may cost segments before their dispatch."""
        files = list_segments(writer.layout.commit_log_directories, on_problem=lambda _: None)
        return files[0].base_offset if files else 0

    # --- what is shown ---

    def _show_sometimes(self, writer: DispatchWriter) -> None:
        now = time.monotonic()
        if now >= self._shown_at + SHOW_SECONDS:
            self._shown_at = now
            self._show(self._progress(writer))

    def _progress(self, writer: DispatchWriter) -> DispatchProgress:
        shown, now_ms = self._handover.readable_offset(), _now_ms()
        behind = max(shown.log_offset - writer.offset, 0) if shown is not None else 0
        store = "closed" if shown is not None and shown.closed else "open"
        if not is_speaking(shown, now_ms):
            store = "silent"
        median, slow = self._times.percentiles()
        return DispatchProgress(
            writer.offset, behind, self._times.records, self._times.batches, median, slow, store
        )


def covered_end(start: int, rows: "Sequence[Row]") -> int:
    """Return where splits that follow one another from `start` on end. JobFailedError: they do not."""
    position = start
    for row in rows:
        if row.split_end <= position:
            continue
        if row.split_start > position:
            what = f"dispatch: nobody read the log from {position} to {row.split_start}"
            raise JobFailedError(
                what, "Start the job again; `orbitmq store check` looks at the log."
            )
        position = row.split_end
    return position


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
