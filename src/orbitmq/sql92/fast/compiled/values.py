"""Read the values of properties as Java does, compiled. What is rare, or no ASCII, is left to Python."""

from typing import Final

import numpy as np

from orbitmq.format.compiled.jit import helper
from orbitmq.format.compiled.text import parse_number, same_bytes
from orbitmq.sql92.fast.program import ASK, ERROR, TRUE

_EXACT: Final = np.int64(1 << 53)  # up to here every integer is a double
_POWER_MAX: Final = 22  # and up to here every power of ten
_POWERS: Final = np.array([float(10**exponent) for exponent in range(_POWER_MAX + 1)])
_EXPONENT_MAX: Final = 1000  # of digits that are read; greater ones are left to Python
_TRUE_WORD: Final = np.frombuffer(b"true", dtype=np.uint8)


@helper
def is_ascii(buffer, at, end):
    for index in range(at, end):  # noqa: SIM110 - a loop is what compiles well
        if buffer[index] >= 0x80:
            return False
    return True


@helper
def is_true(buffer, at, end):
    """Return whether a value is `true`, in letters of any case."""
    if end - at != len(_TRUE_WORD):
        return False
    for index in range(len(_TRUE_WORD)):  # noqa: SIM110 - a loop is what compiles well
        if buffer[at + index] | 0x20 != _TRUE_WORD[index]:
            return False
    return True


@helper
def read_integer(buffer, at, end, bits):
    """Return TRUE and the integer, or ERROR or ASK."""
    valid, number = parse_number(buffer, at, end, bits)
    if valid:
        return TRUE, number
    # Digits of other scripts are digits for Java.
    return (ERROR if is_ascii(buffer, at, end) else ASK), np.int64(0)


@helper
def _is_digit(byte):
    return byte >= 0x30 and byte <= 0x39


@helper
def read_double(buffer, at, end):
    """Return TRUE and the double, or ERROR or ASK.

    A double is exact if its digits are an exact integer, multiplied or divided by an exact power of ten:
    then there is one rounding, as in any right conversion (Clinger).
    """
    if not is_ascii(buffer, at, end):
        return ASK, 0.0
    while at < end and buffer[at] <= 0x20:
        at += 1
    while at < end and buffer[end - 1] <= 0x20:
        end -= 1
    negative = at < end and buffer[at] == 0x2D
    if at < end and (negative or buffer[at] == 0x2B):
        at += 1
    if at < end and (buffer[at] == 0x4E or buffer[at] == 0x49):  # NaN, Infinity
        return ASK, 0.0
    if end - at > 1 and buffer[at] == 0x30 and buffer[at + 1] | 0x20 == 0x78:  # 0x
        return ASK, 0.0
    digits, exponent, mantissa = 0, 0, np.int64(0)
    fraction = False
    while at < end and (_is_digit(buffer[at]) or (buffer[at] == 0x2E and not fraction)):
        if buffer[at] == 0x2E:
            fraction = True
        else:
            mantissa = mantissa * 10 + np.int64(buffer[at] - 0x30)
            if mantissa > _EXACT:
                return ASK, 0.0
            digits += 1
            exponent -= fraction
        at += 1
    if digits == 0:
        return ERROR, 0.0
    if at < end and buffer[at] | 0x20 == 0x65:  # e
        at += 1
        downwards = at < end and buffer[at] == 0x2D
        if at < end and (downwards or buffer[at] == 0x2B):
            at += 1
        first, given = at, 0
        while at < end and _is_digit(buffer[at]):
            given = min(given * 10 + np.int64(buffer[at] - 0x30), _EXPONENT_MAX)
            at += 1
        if at == first:
            return ERROR, 0.0
        exponent += -given if downwards else given
    if at < end and (buffer[at] | 0x20 == 0x66 or buffer[at] | 0x20 == 0x64):  # f, d
        at += 1
    if at < end:
        return ERROR, 0.0
    if exponent < -_POWER_MAX or exponent > _POWER_MAX:
        return ASK, 0.0
    value = np.float64(mantissa)
    value = value * _POWERS[exponent] if exponent >= 0 else value / _POWERS[-exponent]
    return TRUE, -value if negative else value


@helper
def contains(buffer, at, end, data, borders, text_at, length):
    """Return whether a text is part of a value; each byte of the value is looked at once."""
    if length > end - at:
        return False
    found = 0
    for index in range(at, end):
        while found > 0 and buffer[index] != data[text_at + found]:
            found = borders[text_at + found - 1]
        if buffer[index] == data[text_at + found]:
            found += 1
        if found == length:
            return True
    return False


@helper
def is_text(buffer, at, end, data, text_at, length):
    return end - at == length and same_bytes(buffer, at, data, text_at, length)
