"""The file `orbitmq.snapshot`: where every queue and index file stood at one dispatched offset.

Big-endian: the head, the queue rows, the length of each topic name (u16), the topic names without a
gap, the index rows, and a CRC-32 (u32) of all that. RocketMQ ignores the file.

Layout of HEAD, 48 bytes:

at | size | type  | field             | RocketMQ name | meaning
 0 |    8 | bytes | magic             |               | the characters `ORBITSN1`
 8 |    8 | i64   | generation        |               | grows with every snapshot
16 |    8 | i64   | dispatched_offset |               | every record before it is in queues and index
24 |    4 | u32   | queue_count       |               |
28 |    4 | u32   | topic_count       |               |
32 |    4 | u32   | topic_bytes       |               | all names together
36 |    4 | u32   | index_count       |               |
40 |    8 | i64   | reserved          |               | 0

Layout of QUEUE_ROW, 44 bytes:

at | size | type | field          | RocketMQ name  | meaning
 0 |    4 | i32  | topic_no       |                | number of the topic's name, from 0
 4 |    4 | i32  | queue_id       | queueId        |
 8 |    4 | i32  | kind           |                | QueueKind
12 |    8 | i64  | min_offset     | minOffset      | first queue offset that is still there
20 |    8 | i64  | next_offset    | maxOffset      | queue offset of the next message
28 |    8 | i64  | end_log_offset | maxPhysicOffset | end of the last record with a unit
36 |    8 | i64  | ext_end        |                | end of the queue's ext files; -1: none

Layout of INDEX_ROW, 29 bytes:

at | size | type  | field          | RocketMQ name | meaning
 0 |   17 | bytes | name           |               | of the file
17 |    4 | i32   | next_item      | indexCount    |
21 |    8 | i64   | end_log_offset | endPhyOffset  | of the last entry's record
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.format.crc import full_crc32
from orbitmq.format.segment_name import is_index_file_name

MAGIC: Final = b"ORBITSN1"
HEAD: Final = struct.Struct(">8sqqIIIIq")
assert HEAD.size == 48
QUEUE_ROW: Final = np.dtype(
    [
        ("topic_no", ">i4"),
        ("queue_id", ">i4"),
        ("kind", ">i4"),
        ("min_offset", ">i8"),
        ("next_offset", ">i8"),
        ("end_log_offset", ">i8"),
        ("ext_end", ">i8"),
    ]
)
assert QUEUE_ROW.itemsize == 44
INDEX_ROW: Final = struct.Struct(">17siq")
assert INDEX_ROW.size == 29
NO_EXT: Final = -1

_CRC: Final = struct.Struct(">I")
_NAME_LENGTH: Final = np.dtype(">u2")


class QueueKind(IntEnum):
    """Which files a queue has."""

    SIMPLE = 0
    BATCH = 1


class QueueState(NamedTuple):
    """One queue at the moment of the snapshot."""

    kind: QueueKind
    topic: str
    queue_id: int
    min_offset: int
    next_offset: int
    end_log_offset: int
    ext_end: int = NO_EXT


class IndexState(NamedTuple):
    """One index file at the moment of the snapshot."""

    name: str
    next_item: int
    end_log_offset: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that recovery needs to take queues and index as they are."""

    generation: int
    dispatched_offset: int
    queues: Sequence[QueueState] = ()
    index_files: Sequence[IndexState] = ()


def encode_rows(
    generation: int,
    dispatched_offset: int,
    rows: npt.NDArray[np.void],
    topics: Sequence[str],
    index_files: Sequence[IndexState] = (),
) -> bytes:
    """Return the bytes of a snapshot. Its queues are rows of QUEUE_ROW: there may be 80 000 of them.

    `topics[row.topic_no]` is a row's topic.
    """
    assert rows.dtype == QUEUE_ROW
    try:
        names = [topic.encode() for topic in topics]
        lengths = [len(name) for name in names]
        counts = (len(rows), len(names), sum(lengths), len(index_files))
        parts = (
            HEAD.pack(MAGIC, generation, dispatched_offset, *counts, 0),
            rows.tobytes(),
            np.array(lengths, dtype=_NAME_LENGTH).tobytes(),
            b"".join(names),
            b"".join(_encode_index(state) for state in index_files),
        )
    except (struct.error, OverflowError, UnicodeEncodeError) as exc:
        raise FormatError(f"a value does not fit the snapshot: {exc}") from exc
    content = b"".join(parts)
    return content + _CRC.pack(full_crc32(content))


def _encode_index(state: IndexState) -> bytes:
    if not is_index_file_name(state.name):
        raise FormatError(f"{state.name!r} is not the name of an index file")
    return INDEX_ROW.pack(state.name.encode(), state.next_item, state.end_log_offset)


def decode(data: bytes) -> Snapshot:
    """Return the snapshot in these bytes; FormatError for anything else."""
    if len(data) < HEAD.size + _CRC.size:
        raise FormatError(f"{len(data)} bytes are too few for a snapshot", len(data))
    magic, generation, dispatched, queues, topics, topic_bytes, indexes, _ = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise FormatError("not a snapshot")
    sizes = (
        HEAD.size,
        queues * QUEUE_ROW.itemsize,
        topics * _NAME_LENGTH.itemsize,
        topic_bytes,
        indexes * INDEX_ROW.size,
    )
    if sum(sizes) + _CRC.size != len(data):
        raise FormatError(f"snapshot of {len(data)} bytes says {sum(sizes) + _CRC.size}", 24)
    content = memoryview(data)[: -_CRC.size]
    if full_crc32(content) != _CRC.unpack_from(data, len(content))[0]:
        raise FormatError("snapshot does not match its CRC", len(content))
    at = tuple(accumulate(sizes))
    names = _decode_names(data[at[1] : at[3]], topics)
    return Snapshot(
        generation=generation,
        dispatched_offset=dispatched,
        queues=_decode_queues(np.frombuffer(data, QUEUE_ROW, queues, at[0]), names),
        index_files=_decode_indexes(INDEX_ROW.iter_unpack(data[at[3] : at[4]])),
    )


def _decode_names(data: bytes, count: int) -> list[str]:
    lengths = np.frombuffer(data, _NAME_LENGTH, count)
    start = lengths.nbytes
    ends = np.cumsum(lengths, dtype=np.int64) + start
    if start + int(lengths.sum(dtype=np.int64)) != len(data):
        raise FormatError("lengths of the topic names do not add up")
    try:
        return [data[begin:end].decode() for begin, end in pairwise([start, *ends.tolist()])]
    except UnicodeDecodeError as exc:
        raise FormatError("a topic name of the snapshot is not UTF-8") from exc


def _decode_queues(rows: npt.NDArray[np.void], names: list[str]) -> list[QueueState]:
    topic_no, kind = rows["topic_no"], rows["kind"]
    if np.any((topic_no < 0) | (topic_no >= len(names))):
        raise FormatError("a queue of the snapshot has no topic name")
    if np.any((kind < 0) | (kind >= len(QueueKind))):
        raise FormatError("a queue of the snapshot is of an unknown kind")
    kinds = tuple(QueueKind)
    return [
        QueueState(kinds[kind_no], names[number], *rest)
        for number, kind_no, *rest in rows[["topic_no", "kind", *QueueState._fields[2:]]].tolist()
    ]


def _decode_indexes(rows: Iterable[tuple[bytes, int, int]]) -> list[IndexState]:
    states = [IndexState(name.decode("latin-1"), *rest) for name, *rest in rows]
    for state in states:
        if not is_index_file_name(state.name):
            raise FormatError(f"{state.name!r} in the snapshot is not the name of an index file")
    return states
