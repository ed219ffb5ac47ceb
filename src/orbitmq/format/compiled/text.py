"""Read property strings and hash text, byte by byte where plain Python would make strings."""

from typing import Final

import numpy as np

from orbitmq.format.compiled.jit import helper
from orbitmq.format.compiled.memory import (
    SEPARATORS_BYTES,
    load_little_u32,
    load_little_u64,
    separators,
    trailing_zeros,
)
from orbitmq.message import Property

_ONES: Final = np.uint64(0x0101010101010101)
_HIGHS: Final = np.uint64(0x8080808080808080)

_TAGS: Final = np.uint32(int.from_bytes(Property.TAGS.encode(), "little"))
_KEYS: Final = np.uint32(int.from_bytes(Property.KEYS.encode(), "little"))
_UNIQ_KEY: Final = np.uint64(int.from_bytes(Property.UNIQ_KEY.encode(), "little"))
_DELAY: Final = np.frombuffer(Property.DELAY.encode(), dtype=np.uint8)
_INNER_NUM: Final = np.frombuffer(Property.INNER_NUM.encode(), dtype=np.uint8)
_INNER_BASE: Final = np.frombuffer(Property.INNER_BASE.encode(), dtype=np.uint8)
_MULTI_DISPATCH: Final = np.frombuffer(Property.MULTI_DISPATCH.encode(), dtype=np.uint8)
_FILLER: Final = np.frombuffer(Property.FILLER.encode(), dtype=np.uint8)
assert len(Property.TAGS) == len(Property.KEYS) == 4  # compared as one number
assert len(Property.UNIQ_KEY) == 8

_REPLACEMENT: Final = 0xFFFD


@helper
def find_byte(buffer, at, end, wanted):
    """Return the first position in [at, end) of this byte, or `end`."""
    pattern = np.uint64(wanted) * _ONES
    while end - at >= 8:
        # A byte of `mixed` is zero where the byte was found; the lowest such byte is reported right.
        mixed = load_little_u64(buffer, at) ^ pattern
        hits = (mixed - _ONES) & ~mixed & _HIGHS
        if hits != np.uint64(0):
            return at + (trailing_zeros(hits) >> 3)
        at += 8
    while at < end and buffer[at] != wanted:
        at += 1
    return at


@helper
def same_bytes(buffer, at, other, other_at, length):
    for index in range(length):  # noqa: SIM110 - a loop is what compiles well
        if buffer[at + index] != other[other_at + index]:
            return False
    return True


@helper
def read_properties(buffer, at, end):
    """Return (start, end) of the values that the store reads; start 0 where there is none.

    In order: TAGS, KEYS, UNIQ_KEY, DELAY, INNER_NUM, INNER_BASE; then whether there is a
    MULTI_DISPATCH and a FILLER. A value never starts at 0: its name lies before it.
    """
    tags = (0, 0)
    keys = (0, 0)
    unique = (0, 0)
    delay = (0, 0)
    number = (0, 0)
    base = (0, 0)
    dispatched = False
    filler = False
    name_end = end  # none seen yet in this piece
    block = at
    bits = np.uint64(0)
    while at < end:
        while bits == np.uint64(0) and block < end:
            bits, block = next_separators(buffer, block, end)
        if bits == np.uint64(0):
            piece_end = end
        else:
            piece_end = block - SEPARATORS_BYTES + trailing_zeros(bits)
            bits &= bits - np.uint64(1)
            if buffer[piece_end] == 1:
                name_end = min(name_end, piece_end)
                continue
        length = name_end - at
        value = (name_end + 1, piece_end)
        if length > 0 and name_end + 1 < piece_end:
            if length == 4:
                name = load_little_u32(buffer, at)
                if name == _TAGS:
                    tags = value
                elif name == _KEYS:
                    keys = value
            elif length == 8:
                if load_little_u64(buffer, at) == _UNIQ_KEY:
                    unique = value
            elif length == len(_DELAY):
                if same_bytes(buffer, at, _DELAY, 0, length):
                    delay = value
            elif length == len(_INNER_NUM):
                if same_bytes(buffer, at, _INNER_NUM, 0, length):
                    number = value
            elif length == len(_INNER_BASE):
                if same_bytes(buffer, at, _INNER_BASE, 0, length):
                    base = value
            elif length == len(_MULTI_DISPATCH):
                dispatched |= same_bytes(buffer, at, _MULTI_DISPATCH, 0, length)
            elif length == len(_FILLER):
                filler |= same_bytes(buffer, at, _FILLER, 0, length)
        at = piece_end + 1
        name_end = end
    return tags, keys, unique, delay, number, base, dispatched, filler


@helper
def next_separators(buffer, block, end):
    """Return a bit for each separator in the next 32 bytes, and where the block after them starts."""
    if end - block >= SEPARATORS_BYTES:
        return separators(buffer, block), block + SEPARATORS_BYTES
    missing = block + SEPARATORS_BYTES - end
    if block >= missing:
        # Load the last 32 bytes instead and forget those that were seen before.
        return separators(buffer, block - missing) >> np.uint64(missing), block + SEPARATORS_BYTES
    bits = np.uint64(0)
    for index in range(end - block):
        if buffer[block + index] == 1 or buffer[block + index] == 2:
            bits |= np.uint64(1) << np.uint64(index)
    return bits, block + SEPARATORS_BYTES


@helper
def count_parts(buffer, at, end):
    """Return the number of parts between spaces that are not empty."""
    count = 0
    inside = False
    for index in range(at, end):
        space = buffer[index] == 0x20
        count += not space and not inside
        inside = not space
    return count


@helper
def parse_number(buffer, at, end, bits):
    """Return (whether it is a number of this width, the number), as Java's parse; ASCII digits only."""
    negative = at < end and buffer[at] == 0x2D
    if at < end and (negative or buffer[at] == 0x2B):
        at += 1
    if at >= end:
        return False, np.int64(0)
    value = np.uint64(0)
    digits = 0
    for index in range(at, end):
        digit = np.int64(buffer[index]) - 0x30
        if digit < 0 or digit > 9:
            return False, np.int64(0)
        digits += digits > 0 or digit > 0
        if digits > 19:  # ten times a number of 19 digits would no longer fit
            return False, np.int64(0)
        value = value * np.uint64(10) + np.uint64(digit)
    limit = np.uint64(1) << np.uint64(bits - 1)
    if value > limit or (value == limit and not negative):
        return False, np.int64(0)
    signed = np.int64(value)
    return True, -signed if negative else signed


@helper
def _sequence(buffer, at, end):
    """Return (code point, bytes used) of the UTF-8 at `at`, not ASCII; malformed as Python replaces it.

    A malformed sequence is the longest start of a valid one, at least one byte, and counts as one
    U+FFFD.
    """
    first = np.int64(buffer[at])  # not ASCII
    low, high = 0x80, 0xBF
    if 0xC2 <= first <= 0xDF:
        needed, value = 1, first & 0x1F
    elif 0xE0 <= first <= 0xEF:
        needed, value = 2, first & 0x0F
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
    elif 0xF0 <= first <= 0xF4:
        needed, value = 3, first & 0x07
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    else:
        return _REPLACEMENT, 1
    for index in range(1, needed + 1):
        if at + index >= end:
            return _REPLACEMENT, index
        byte = np.int64(buffer[at + index])
        if byte < low or byte > high:
            return _REPLACEMENT, index
        value = (value << 6) | (byte & 0x3F)
        low, high = 0x80, 0xBF
    return value, needed + 1


@helper
def hash_text(buffer, at, end, value):
    """Continue Java's string hash over UTF-8 bytes; only the low 32 bits of the result count."""
    while at < end:
        # Eight ASCII characters in one step: the sum is the same, and no multiplication waits for
        # the one before.
        while end - at >= 8 and load_little_u64(buffer, at) & _HIGHS == np.uint64(0):
            value = value * 852891037441 + (
                np.int64(buffer[at]) * 27512614111
                + np.int64(buffer[at + 1]) * 887503681
                + np.int64(buffer[at + 2]) * 28629151
                + np.int64(buffer[at + 3]) * 923521
                + np.int64(buffer[at + 4]) * 29791
                + np.int64(buffer[at + 5]) * 961
                + np.int64(buffer[at + 6]) * 31
                + np.int64(buffer[at + 7])
            )
            at += 8
        if at >= end:
            break
        if buffer[at] < 0x80:
            value = value * 31 + np.int64(buffer[at])
            at += 1
            continue
        point, used = _sequence(buffer, at, end)
        if point >= 0x10000:
            value = value * 31 + (0xD800 + ((point - 0x10000) >> 10))
            value = value * 31 + (0xDC00 + ((point - 0x10000) & 0x3FF))
        else:
            value = value * 31 + point
        at += used
    return value


@helper
def as_int32(value):
    """Return the low 32 bits as a signed number."""
    return np.int64(np.int32(value & 0xFFFFFFFF))
