"""Write the messages of a client batch as records, compiled. `plain.encode` says what each step means."""

from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.format.client_batch import HEAD_BYTES
from orbitmq.format.columns import APPEND, Bytes, Ints
from orbitmq.format.compiled.arrays import frozen, frozen_rows
from orbitmq.format.compiled.crc import masked_crc32
from orbitmq.format.compiled.jit import helper, kernel
from orbitmq.format.compiled.memory import copy, load_i16, load_i32, store_i16, store_i32
from orbitmq.format.compiled.record import BORN_V6, STORE_V6, host_bytes, write_head, write_topic
from orbitmq.format.plain.encode import RECORD_BYTES_MAX, one_row
from orbitmq.format.property_crc import CRC_TAIL_BYTES
from orbitmq.format.record import BODY_AT, MAGIC_V1, MAGIC_V2
from orbitmq.message import PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX, Property

_FIELDS: Final = np.dtype(  # as APPEND, with hosts that numba knows
    [(name, "(20,)u1" if name.endswith("_host") else APPEND[name]) for name in APPEND.names or ()],
    align=True,
)
assert _FIELDS.itemsize == APPEND.itemsize
_CRC_NAME: Final = np.frombuffer(Property.CRC32.encode() + b"\x01", dtype=np.uint8)
_SEPARATOR: Final = 2
_TOPIC_V2_BYTES_MAX: Final = 2**15 - 1

_BAD_LENGTH, _TOO_SHORT, _BAD_VERSION, _LONG_TOPIC, _LONG_PROPERTIES, _LONG_RECORD = range(1, 7)
_REASONS: Final = {
    _BAD_LENGTH: "a message has a length that cannot be",
    _TOO_SHORT: "the bytes end inside a message",
    _BAD_VERSION: "records have version 1 or 2",
    _LONG_TOPIC: "the topic does not fit the record version",
    _LONG_PROPERTIES: "the properties do not fit a record",
    _LONG_RECORD: "the record is too long",
}


def encode_client_batch(
    out: Bytes,
    position: int,
    log_offset: int,
    store_ms: int,
    common: npt.NDArray[np.void],
    topic: bytes,
    batch: Bytes,
    extra_properties: bytes,
    *,
    property_crc: bool = False,
) -> Ints:
    sizes = client_batch_sizes(topic, batch, extra_properties, common, property_crc=property_crc)
    _require_room(out, position, sizes)
    row = one_row(common)
    _encode_batch(
        out,
        int(position),
        int(log_offset),
        int(store_ms),
        frozen_rows(row, _FIELDS),
        np.frombuffer(_hosts(row[0]), dtype=np.uint8),
        np.frombuffer(topic, dtype=np.uint8),
        frozen(batch),
        np.frombuffer(extra_properties, dtype=np.uint8),
        bool(property_crc),
    )
    return sizes


def client_batch_sizes(
    topic: bytes,
    batch: Bytes,
    extra_properties: bytes,
    common: npt.NDArray[np.void],
    *,
    property_crc: bool = False,
) -> Ints:
    sizes = np.empty(len(batch) // (HEAD_BYTES + 2), dtype=np.int64)
    problem, at, count = _sizes_of_batch(
        frozen_rows(one_row(common), _FIELDS),
        len(topic),
        frozen(batch),
        np.frombuffer(extra_properties, dtype=np.uint8),
        bool(property_crc),
        sizes,
    )
    _require(problem, at)
    return sizes[:count].copy()


def _hosts(row: np.void) -> bytes:
    """Return both hosts, each as long as the flag says."""
    sys_flag = int(row["sys_flag"])
    born_bytes, store_bytes = (20 if sys_flag & bit else 8 for bit in (BORN_V6, STORE_V6))
    return bytes(row["born_host"])[:born_bytes] + bytes(row["store_host"])[:store_bytes]


def _require(problem: int, at: int) -> None:
    if problem:
        raise FormatError(_REASONS[problem], at)


def _require_room(out: Bytes, position: int, sizes: Ints) -> None:
    total = int(sizes.sum())
    if position < 0 or total > len(out) - position:
        raise FormatError(f"{total} bytes of records do not fit behind it", position)


@helper
def _record_size(row, body_length, topic_length, properties_length):
    """Return (problem, size); `properties_length` includes the CRC."""
    if row.version != 1 and row.version != 2:  # noqa: PLR1714
        return _BAD_VERSION, np.int64(0)
    if topic_length > (TOPIC_BYTES_MAX if row.version == 1 else _TOPIC_V2_BYTES_MAX):
        return _LONG_TOPIC, np.int64(0)
    if properties_length > PROPERTIES_BYTES_MAX:
        return _LONG_PROPERTIES, np.int64(0)
    size = _fixed_bytes(row.sys_flag) + body_length + row.version + topic_length + 2
    size += properties_length
    return (_LONG_RECORD if size > RECORD_BYTES_MAX else 0), size


@helper
def _fixed_bytes(sys_flag):
    return BODY_AT - 16 + host_bytes(sys_flag, BORN_V6) + host_bytes(sys_flag, STORE_V6)


@helper
def _read_batch(batch, at, extra, property_crc):
    """Return (problem, body length, own properties length, whether a 0x02 goes behind them, end, all).

    The last is the length of the properties that the record will have, with the CRC.
    """
    nothing = np.int64(0)
    if at + HEAD_BYTES > len(batch):
        return _TOO_SHORT, nothing, nothing, False, nothing, nothing
    body_length = load_i32(batch, at + 16)
    length_at = at + HEAD_BYTES + body_length
    if body_length < 0 or length_at + 2 > len(batch):
        return _BAD_LENGTH, nothing, nothing, False, nothing, nothing
    own = load_i16(batch, length_at)
    end = length_at + 2 + own
    if own < 0 or end > len(batch):
        return _BAD_LENGTH, nothing, nothing, False, nothing, nothing
    followed = len(extra) > 0 or property_crc
    separated = own > 0 and followed and batch[end - 1] != _SEPARATOR
    total = own + (1 if separated else 0) + len(extra)
    if property_crc:
        if len(extra) > 0 and extra[len(extra) - 1] != _SEPARATOR:
            total += 1
        total += CRC_TAIL_BYTES
    return 0, body_length, own, separated, end, total


@kernel
def _sizes_of_batch(common, topic_length, batch, extra, property_crc, sizes):
    at = np.int64(0)
    count = 0
    while at < len(batch):
        problem, body_length, _, _, end, properties_length = _read_batch(
            batch, at, extra, property_crc
        )
        if problem != 0:
            return problem, at, 0
        problem, size = _record_size(common[0], body_length, topic_length, properties_length)
        if problem != 0:
            return problem, at, 0
        sizes[count] = size
        count += 1
        at = end
    return 0, at, count


@kernel
def _encode_batch(
    out, position, log_offset, store_ms, common, hosts, topic, batch, extra, property_crc
):
    row = common[0]
    at = np.int64(0)
    queue_offset = row.queue_offset
    while at < len(batch):
        _, body_length, own, separated, end, properties_length = _read_batch(
            batch, at, extra, property_crc
        )
        flag = load_i32(batch, at + 12)
        body_at = at + HEAD_BYTES
        topic_at = write_head(
            out,
            position,
            MAGIC_V1 if row.version == 1 else MAGIC_V2,
            (log_offset, queue_offset),
            store_ms,
            hosts,
            row,
            row.prepared_offset,
            flag,
            batch,
            body_at,
            body_length,
        )
        place = write_topic(out, topic_at, row.version, topic, 0, len(topic))
        store_i16(out, place - 2, properties_length)
        copy(out, place, batch, end - own, own)
        place += own
        if separated:
            out[place] = _SEPARATOR
            place += 1
        copy(out, place, extra, 0, len(extra))
        place += len(extra)
        if property_crc and len(extra) > 0 and extra[len(extra) - 1] != _SEPARATOR:
            out[place] = _SEPARATOR
            place += 1
        record_end = _write_end(out, position, place, property_crc)
        log_offset += record_end - position
        position = record_end
        queue_offset += 1
        at = end
    return position


@helper
def _write_end(out, start, place, property_crc):
    """Write the size and, if asked for, the CRC over all behind the properties; return the end."""
    end = place + (CRC_TAIL_BYTES if property_crc else 0)
    store_i32(out, start, end - start)
    if property_crc:
        left = masked_crc32(out, start, place)
        copy(out, place, _CRC_NAME, 0, len(_CRC_NAME))
        for index in range(10):
            out[place + len(_CRC_NAME) + index] = 0x30 + left % 10
            left //= 10
        out[end - 1] = _SEPARATOR
    return end
