"""JSON as Spark's VARIANT, in its binary form: the bytes that Spark's own parse_json makes.

A variant is two pieces of bytes: the value, and the names of all fields in it, which the value's objects
give by number (the specification is Parquet's, VariantEncoding.md). Numbers take the smallest type that holds
them; one with a point is a decimal while 38 digits are enough.
"""

import json
import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

BYTES_MAX: Final = 16 * 1024 * 1024 - 1
"""What lengths of three bytes can say; later versions of Spark take more, earlier ones do not."""

_OBJECT: Final = 2
_ARRAY: Final = 3
_NULL: Final = b"\x00"
_TRUE, _FALSE = b"\x04", b"\x08"
_INTS: Final = ((1, 0x0C), (2, 0x10), (4, 0x14), (8, 0x18))
_DOUBLE: Final = struct.Struct("<Bd")
_DOUBLE_HEAD: Final = 0x1C
_DECIMALS: Final = ((9, 4, 0x20), (18, 8, 0x24), (38, 16, 0x28))  # digits, bytes, head
_DIGITS_MAX: Final = 38
_LONG_TEXT: Final = struct.Struct("<BI")
_LONG_TEXT_HEAD: Final = 0x40
_SHORT_TEXT_MAX: Final = 63
_NUMBER_MAX: Final = 2 * _DIGITS_MAX
"""Characters: a longer number has too many digits before its point or behind it."""
_KNOWN_NAMES: Final = 256

_Value = Any
"""What JSON says: a tuple of pairs is an object, a list an array, bytes a number that is encoded already."""


class VariantError(ValueError):
    """A variant cannot hold this JSON."""


def variant_of(text: str) -> tuple[bytes, bytes]:
    """Return the value and the names of a text that is JSON. VariantError: no variant can hold it."""
    names: dict[str, int] = {}
    try:
        value = _encoded(_JSON.decode(text), names)
        _size(len(value))
        return value, _metadata(tuple(names))
    except RecursionError:
        raise VariantError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise VariantError("half a pair of surrogates is no character") from None
    except VariantError:
        raise
    except ValueError:
        raise VariantError("a number has thousands of digits") from None


def _encoded(value: _Value, names: dict[str, int]) -> bytes:
    """Return a value; the names of its fields are numbered as they come."""
    kind = type(value)
    if kind is str:
        return _text(value)
    if kind is int:
        return _int(value)
    if kind is tuple:
        return _object(value, names)
    if kind is bytes:
        encoded: bytes = value
        return encoded
    if kind is list:
        return _array([_encoded(element, names) for element in value])
    return _NULL if value is None else _TRUE if value else _FALSE


def _text(text: str) -> bytes:
    data = text.encode("utf-8")
    if len(data) <= _SHORT_TEXT_MAX:
        return b"%c%b" % (len(data) << 2 | 1, data)
    return _LONG_TEXT.pack(_LONG_TEXT_HEAD, len(data)) + data


def _int(number: int) -> bytes:
    bits = (number if number >= 0 else ~number).bit_length()
    for size, head in _INTS:
        if bits < 8 * size:
            return b"%c%b" % (head, number.to_bytes(size, "little", signed=True))
    if abs(number) < 10**_DIGITS_MAX:
        return _decimal(number, 0)
    try:
        return _DOUBLE.pack(_DOUBLE_HEAD, float(number))
    except OverflowError:
        return _DOUBLE.pack(_DOUBLE_HEAD, float("-inf" if number < 0 else "inf"))


def _number(text: str) -> bytes:
    """Return a number with a point or an exponent."""
    whole, _, fraction = text.partition(".")
    if fraction.isdecimal() and len(fraction) <= _DIGITS_MAX and len(text) <= _NUMBER_MAX:
        unscaled = int(whole + fraction)
        if abs(unscaled) < 10**_DIGITS_MAX:
            return _decimal(unscaled, len(fraction))
    return _DOUBLE.pack(_DOUBLE_HEAD, float(text))


def _decimal(unscaled: int, scale: int) -> bytes:
    size, head = next(
        (size, head)
        for digits, size, head in _DECIMALS
        if scale <= digits and abs(unscaled) < 10**digits
    )
    return b"%c%c%b" % (head, scale, unscaled.to_bytes(size, "little", signed=True))


def _object(pairs: tuple[tuple[str, _Value], ...], names: dict[str, int]) -> bytes:
    numbers: list[int] = []
    starts: list[int] = []
    values: list[bytes] = []
    at = 0
    for name, value in pairs:
        numbers.append(names.setdefault(name, len(names)))
        starts.append(at)
        encoded = _encoded(value, names)
        values.append(encoded)
        at += len(encoded)
    order = _order(tuple([name for name, _ in pairs]))
    number_size, start_size = _size(max(numbers, default=0)), _size(at)
    count, large = _count(len(pairs))
    kind = large << 6 | (number_size - 1) << 4 | (start_size - 1) << 2 | _OBJECT
    ids = _uints([numbers[index] for index in order], number_size)
    places = _uints([*[starts[index] for index in order], at], start_size)
    return b"".join((bytes((kind,)), count, ids, places, *values))


@lru_cache(maxsize=_KNOWN_NAMES)
def _order(names: tuple[str, ...]) -> list[int]:
    """Return where each field of an object is: they are sorted as Java sorts, by units of UTF-16."""
    texts = [name.encode("utf-16-be") for name in names]
    order = sorted(range(len(names)), key=texts.__getitem__)
    for before, behind in pairwise(order):
        if texts[before] == texts[behind]:
            raise VariantError(f"the field {names[before]!r} is there twice")
    return order


def _array(values: list[bytes]) -> bytes:
    starts = [0]
    for value in values:
        starts.append(starts[-1] + len(value))
    start_size = _size(starts[-1])
    count, large = _count(len(values))
    kind = large << 4 | (start_size - 1) << 2 | _ARRAY
    return b"".join((bytes((kind,)), count, _uints(starts, start_size), *values))


@lru_cache(maxsize=_KNOWN_NAMES)
def _metadata(names: tuple[str, ...]) -> bytes:
    """Return the piece with the names; messages of one kind have the same."""
    texts = [name.encode("utf-8") for name in names]
    starts = [0]
    for text in texts:
        starts.append(starts[-1] + len(text))
    size = _size(max(starts[-1], len(texts)))
    head = bytes((1 | (size - 1) << 6,)) + len(texts).to_bytes(size, "little")
    return b"".join((head, _uints(starts, size), *texts))


def _count(number: int) -> tuple[bytes, int]:
    """Return how many elements there are, and whether that takes four bytes."""
    if number <= 0xFF:
        return bytes((number,)), 0
    return number.to_bytes(4, "little"), 1


def _size(number: int) -> int:
    if number > BYTES_MAX:
        raise VariantError(f"it is longer than {BYTES_MAX} bytes")
    return 1 if number <= 0xFF else 2 if number <= 0xFFFF else 3


def _uints(numbers: Sequence[int], size: int) -> bytes:
    if size == 1:
        return bytes(numbers)
    return b"".join([number.to_bytes(size, "little") for number in numbers])


_JSON: Final = json.JSONDecoder(object_pairs_hook=tuple, parse_float=_number)
