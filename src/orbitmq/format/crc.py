"""The checksum of records: CRC-32 (as in zlib) without its highest bit, so that it is never negative."""

from typing import Any, Final

try:
    from zlib_ng.zlib_ng import crc32
except ImportError:  # PyPy and platforms without a wheel
    from zlib import crc32

__all__ = ["CRC_MASK", "crc32", "full_crc32", "masked_crc32"]

CRC_MASK: Final = 0x7FFFFFFF


def masked_crc32(buffer: Any) -> int:
    """Return the CRC-32 of a bytes-like object with the sign bit cleared; 0 for no bytes."""
    checksum: int = crc32(buffer) & CRC_MASK
    return checksum


def full_crc32(data: Any) -> int:
    """Return the whole unsigned CRC-32, as OrbitMQ's own files carry it."""
    checksum: int = crc32(data)
    return checksum
