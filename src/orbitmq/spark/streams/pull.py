"""Ranges of queues read by pull requests, in a task: retried while a broker is away, a few answers ahead.

Tools' own group pulls, with the filter in each request: nobody has to be online, and no group's offsets
change. What a filter by tag left out is not missed: answers say where to go on.
"""

import asyncio
import queue
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from orbitmq.client.consumer.fetcher import Fetcher
from orbitmq.client.core.broker_api import PullResult, PullStatus
from orbitmq.client.core.core import ClientCore
from orbitmq.client.sync.background_loop import BackgroundLoop
from orbitmq.errors import PipelineError, RemoteProtocolError, ResponseError, WireError
from orbitmq.format.columns import Bytes, Rows, ScanOptions, Stop
from orbitmq.format.kernels import Kernels, compiled
from orbitmq.format.record import BODY_AT
from orbitmq.log_read import Segment
from orbitmq.spark.source.batches import Columns, LogChunk, RowMaker
from orbitmq.spark.source.held import Held, is_held
from orbitmq.spark.source.metrics import ReadMetrics, noted, task_name
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.pushdown import Predicate
from orbitmq.spark.source.selection import RowSelection
from orbitmq.spark.streams.cluster import RETRY_S, connected, plain_pull
from orbitmq.spark.streams.offsets import QueueRange
from orbitmq.spark.streams.stream_options import pass_over
from orbitmq.units import MiB
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers.pull import PullHeader

COUNT_MAX: Final = 1_024
BYTES_MAX: Final = 1 * MiB
AHEAD_MAX: Final = 2
"""So many answers wait for the task; another one is on its way meanwhile."""
_WAIT_MS: Final = 200.0
_LOG_OFFSET_AT: Final = 28  # in a record


def read_ranges(
    ranges: Sequence[QueueRange],
    options: ReadOptions,
    schema: StructType,
    predicates: tuple[Predicate, ...] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the ranges. WireError, PipelineError: they could not be had."""
    # The ranges say of which topics; the option may hold patterns.
    wanted = RowSelection(replace(options, topics=(), without=None), predicates)
    kernels, metrics = compiled(), ReadMetrics(tasks=1)
    maker = RowMaker(Columns.of(schema, options), wanted, kernels, metrics)
    with noted(metrics, options.metrics_path, task_name() if options.metrics_path else ""):
        for chunk in range_chunks(ranges, options, kernels):
            metrics.log_bytes += chunk.segment.data.nbytes
            metrics.records += len(chunk.rows)
            for batch in maker.rows(chunk):
                metrics.rows += batch.num_rows
                yield batch


def range_chunks(
    ranges: Sequence[QueueRange], options: ReadOptions, kernels: Kernels
) -> Iterator[LogChunk]:
    """Yield the records of the ranges. WireError, PipelineError: they could not be had."""
    with connected(options.namesrv) as (loop, core):
        for one in ranges:
            with _fetching(loop, RangeFetcher(core, one, options)) as answers:
                for body in _joined(answers):
                    yield _chunk(kernels, one, body, options.without)


@contextmanager
def _fetching(loop: BackgroundLoop, fetcher: "RangeFetcher") -> Iterator[Iterator[bytes]]:
    """Have a range fetched in the loop, and its answers here."""
    task = asyncio.run_coroutine_threadsafe(fetcher.run(), loop.loop)

    def answers() -> Iterator[bytes]:
        while (answer := fetcher.answers.get()) is not None:
            if isinstance(answer, BaseException):
                raise answer
            loop.call(fetcher.note_read)
            yield answer

    try:
        yield answers()
    finally:
        task.cancel()


def _joined(answers: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the records of about BYTES_MAX at a time."""
    parts: list[bytes] = []
    for body in answers:
        parts.append(body)
        if sum(map(len, parts)) >= BYTES_MAX:
            yield b"".join(parts)
            parts.clear()
    if parts:
        yield b"".join(parts)


class RangeFetcher(Fetcher):
    """Fetches one range as records, a few answers ahead. Belongs to its loop's thread."""

    def __init__(self, core: ClientCore, asked: QueueRange, options: ReadOptions) -> None:
        super().__init__(core, asked.queue)
        self._asked, self._options = asked, options
        self._expression = "||".join(options.tags) or "*"
        self._at = asked.start
        self._good_at = time.monotonic()
        self._misses = 0  # answers that did not come, or had nothing
        self._is_stale = False  # whether the route has to be asked for again
        self._unread = 0
        self._read = asyncio.Event()
        self.answers: queue.SimpleQueue[bytes | BaseException | None] = queue.SimpleQueue()
        """Records as they are stored; None: that was all; an error: it could not be had."""

    async def run(self) -> None:
        """Pull the whole range; whatever ends it stands in `answers`."""
        try:
            await super().run()
        except BaseException as failure:
            self.answers.put(failure)
            if not isinstance(failure, Exception):
                raise
        self.answers.put(None)

    def note_read(self) -> None:
        """Somebody took an answer: there is room for another."""
        self._unread -= 1
        self._read.set()

    async def _next_request(self) -> PullHeader | None:
        while self._unread >= AHEAD_MAX:
            self._read.clear()
            await self._read.wait()
            self._good_at = time.monotonic()  # the broker had nothing to do with that
        count = min(self._asked.end - self._at, COUNT_MAX)
        if count <= 0:
            return None
        return plain_pull(
            self.queue, self._at, count, expression=self._expression, bytes_max=BYTES_MAX
        )

    def _take(self, result: PullResult) -> float:
        following = self._next(self._at, result)
        if following == self._at:
            self._note_miss()
            return _WAIT_MS
        self._at = following
        if result.status is PullStatus.FOUND:
            self._unread += 1
            self.answers.put(result.body)
        return 0

    async def _wait_ms(self, failure: Exception) -> float:
        # Most answers would be the same again.
        final = isinstance(failure, ResponseError) and failure.code != ResponseCode.SYSTEM_BUSY
        if final or time.monotonic() - self._good_at > RETRY_S:
            raise failure
        self._note_miss()
        return _WAIT_MS

    async def _address(self) -> str:
        """Return the primary's address; after a failure its replicas take turns with it."""
        asked, routes = self._asked, self._core.routes
        addresses = routes.brokers().get(asked.broker_name, {})
        if self._is_stale or not addresses:
            try:
                await routes.refresh(asked.topic)
                self._is_stale = False
            except WireError:
                if not addresses:
                    raise
            addresses = routes.brokers().get(asked.broker_name, {})
        if not addresses:
            raise WireError("", f"broker {asked.broker_name} is not registered")
        return addresses[sorted(addresses)[self._misses % len(addresses)]]

    def _next(self, at: int, result: PullResult) -> int:
        """Return where to go on; the same place: the broker has no more, which it had before."""
        if result.status is PullStatus.OFFSET_ILLEGAL and at < result.min_offset:
            self._deleted(at, result.min_offset)
            self._good_at = time.monotonic()
            return result.min_offset
        if result.next_offset > at and result.status in (PullStatus.FOUND, PullStatus.NO_MATCH):
            if result.status is PullStatus.NO_MATCH and self._expression == "*":
                self._deleted(at, result.next_offset)  # everything matches: they are gone
            self._good_at = time.monotonic()
            return result.next_offset
        if time.monotonic() - self._good_at > RETRY_S:
            raise PipelineError(
                f"{self._asked}: no message {at}, the queue has {result.min_offset} to"
                f" {result.max_offset - 1}: its topic was made anew, or its broker lost messages",
                "Read again; a stream needs a new checkpointLocation (startingOffsets says from where).",
            )
        return at

    def _note_miss(self) -> None:
        self._misses += 1
        self._is_stale = True

    def _deleted(self, at: int, first: int) -> None:
        what = f"{self._asked}: messages {at} to {first - 1} were deleted before they were read"
        step = "Set the option badRecords to skip to go on behind them."
        pass_over(self._options, what, step)


def _chunk(kernels: Kernels, asked: QueueRange, body: bytes, held: Held | None) -> LogChunk:
    """Return the records of a pull answer that are of the range, and not elsewhere."""
    data = np.frombuffer(body, dtype=np.uint8)
    rows = _scan(kernels, data)
    # An inner batch that reaches into the range belongs to where it starts.
    offsets = rows["queue_offset"]
    name = f"{asked.topic}@{asked.broker_name}:{asked.queue_id}"
    inside = rows[(offsets >= asked.start) & (offsets < asked.end)]
    if held is not None:
        spans = held.of_queue(*asked[:3])
        inside = inside[~is_held(spans, inside["queue_offset"], inside["store_ms"])]
    return LogChunk(Segment(0, Path(name), data), inside)


def _scan(kernels: Kernels, data: Bytes) -> Rows:
    """Return the rows of a pull answer; their log offset is what the records say."""
    found = kernels.scan(data, 0, len(data), 0, ScanOptions(max_rows=_rows_max(data)))
    if found.stop is not Stop.END or found.stop_at != len(data):
        raise RemoteProtocolError(f"a pull answer holds no record at byte {found.stop_at}")
    rows = found.rows
    places = rows["log_offset"][:, None] + np.arange(_LOG_OFFSET_AT, _LOG_OFFSET_AT + 8)
    rows["log_offset"] = data[places].view(">i8")[:, 0]
    return rows


def _rows_max(data: Bytes) -> int:
    return len(data) // BODY_AT + 1  # no record is shorter than its fixed fields
