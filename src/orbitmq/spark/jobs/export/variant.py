"""JSON as Parquet's variant: two byte strings that hold any value with its names and types.

`metadata` has the names of all fields, `value` refers to them by number (parquet-format, VariantEncoding.md).
PySpark has an encoder of its own (`VariantVal.parseJson`), which this one equals byte for byte in half the
time; a task waits for little else.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec

BYTES_MAX: Final = 2**24 - 1
"""Of either part: Spark up to 4.0 reads no longer ones."""
_DIGITS_MAX: Final = 38
_SHORT_BYTES: Final = 63
_NULL, _TRUE, _FALSE = b"\x00", b"\x04", b"\x08"
_DOUBLE: Final = struct.Struct("<Bd")
_INTS: Final = (  # limit, its form, and the first byte
    (2**7, struct.Struct("<Bb"), 3 << 2),
    (2**15, struct.Struct("<Bh"), 4 << 2),
    (2**31, struct.Struct("<Bi"), 5 << 2),
    (2**63, struct.Struct("<Bq"), 6 << 2),
)
_DECIMALS: Final = ((9, 4, 8 << 2), (18, 8, 9 << 2), (38, 16, 10 << 2))  # digits, bytes, first byte


class _Float(str):
    """The text of a number that is no integer: 0.1 stays what it is."""

    __slots__ = ()


_DECODER: Final = msgspec.json.Decoder(float_hook=_Float)


def encoded(body: bytes) -> dict[str, bytes]:
    """Return a text of JSON as a variant. MsgspecError, ValueError: it cannot be one."""
    names: dict[str, int] = {}
    value = _encoded(_DECODER.decode(body), names)
    metadata = _metadata([name.encode() for name in names])
    if max(len(value), len(metadata)) > BYTES_MAX:
        raise ValueError(f"it has more than {BYTES_MAX} bytes as a variant")
    return {"metadata": metadata, "value": value}


def _metadata(names: Sequence[bytes]) -> bytes:
    texts = b"".join(names)
    width = _width(max(len(texts), len(names)))
    ends = [0]
    for name in names:
        ends.append(ends[-1] + len(name))
    head = bytes((1 | (width - 1) << 6,)) + len(names).to_bytes(width, "little")
    return head + _numbers(ends, width) + texts


def _encoded(value: Any, names: dict[str, int]) -> bytes:
    kind = type(value)
    if kind is str:
        return _text(value.encode())
    if kind is int:
        return _integer(value)
    if kind is dict:
        return _object(value, names)
    if kind is list:
        return _array([_encoded(one, names) for one in value])
    if kind is _Float:
        return _fraction(value)
    if value is None:
        return _NULL
    return _TRUE if value else _FALSE


def _text(text: bytes) -> bytes:
    if len(text) <= _SHORT_BYTES:
        return bytes((len(text) << 2 | 1,)) + text
    return b"\x40" + len(text).to_bytes(4, "little") + text


def _integer(value: int) -> bytes:
    for limit, form, first in _INTS:
        if -limit <= value < limit:
            return form.pack(first, value)
    return _fraction(str(value))


def _fraction(text: str) -> bytes:
    """Return a number with all its digits if they are few and none is said by an exponent."""
    whole, _, part = text.partition(".")
    digits = (whole + part).lstrip("-").lstrip("0") or "0"
    if "e" in text or "E" in text or max(len(digits), len(part)) > _DIGITS_MAX:
        return _double(text)
    unscaled = int(whole + part)
    for digits_max, size, first in _DECIMALS:
        if max(len(digits), len(part)) <= digits_max:
            return bytes((first, len(part))) + unscaled.to_bytes(size, "little", signed=True)
    raise AssertionError("the last one takes all")


def _double(text: str) -> bytes:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:20]} is out of range")
    return _DOUBLE.pack(7 << 2, value)


def _array(values: Sequence[bytes]) -> bytes:
    starts, size = _starts(values)
    width = _width(size)
    is_large = len(values) > 0xFF
    head = bytes((is_large << 4 | (width - 1) << 2 | 3,))
    count = len(values).to_bytes(4 if is_large else 1, "little")
    return b"".join((head, count, _numbers([*starts, size], width), *values))


def _object(fields: dict[str, Any], names: dict[str, int]) -> bytes:
    numbers, values = [], []
    for name, value in fields.items():
        numbers.append(names.setdefault(name, len(names)))
        values.append(_encoded(value, names))
    starts, size = _starts(values)
    order = [at for _, at in sorted((name, at) for at, name in enumerate(fields))]
    width, number_width = _width(size), _width(max(numbers, default=0))
    is_large = len(values) > 0xFF
    head = bytes((is_large << 6 | (number_width - 1) << 4 | (width - 1) << 2 | 2,))
    count = len(values).to_bytes(4 if is_large else 1, "little")
    lists = _numbers([numbers[at] for at in order], number_width)
    lists += _numbers([*(starts[at] for at in order), size], width)
    return b"".join((head, count, lists, *values))


def _starts(values: Sequence[bytes]) -> tuple[list[int], int]:
    """Return where each value begins, and how long they are together."""
    starts, end = [], 0
    for value in values:
        starts.append(end)
        end += len(value)
    return starts, end


def _numbers(values: Sequence[int], width: int) -> bytes:
    if width == 1:
        return bytes(values)
    return b"".join(value.to_bytes(width, "little") for value in values)


def _width(largest: int) -> int:
    """Return in how many bytes numbers up to this one fit."""
    if largest <= 0xFF:
        return 1
    if largest <= 0xFFFF:
        return 2
    if largest <= BYTES_MAX:
        return 3
    raise ValueError(f"it has more than {BYTES_MAX} bytes as a variant")
