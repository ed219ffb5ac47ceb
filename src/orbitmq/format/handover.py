"""Two small files of a store whose dispatch a Spark job does: how far it may go, and how far it is.

Big-endian. RocketMQ ignores both.

Layout of SHOWN, 40 bytes; the store writes it in place:

at | size | type  | field       | RocketMQ name | meaning
 0 |    8 | bytes | magic       |               | the characters `ORBITSH1`
 8 |    8 | i64   | epoch       |               | of the store's opening
16 |    8 | i64   | log_offset  |               | the job may read the log up to here
24 |    8 | i64   | told_ms     |               | when the store said so
32 |    4 | i32   | closed      |               | 1: the store was closed, and there is no more
36 |    4 | u32   | crc         |               | CRC-32 of all before it

Layout of DONE, 92 bytes; the job replaces it after each batch:

at | size | type  | field        | RocketMQ name | meaning
 0 |    8 | bytes | magic        |               | the characters `ORBITDN1`
 8 |    8 | i64   | epoch        |               | of the opening that the job works for
16 |    8 | i64   | log_offset   |               | every record before it is in queues and index, on disk
24 |   20 | bytes | index_name   |               | of the last index file, then zeros; all zeros: no file
44 |   40 | bytes | index_header |               | that file's header at this moment
84 |    4 | i32   | reserved     |               | 0
88 |    4 | u32   | crc          |               | CRC-32 of all before it
"""

import struct
from dataclasses import dataclass, field
from typing import Final

from orbitmq.errors import FormatError
from orbitmq.format.crc import full_crc32
from orbitmq.format.index_file import IndexHeader, decode_header
from orbitmq.format.segment_name import is_index_file_name

SHOWN: Final = struct.Struct(">8sqqqiI")
SHOWN_BYTES: Final = 40
assert SHOWN.size == SHOWN_BYTES
SHOWN_MAGIC: Final = b"ORBITSH1"
DONE: Final = struct.Struct(">8sqq20s40siI")
DONE_BYTES: Final = 92
assert DONE.size == DONE_BYTES
DONE_MAGIC: Final = b"ORBITDN1"

_CRC_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class ReadableOffset:
    """How far the log may be read, as the store says."""

    epoch: int
    log_offset: int
    told_ms: int
    closed: bool = False

    def encode(self) -> bytes:
        values = (self.epoch, self.log_offset, self.told_ms, int(self.closed))
        return _signed(SHOWN.pack(SHOWN_MAGIC, *values, 0))


@dataclass(frozen=True, slots=True)
class DispatchedOffset:
    """How far queues and index are, as the job says. `index_name` is empty while there is no file."""

    epoch: int
    log_offset: int
    index_name: str = ""
    index_header: IndexHeader = field(default_factory=IndexHeader)

    def encode(self) -> bytes:
        values = (self.epoch, self.log_offset, self.index_name.encode(), self.index_header.encode())
        return _signed(DONE.pack(DONE_MAGIC, *values, 0, 0))


def decode_readable_offset(data: bytes) -> ReadableOffset:
    """Return what a store told; FormatError if it was not read whole."""
    _check(data, SHOWN_BYTES, SHOWN_MAGIC)
    _, epoch, log_offset, told_ms, closed, _ = SHOWN.unpack(data)
    if log_offset < 0:
        raise FormatError(f"log offset {log_offset}", 16)
    return ReadableOffset(epoch, log_offset, told_ms, bool(closed))


def decode_dispatched_offset(data: bytes) -> DispatchedOffset:
    """Return what a job told; FormatError if that is none of it."""
    _check(data, DONE_BYTES, DONE_MAGIC)
    _, epoch, log_offset, raw_name, raw_header, _, _ = DONE.unpack(data)
    name = raw_name.rstrip(b"\0").decode("ascii", "replace")
    if log_offset < 0 or (name and not is_index_file_name(name)):
        raise FormatError(f"log offset {log_offset}, index file {name!r}", 16)
    header = decode_header(raw_header) if name else IndexHeader()
    return DispatchedOffset(epoch, log_offset, name, header)


def _signed(unsigned: bytes) -> bytes:
    body = unsigned[:-_CRC_BYTES]
    return body + full_crc32(body).to_bytes(_CRC_BYTES, "big")


def _check(data: bytes, length: int, magic: bytes) -> None:
    if len(data) != length or not data.startswith(magic):
        raise FormatError(f"{len(data)} bytes that do not start with {magic!r}")
    body = data[:-_CRC_BYTES]
    if full_crc32(body) != int.from_bytes(data[-_CRC_BYTES:], "big"):
        raise FormatError("the CRC is wrong", len(body))
