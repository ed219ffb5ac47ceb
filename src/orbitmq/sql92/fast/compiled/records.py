"""Find the property strings of records, compiled. `plain.find_properties` says what it is for."""

from typing import Final

import numpy as np

from orbitmq.errors import FormatError
from orbitmq.format.columns import Bytes, Ints
from orbitmq.format.compiled.arrays import frozen, frozen_rows
from orbitmq.format.compiled.gather import inside
from orbitmq.format.compiled.jit import helper, kernel
from orbitmq.format.compiled.memory import load_i16, load_i32, prefetch
from orbitmq.format.record import (
    BODY_AT,
    HOST_V6_EXTRA,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    OVERHEAD_BYTES,
    SYS_FLAG_AT,
)

_AHEAD: Final = 4  # records; they lie far apart, so that memory must be asked for early
_LINES: Final = 3
_NONE: Final = np.int64(-1)


def find_properties(buffer: Bytes, at: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    require_numbers(at, sizes)
    starts, lengths = np.empty(len(at), dtype=np.int64), np.empty(len(at), dtype=np.int64)
    bad = _find_properties(frozen(buffer), as_ints(at), as_ints(sizes), starts, lengths)
    require_inside(bad, at, sizes, len(buffer))
    return starts, lengths


def require_numbers(at: Ints, lengths: Ints) -> None:
    if len(at) != len(lengths):
        raise FormatError(f"{len(at)} positions and {len(lengths)} lengths")


def require_inside(bad: int, at: Ints, lengths: Ints, room: int) -> None:
    """Raise FormatError if a kernel found that a piece lies outside: -1 is none."""
    if bad >= 0:
        raise FormatError(f"piece of {lengths[bad]} bytes lies outside of {room}", int(at[bad]))


def as_ints(numbers: Ints) -> Ints:
    return frozen_rows(np.asarray(numbers, dtype=np.int64), np.dtype(np.int64))


@kernel
def _find_properties(buffer, at, sizes, starts, lengths):
    """Fill `starts` and `lengths`; return -1, or the index of the first record outside the buffer."""
    count = len(at)
    for index in range(count):
        if not inside(at[index], sizes[index], len(buffer)):
            return index
        ahead = min(index + _AHEAD, count - 1)
        prefetch(buffer, at[ahead])
        for line in range(1, _LINES + 1):  # of the properties, which `run` looks at
            prefetch(buffer, at[ahead] + sizes[ahead] - 64 * line)
        start, length = _properties(buffer, at[index], at[index] + sizes[index])
        starts[index] = start
        lengths[index] = length
    return -1


@helper
def _properties(buffer, at, room_end):
    """Return position and length of the property string of the record at `at`; 0, -1: there is no record."""
    if room_end - at < OVERHEAD_BYTES:
        return np.int64(0), _NONE
    size = load_i32(buffer, at)
    magic = load_i32(buffer, at + MAGIC_AT)
    if magic != MAGIC_V1 and magic != MAGIC_V2:  # noqa: PLR1714 - this is what compiles well
        return np.int64(0), _NONE
    if size < OVERHEAD_BYTES or size > room_end - at:
        return np.int64(0), _NONE
    end = at + size
    sys_flag = load_i32(buffer, at + SYS_FLAG_AT)
    body_at = at + BODY_AT + HOST_V6_EXTRA * ((sys_flag >> 4 & 1) + (sys_flag >> 5 & 1))
    if body_at > end:
        return np.int64(0), _NONE
    body_length = load_i32(buffer, body_at - 4)
    if body_length < 0 or body_length > end - body_at:
        return np.int64(0), _NONE
    length_bytes = 2 if magic == MAGIC_V2 else 1
    topic_at = body_at + body_length + length_bytes
    if topic_at > end:
        return np.int64(0), _NONE
    if length_bytes == 2:
        topic_length = load_i16(buffer, topic_at - 2)
    else:
        topic_length = np.int64(np.int8(buffer[topic_at - 1]))
    if topic_length < 0 or topic_length > end - topic_at:
        return np.int64(0), _NONE
    properties_at = topic_at + topic_length + 2
    if properties_at > end:
        return np.int64(0), _NONE
    length = load_i16(buffer, properties_at - 2)
    if length < 0 or length > end - properties_at:
        return np.int64(0), _NONE
    return properties_at, length
