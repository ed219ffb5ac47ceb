"""Numbers as text, compiled."""

import numpy as np

from orbitmq.format.compiled.jit import helper


@helper
def digits(value):
    """Return how many digits a number has that is not negative."""
    count = 1
    while value >= 10:
        value //= 10
        count += 1
    return count


@helper
def write_number(out, at, value):
    """Write a number that is not negative; return the end."""
    end = at + digits(value)
    for index in range(end - 1, at - 1, -1):
        out[index] = 0x30 + value % 10
        value //= 10
    return end


@helper
def write_hex(out, at, value):
    """Write 16 digits; return the end."""
    for index in range(at + 15, at - 1, -1):
        digit = value & 15
        out[index] = (0x30 if digit < 10 else 0x37) + digit
        value >>= 4
    return at + 16


@helper
def _letter(value):
    """Return the character of URL-safe base64 for six bits."""
    if value < 26:
        return 0x41 + value
    if value < 52:
        return 0x61 + value - 26
    if value < 62:
        return 0x30 + value - 52
    return 0x2D if value == 62 else 0x5F


@helper
def base64_bytes(length):
    return (length + 2) // 3 * 4


@helper
def write_base64(out, at, length):
    """Turn the text that ends where its base64 will end into that; return the end.

    So the text is always ahead of what is written over it.
    """
    end = at + base64_bytes(length)
    source = end - length
    while source < end:
        left = min(end - source, 3)
        bits = np.int64(out[source]) << 16
        if left > 1:
            bits |= np.int64(out[source + 1]) << 8
        if left > 2:
            bits |= np.int64(out[source + 2])
        out[at] = _letter(bits >> 18)
        out[at + 1] = _letter(bits >> 12 & 63)
        out[at + 2] = _letter(bits >> 6 & 63) if left > 1 else 0x3D
        out[at + 3] = _letter(bits & 63) if left > 2 else 0x3D
        source += 3
        at += 4
    return end
