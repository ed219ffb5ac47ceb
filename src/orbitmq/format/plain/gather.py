"""Collect the texts and bodies of many records: the reference for `compiled.gather`."""

from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.format.columns import PAIR, PART, SPANS, Bytes, Ints, Lists, Rows
from orbitmq.format.crc import masked_crc32
from orbitmq.format.record import BODY_AT, BODY_CRC_AT, HOST_V6_EXTRA
from orbitmq.message import Property

_SPAN_NAMES: Final = (Property.TAGS, Property.KEYS, Property.UNIQ_KEY)  # in the order of SPANS
_Span = tuple[int, int]  # position, length


def gather(buffer: Bytes, at: Ints, lengths: Ints, out: Bytes, out_at: Ints) -> None:
    """Copy lengths[i] bytes from at[i] of the buffer to out_at[i] of `out`, for every i.

    Raises FormatError before the first byte is copied if a piece lies outside of either.
    """
    require_pieces(at, lengths, len(buffer))
    require_pieces(out_at, lengths, len(out))
    for start, length, target in zip(at.tolist(), lengths.tolist(), out_at.tolist(), strict=True):
        out[target : target + length] = buffer[start : start + length]


def require_pieces(at: Ints, lengths: Ints, room: int) -> None:
    """Raise FormatError unless all pieces lie in `room` bytes."""
    if len(at) != len(lengths):
        raise FormatError(f"{len(at)} positions and {len(lengths)} lengths")
    # Not at + lengths > room: a sum of two large numbers wraps round.
    outside = np.flatnonzero((at < 0) | (lengths < 0) | (lengths > room) | (at > room - lengths))
    if len(outside):
        first = int(outside[0])
        what = f"piece of {lengths[first]} bytes lies outside of {room}"
        raise FormatError(what, int(at[first]))


def text_spans(buffer: Bytes, rows: Rows) -> npt.NDArray[np.void]:
    """Return where each record's tag, keys and unique id lie, as SPANS rows."""
    found: list[tuple[int, ...]] = []
    names = [name.encode() for name in _SPAN_NAMES]
    for pairs in _all_pairs(buffer, rows):
        spans = [pairs[name][1] if name in pairs else (0, 0) for name in names]
        found.append(tuple(number for span in spans for number in span))
    return np.array(found, dtype=SPANS)


def property_pairs(buffer: Bytes, rows: Rows) -> Lists:
    """Return where names and values of each record's properties lie, as PAIR elements.

    Of equal names the last value counts, in the place of the first, as in a Python dict.
    """
    lists: list[list[tuple[int, ...]]] = [
        [(*name, *value) for name, value in pairs.values()] for pairs in _all_pairs(buffer, rows)
    ]
    return _lists(lists, PAIR)


def _all_pairs(buffer: Bytes, rows: Rows) -> list[dict[bytes, tuple[_Span, _Span]]]:
    """Return per row the spans of name and value of each property, by name."""
    at, lengths = (rows[name].astype(np.int64) for name in ("properties_at", "properties_length"))
    require_pieces(at, lengths, len(buffer))
    return [
        _pairs(buffer[start : start + length].tobytes(), start)
        for start, length in zip(at.tolist(), lengths.tolist(), strict=True)
    ]


def _pairs(raw: bytes, start: int) -> dict[bytes, tuple[_Span, _Span]]:
    pairs: dict[bytes, tuple[_Span, _Span]] = {}
    at = start
    for piece in raw.split(b"\x02"):
        name, _, value = piece.partition(b"\x01")
        if name and value:
            first_name = pairs[name][0] if name in pairs else (at, len(name))
            pairs[name] = first_name, (at + len(name) + 1, len(value))
        at += len(piece) + 1
    return pairs


def split_parts(buffer: Bytes, at: Ints, lengths: Ints, separator: int) -> Lists:
    """Cut each piece of the buffer at this byte; the parts that are not empty are PART elements."""
    require_pieces(at, lengths, len(buffer))
    lists: list[list[tuple[int, ...]]] = []
    for start, length in zip(at.tolist(), lengths.tolist(), strict=True):
        parts: list[tuple[int, ...]] = []
        here = start
        for part in buffer[start : start + length].tobytes().split(bytes((separator,))):
            if part:
                parts.append((here, len(part)))
            here += len(part) + 1
        lists.append(parts)
    return _lists(lists, PART)


def _lists(lists: list[list[tuple[int, ...]]], dtype: np.dtype[np.void]) -> Lists:
    ends = np.cumsum([0, *(len(elements) for elements in lists)], dtype=np.int32)
    flat = [element for elements in lists for element in elements]
    return Lists(ends, np.array(flat, dtype=dtype))


def bodies_match(buffer: Bytes, rows: Rows) -> npt.NDArray[np.bool_]:
    """Return of each row whether its body has the checksum that its record names.

    As in `scan`, an empty body always matches.
    """
    at, lengths = (rows[name].astype(np.int64) for name in ("body_at", "body_length"))
    starts = record_starts(rows)
    require_pieces(at, lengths, len(buffer))
    require_pieces(starts, at - starts, len(buffer))
    matches = np.ones(len(rows), dtype=np.bool_)
    for index, (start, body_at, length) in enumerate(
        zip(starts.tolist(), at.tolist(), lengths.tolist(), strict=True)
    ):
        stored = buffer[start + BODY_CRC_AT : start + BODY_CRC_AT + 4].tobytes()
        if length:
            body = buffer[body_at : body_at + length]
            matches[index] = masked_crc32(body.data) == int.from_bytes(stored, "big", signed=True)
    return matches


def record_starts(rows: Rows) -> Ints:
    """Return the position of each record in the buffer that its row was read from."""
    hosts = rows["sys_flag"].astype(np.int64)
    extra = HOST_V6_EXTRA * ((hosts >> 4 & 1) + (hosts >> 5 & 1))
    starts: Ints = rows["body_at"].astype(np.int64) - BODY_AT - extra
    return starts
