"""The checkpoint page: how far each part of a store is known to be on disk, big-endian, 4096 bytes.

Layout of FIELDS, 40 bytes:

at | size | type | field                 | RocketMQ name       | meaning
 0 |    8 | i64  | physic_ms             | physicMsgTimestamp  | newest flushed record
 8 |    8 | i64  | logics_ms             | logicsMsgTimestamp  | newest record with a flushed queue unit
16 |    8 | i64  | index_ms              | indexMsgTimestamp   | end of the newest full, flushed index file
24 |    8 | i64  | master_flushed_offset | masterFlushedOffset | since 5.0
32 |    8 | i64  | confirm_offset        | confirmPhyOffset    | since 5.1.1; 0 does not mean "nothing"

Layout of EXTENSION, 44 bytes from byte 256 on, OrbitMQ's own:

at | size | type  | field             | RocketMQ name | meaning
 0 |    8 | bytes | magic             |               | the characters `ORBITMQ1`
 8 |    8 | i64   | generation        |               | of the snapshot that was written before
16 |    8 | i64   | dispatched_offset |               | queues and index are on disk up to here
24 |    8 | i64   | log_end           |               | written offset known at that moment
32 |    8 | i64   | own_from          |               | all records from this log offset on are OrbitMQ's
40 |    4 | u32   | crc               |               | CRC-32 of FIELDS and the 40 bytes before it

RocketMQ rewrites FIELDS and leaves the rest alone, so a right CRC proves that nobody but OrbitMQ wrote
the store since. Both lie in one sector of 512 bytes, so a power cut does not part them.
"""

import struct
from dataclasses import dataclass
from typing import Any, Final

from orbitmq.errors import FormatError
from orbitmq.format.crc import full_crc32

CHECKPOINT_BYTES: Final = 4096
FIELDS: Final = struct.Struct(">qqqqq")
assert FIELDS.size == 40
EXTENSION: Final = struct.Struct(">8sqqqqI")
assert EXTENSION.size == 44
EXTENSION_AT: Final = 256
EXTENSION_MAGIC: Final = b"ORBITMQ1"

_CRC_BYTES: Final = 4
_ABSENT: Final = b""


@dataclass(frozen=True, slots=True)
class Extension:
    """What OrbitMQ adds: how far queues and index follow the log."""

    generation: int
    dispatched_offset: int
    log_end: int
    own_from: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The values of the page. `extension` is None unless OrbitMQ was the last to write it."""

    physic_ms: int = 0
    logics_ms: int = 0
    index_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0
    extension: Extension | None = None


def encode(checkpoint: Checkpoint) -> bytes:
    """Return the whole page."""
    try:
        fields = FIELDS.pack(
            checkpoint.physic_ms,
            checkpoint.logics_ms,
            checkpoint.index_ms,
            checkpoint.master_flushed_offset,
            checkpoint.confirm_offset,
        )
        extension = _encode_extension(fields, checkpoint.extension)
    except struct.error as exc:
        raise FormatError(f"a value does not fit the checkpoint: {exc}") from exc
    page = fields.ljust(EXTENSION_AT, b"\0") + extension
    return page.ljust(CHECKPOINT_BYTES, b"\0")


def _encode_extension(fields: bytes, extension: Extension | None) -> bytes:
    if extension is None:
        return _ABSENT
    unsigned = EXTENSION.pack(
        EXTENSION_MAGIC,
        extension.generation,
        extension.dispatched_offset,
        extension.log_end,
        extension.own_from,
        0,
    )[:-_CRC_BYTES]
    return unsigned + full_crc32(fields + unsigned).to_bytes(_CRC_BYTES, "big")


def decode(page: Any) -> Checkpoint:
    """Return the values of a page; FormatError if it is too short to be one."""
    if len(page) < CHECKPOINT_BYTES:
        raise FormatError(f"a checkpoint has {CHECKPOINT_BYTES} bytes, not {len(page)}", len(page))
    physic_ms, logics_ms, index_ms, master_flushed_offset, confirm_offset = FIELDS.unpack_from(page)
    return Checkpoint(
        physic_ms,
        logics_ms,
        index_ms,
        master_flushed_offset,
        confirm_offset,
        extension=_decode_extension(page),
    )


def _decode_extension(page: Any) -> Extension | None:
    magic, generation, dispatched, log_end, own_from, crc = EXTENSION.unpack_from(
        page, EXTENSION_AT
    )
    if magic != EXTENSION_MAGIC:
        return None
    crc_at = EXTENSION_AT + EXTENSION.size - _CRC_BYTES
    if full_crc32(bytes(page[: FIELDS.size]) + bytes(page[EXTENSION_AT:crc_at])) != crc:
        return None
    return Extension(generation, dispatched, log_end, own_from)
