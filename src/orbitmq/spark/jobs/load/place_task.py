"""The task that writes a segment: records of parts, each with its queue offset and its place in the log."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from orbitmq.errors import JobFailedError, io_error
from orbitmq.files.disk import Disk
from orbitmq.files.positioned import FileCache
from orbitmq.format.columns import Bytes, Ints
from orbitmq.format.record import LOG_OFFSET_AT, QUEUE_OFFSET_AT, encode_blank
from orbitmq.spark.jobs.load.plan import Piece, SegmentPlan, blocks, read_entries
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles, Finished
from orbitmq.spark.progress import StageCounter
from orbitmq.spark.shared_paths import require_seen

BLOCK_RECORDS: Final = 16 * 1024
_I64: Final = np.arange(8)


@dataclass(frozen=True, slots=True)
class Place:
    """Writes segments as files of the attempt. Travels to executors."""

    files: AttemptFiles
    counter: StageCounter | None
    segment_bytes: int

    def __call__(self, _number: int, segments: Iterable[SegmentPlan]) -> Iterator[Finished]:
        require_seen(self.files.directory)
        for segment in segments:
            yield self._write(segment)

    def _write(self, segment: SegmentPlan) -> Finished:
        path, at = self.files.new_path(), 0
        with FileCache(Disk()) as files:
            for piece in segment.pieces:
                for block in self._blocks(piece, segment.number * self.segment_bytes + at):
                    files.write(path, at, block.data, file_bytes=self.segment_bytes)
                    at += len(block)
            if not segment.is_last:
                files.write(path, at, encode_blank(self.segment_bytes - at))
            files.sync([path])
        if self.counter is not None:
            self.counter.add(at, segment.records)
        return Finished(segment.number, path, self.segment_bytes, segment.records)

    def _blocks(self, piece: Piece, log_offset: int) -> Iterator[Bytes]:
        """Yield the records of a piece as they stand in the log, which begins at this offset for them."""
        bases = np.array(piece.bases, dtype=np.int64)
        start = piece.start_byte
        for first, end in blocks(piece, BLOCK_RECORDS):
            entries = read_entries(piece.entries_path, first, end)
            starts = np.concatenate(([0], np.cumsum(entries["size"], dtype=np.int64)))
            block = _read(piece.records_path, start, int(starts[-1]))
            _add(block, starts[:-1] + QUEUE_OFFSET_AT, bases[entries["queue"]])
            _put(block, starts[:-1] + LOG_OFFSET_AT, log_offset + starts[:-1])
            yield block
            start += len(block)
            log_offset += len(block)


def _read(path: str, at: int, length: int) -> Bytes:
    try:
        found = np.fromfile(path, np.uint8, count=length, offset=at)
    except OSError as cause:
        raise io_error(path, "read", cause) from cause
    if len(found) != length:
        what = f"{path} ends before byte {at + length}"
        raise JobFailedError(what, "All machines must see the same directory. No store was made.")
    return found


def _put(block: Bytes, places: Ints, values: Ints) -> None:
    block[places[:, None] + _I64] = values.astype(">i8").view(np.uint8).reshape(-1, 8)


def _add(block: Bytes, places: Ints, values: Ints) -> None:
    now = np.ascontiguousarray(block[places[:, None] + _I64]).view(">i8").ravel()
    _put(block, places, now.astype(np.int64) + values)
