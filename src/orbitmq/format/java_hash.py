"""Java's String.hashCode, which RocketMQ uses for tags, index keys and the order of properties."""

from functools import lru_cache
from typing import Final

INT_MIN: Final = -(2**31)
_SHORT: Final = 64


@lru_cache(maxsize=8192)
def java_hash(text: str) -> int:
    """Return the signed 32-bit hash: h = 31 * h + c over the UTF-16 code units, from 0.

    A character outside the basic plane counts as its two surrogates, so the hash is not one of bytes.
    """
    value = 0
    if text.isascii() and len(text) <= _SHORT:
        # The sum may grow to a few machine words: still cheaper than cutting it at every step.
        for unit in text.encode():
            value = 31 * value + unit
        value &= 0xFFFFFFFF
        return value - 0x1_0000_0000 if value & 0x8000_0000 else value
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value
