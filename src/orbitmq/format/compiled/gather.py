"""Collect the texts and bodies of many records, compiled. `plain.gather` says what each step means."""

from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.format.columns import PAIR, PART, ROW, SPANS, Bytes, Ints, Lists, Rows
from orbitmq.format.compiled.arrays import frozen, frozen_rows
from orbitmq.format.compiled.crc import masked_crc32
from orbitmq.format.compiled.jit import helper, inlined, kernel
from orbitmq.format.compiled.memory import copy, load_i32, prefetch, raw
from orbitmq.format.compiled.text import find_byte, read_properties, same_bytes
from orbitmq.format.record import BODY_AT, BODY_CRC_AT, HOST_V6_EXTRA

_AHEAD: Final = 8  # rows; their pieces lie far apart, so that memory must be asked for early
_LINES_MAX: Final = 4


def gather(buffer: Bytes, at: Ints, lengths: Ints, out: Bytes, out_at: Ints) -> None:
    if not len(at) == len(lengths) == len(out_at):
        raise FormatError(f"{len(at)} positions, {len(lengths)} lengths, {len(out_at)} places")
    bad = _gather(frozen(buffer), _ints(at), _ints(lengths), out, _ints(out_at))
    if bad >= 0:
        what = f"piece of {lengths[bad]} bytes lies outside of {len(buffer)} or {len(out)}"
        raise FormatError(what, int(at[bad]))


def _ints(numbers: Ints) -> Ints:
    return frozen_rows(np.asarray(numbers, dtype=np.int64), np.dtype(np.int64))


@kernel
def _gather(buffer, at, lengths, out, out_at):
    """Copy all pieces; return -1, or the index of the first that lies outside."""
    for index in range(len(at)):
        length = lengths[index]
        if not (inside(at[index], length, len(buffer)) and inside(out_at[index], length, len(out))):
            return index
    for index in range(len(at)):
        ahead = min(index + _AHEAD, len(at) - 1)
        for line in range(min(_LINES_MAX, (lengths[ahead] >> 6) + 1)):
            prefetch(buffer, at[ahead] + 64 * line)
        copy(out, out_at[index], buffer, at[index], lengths[index])
    return -1


@helper
def inside(at, length, room):
    # Not at + length > room: a sum of two large numbers wraps round.
    return at >= 0 and 0 <= length <= room and at <= room - length


def text_spans(buffer: Bytes, rows: Rows) -> npt.NDArray[np.void]:
    spans = np.zeros(len(rows), dtype=SPANS)
    _require(_text_spans(frozen(buffer), frozen_rows(rows, ROW), spans), rows)
    return spans


def _require(bad: int, rows: Rows) -> None:
    if bad >= 0:
        raise FormatError("a row lies outside the buffer", int(rows[bad]["properties_at"]))


@kernel
def _text_spans(buffer, rows, spans):
    """Fill `spans`; return -1, or the index of the first row that lies outside the buffer."""
    source = raw(buffer)
    for index in range(len(rows)):
        _prefetch_properties(source, rows, index)
        row = rows[index]
        at, length = np.int64(row.properties_at), np.int64(row.properties_length)
        if not inside(at, length, len(buffer)):
            return index
        tags, keys, unique, _, _, _, _, _ = read_properties(source, at, at + length)
        span = spans[index]
        span.tags_at = tags[0]
        span.tags_length = tags[1] - tags[0]
        span.keys_at = keys[0]
        span.keys_length = keys[1] - keys[0]
        span.unique_at = unique[0]
        span.unique_length = unique[1] - unique[0]
    return -1


@inlined
def _prefetch_properties(buffer, rows, index):
    ahead = rows[min(index + _AHEAD, len(rows) - 1)]
    for line in range(min(_LINES_MAX, (np.int64(ahead.properties_length) >> 6) + 1)):
        prefetch(buffer, np.int64(ahead.properties_at) + 64 * line)


def property_pairs(buffer: Bytes, rows: Rows) -> Lists:
    view, wanted = frozen(buffer), frozen_rows(rows, ROW)
    total, bad = _count_pieces(view, wanted)
    _require(bad, rows)
    pairs = np.empty(total, dtype=PAIR)
    ends = np.zeros(len(rows) + 1, dtype=np.int32)
    _property_pairs(view, wanted, pairs, ends)
    return Lists(ends, pairs[: int(ends[-1])])


@kernel
def _count_pieces(buffer, rows):
    """Return (how many properties there can be, -1), or 0 and the first row outside the buffer."""
    total = 0
    for index in range(len(rows)):
        _prefetch_properties(buffer, rows, index)
        row = rows[index]
        at, length = np.int64(row.properties_at), np.int64(row.properties_length)
        if not inside(at, length, len(buffer)):
            return 0, index
        end = at + length
        while at < end:
            at = find_byte(buffer, at, end, 2) + 1
            total += 1
    return total, -1


@kernel
def _property_pairs(buffer, rows, pairs, ends):
    filled = 0
    for index in range(len(rows)):
        row = rows[index]
        at = np.int64(row.properties_at)
        end = at + row.properties_length
        first = filled
        while at < end:
            piece_end = find_byte(buffer, at, end, 2)
            name_end = find_byte(buffer, at, piece_end, 1)
            if name_end > at and name_end + 1 < piece_end:
                place = _find_name(buffer, at, name_end - at, pairs, first, filled)
                pair = pairs[place]
                if place == filled:
                    pair.name_at = at
                    pair.name_length = name_end - at
                    filled += 1
                pair.value_at = name_end + 1
                pair.value_length = piece_end - name_end - 1
            at = piece_end + 1
        ends[index + 1] = filled


@helper
def _find_name(buffer, at, length, pairs, first, filled):
    """Return the pair of this record that has the same name, or `filled`."""
    for place in range(first, filled):
        pair = pairs[place]
        if pair.name_length == length and same_bytes(
            buffer, np.int64(pair.name_at), buffer, at, length
        ):
            return place
    return filled


def split_parts(buffer: Bytes, at: Ints, lengths: Ints, separator: int) -> Lists:
    if len(at) != len(lengths):
        raise FormatError(f"{len(at)} positions and {len(lengths)} lengths")
    view, starts, sizes = frozen(buffer), _ints(at), _ints(lengths)
    ends = np.zeros(len(at) + 1, dtype=np.int32)
    bad = _count_parts(view, starts, sizes, int(separator), ends)
    if bad >= 0:
        what = f"piece of {lengths[bad]} bytes lies outside of {len(buffer)}"
        raise FormatError(what, int(at[bad]))
    parts = np.empty(int(ends[-1]), dtype=PART)
    _split_parts(view, starts, sizes, int(separator), parts)
    return Lists(ends, parts)


@kernel
def _count_parts(buffer, at, lengths, separator, ends):
    """Fill `ends`; return -1, or the index of the first piece that lies outside the buffer."""
    count = 0
    for index in range(len(at)):
        if not inside(at[index], lengths[index], len(buffer)):
            return index
        here, end = at[index], at[index] + lengths[index]
        while here < end:
            part_end = find_byte(buffer, here, end, separator)
            count += part_end > here
            here = part_end + 1
        ends[index + 1] = count
    return -1


@kernel
def _split_parts(buffer, at, lengths, separator, parts):
    filled = 0
    for index in range(len(at)):
        here, end = at[index], at[index] + lengths[index]
        while here < end:
            part_end = find_byte(buffer, here, end, separator)
            if part_end > here:
                parts[filled].at = here
                parts[filled].length = part_end - here
                filled += 1
            here = part_end + 1


def bodies_match(buffer: Bytes, rows: Rows) -> npt.NDArray[np.bool_]:
    matches = np.ones(len(rows), dtype=np.bool_)
    bad = _bodies_match(frozen(buffer), frozen_rows(rows, ROW), matches)
    if bad >= 0:
        raise FormatError("a row lies outside the buffer", int(rows[bad]["body_at"]))
    return matches


@kernel
def _bodies_match(buffer, rows, matches):
    """Fill `matches`; return -1, or the index of the first row that lies outside the buffer."""
    for index in range(len(rows)):
        row = rows[index]
        at, length = np.int64(row.body_at), np.int64(row.body_length)
        hosts = np.int64(row.sys_flag)
        start = at - BODY_AT - HOST_V6_EXTRA * ((hosts >> 4 & 1) + (hosts >> 5 & 1))
        if start < 0 or not inside(at, length, len(buffer)):
            return index
        if length > 0:
            expected = load_i32(buffer, start + BODY_CRC_AT)
            matches[index] = masked_crc32(buffer, at, at + length) == expected
    return -1
