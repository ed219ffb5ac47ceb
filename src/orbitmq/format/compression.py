"""Compression of message bodies: the three kinds that RocketMQ's messages carry.

bits of sys_flag | format
0x1, 0x301       | zlib stream (some senders write gzip: read as well)
0x101            | LZ4 frame
0x201            | Zstandard frame
"""

import zlib
from enum import Enum
from typing import Any, Final

from orbitmq.errors import ConfigError, FormatError
from orbitmq.message import SysFlag
from orbitmq.units import MiB


class Compression(Enum):
    """How long bodies are packed."""

    ZLIB = "ZLIB"
    LZ4 = "LZ4"
    ZSTD = "ZSTD"


COMPRESSED: Final = SysFlag.COMPRESSED.value
TYPE_BITS: Final = SysFlag.COMPRESSION_TYPE.value
FLAGS: Final = {
    Compression.ZLIB: COMPRESSED | 0x300,
    Compression.LZ4: COMPRESSED | 0x100,
    Compression.ZSTD: COMPRESSED | 0x200,
}

BODY_BYTES_MAX: Final = 256 * MiB
"""A body never unpacks to more than this: a few KiB could otherwise fill the memory."""

_ZLIB_OR_GZIP: Final = 15 + 32
_ZSTD_STEP_BYTES: Final = 2048


def compress(body: bytes, kind: Compression, level: int) -> bytes:
    """Return the body as stored. ConfigError: the library for this kind is not installed."""
    packed: bytes
    match kind:
        case Compression.ZLIB:
            packed = zlib.compress(body, level)
        case Compression.LZ4:
            packed = _lz4().compress(body, compression_level=level)
        case Compression.ZSTD:
            packed = _zstd().ZstdCompressor(level=level).compress(body)
    return packed


def decompress(body: bytes, sys_flag: int, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Return the body as the producer had it. FormatError: it is not what the flag says."""
    if not sys_flag & COMPRESSED:
        return body
    try:
        match sys_flag & TYPE_BITS:
            case 0x100:
                return _unpack_lz4(body, bytes_max)
            case 0x200:
                return _unpack_zstd(body, bytes_max)
            case _:
                return _unpack_zlib(body, bytes_max)
    except (FormatError, ConfigError):
        raise
    except Exception as cause:  # each library has an exception of its own
        raise FormatError(f"body cannot be unpacked: {cause}") from cause


def _unpack_zlib(body: bytes, bytes_max: int) -> bytes:
    unpacker = zlib.decompressobj(_ZLIB_OR_GZIP)
    unpacked = unpacker.decompress(body, bytes_max)
    if unpacker.unconsumed_tail:
        raise FormatError(f"body unpacks to more than {bytes_max} bytes")
    if not unpacker.eof:
        raise FormatError("body ends before its zlib stream")
    return unpacked


def _unpack_lz4(body: bytes, bytes_max: int) -> bytes:
    unpacker = _lz4().LZ4FrameDecompressor()
    unpacked: bytes = unpacker.decompress(body, max_length=bytes_max)
    if not unpacker.eof:
        raise FormatError(f"body is no whole LZ4 frame, or unpacks to more than {bytes_max} bytes")
    return unpacked


def _unpack_zstd(body: bytes, bytes_max: int) -> bytes:
    unpacker = _zstd().ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    size = 0
    # In small steps: one step may become 30 000 times as long, and only then can be measured.
    for start in range(0, len(body), _ZSTD_STEP_BYTES):
        part = unpacker.decompress(body[start : start + _ZSTD_STEP_BYTES])
        size += len(part)
        if size > bytes_max:
            raise FormatError(f"body unpacks to more than {bytes_max} bytes")
        parts.append(part)
        if unpacker.eof:
            break
    if not unpacker.eof:
        raise FormatError("body ends before its zstd frame")
    return b"".join(parts)


def _lz4() -> Any:
    try:
        import lz4.frame
    except ImportError:
        raise ConfigError("compression", "LZ4", "needs the package lz4: pip install lz4") from None
    return lz4.frame


def _zstd() -> Any:
    try:
        import zstandard
    except ImportError:
        rule = "needs the package zstandard: pip install zstandard"
        raise ConfigError("compression", "ZSTD", rule) from None
    return zstandard
