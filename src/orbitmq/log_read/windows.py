"""A split of a segment read through a window: so many bytes at a time are copied into one buffer.

What is mapped costs a page fault for each 64 KiB, and time again when it is given back: where the file lies
in memory in small pieces that takes longer than to look at the records, and than to copy all bytes into a
buffer that stays in the processor's cache. The mapping is there all the same: for the place where the first
record is found, for records longer than the window, and for everything that is no record.
"""

import os
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from orbitmq.errors import io_error
from orbitmq.format.columns import Bytes, Rows, ScanOptions
from orbitmq.format.kernels import Kernels
from orbitmq.log_read.reader import (
    BACK_BYTES,
    LogStop,
    OnBad,
    ReadState,
    Skip,
    chunks,
)
from orbitmq.log_read.segment import Segment
from orbitmq.log_read.splits import ROWS_MAX, Split, range_of
from orbitmq.units import MiB

WINDOW_BYTES: Final = 16 * MiB


class Window(NamedTuple):
    """Records of one segment: `rows` count positions in `buffer`, which begins at this log offset.

    The buffer is written over when the next one is asked for, unless it is the segment's own.
    """

    buffer: Bytes
    rows: Rows
    log_offset: int


def read_windows(
    split: Split,
    segment: Segment,
    kernels: Kernels,
    options: ScanOptions,
    on_bad: OnBad,
    *,
    back_bytes: int = BACK_BYTES,
) -> Iterator[Window]:
    """Yield the records that start in the split, as `read_split` does; `on_bad` is told of each bad place."""
    options = replace(options, max_rows=min(options.max_rows, ROWS_MAX))
    at, end, limit = range_of(split, segment, kernels, options, back_bytes=back_bytes)
    if segment.is_file and end - at > WINDOW_BYTES:
        at = yield from _through_a_buffer(segment, at, end, limit, kernels, options)
    bad = Skip(on_bad)
    for chunk in chunks(segment, at, end, kernels=kernels, options=options, limit=limit, bad=bad):
        yield Window(chunk.buffer, chunk.rows, segment.base_offset)


def _through_a_buffer(
    segment: Segment, at: int, end: int, limit: int, kernels: Kernels, options: ScanOptions
) -> Generator[Window, None, int]:
    """Yield records as long as one follows the other; return how far that was."""
    memory = bytearray(WINDOW_BYTES)
    buffer: Bytes = np.frombuffer(memory, dtype=np.uint8)
    try:
        fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return at  # it was deleted; its mapping is there
    try:
        while at < end:
            there = _read(segment, fd, memory, at)
            window = Segment(at, segment.path, buffer[: min(there, limit - at)])
            state = ReadState(at)
            for chunk in chunks(window, at, end, kernels=kernels, options=options, state=state):
                yield Window(chunk.buffer, chunk.rows, at)
            if state.at == at or state.stop not in (LogStop.END, LogStop.CUT):
                return state.at
            at = state.at
    finally:
        os.close(fd)
    return at


def _read(segment: Segment, fd: int, memory: bytearray, log_offset: int) -> int:
    try:
        return os.preadv(fd, [memory], log_offset - segment.base_offset)
    except OSError as cause:
        raise io_error(segment.path, "read", cause) from cause
