"""Write messages as records: the reference for `compiled.encode`."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.format.client_batch import HEAD, HEAD_BYTES
from orbitmq.format.columns import APPEND, Bytes, Ints
from orbitmq.format.crc import masked_crc32
from orbitmq.format.plain.scan import int64
from orbitmq.format.properties import join_properties
from orbitmq.format.property_crc import CRC_TAIL_BYTES, crc_tail
from orbitmq.format.record import FIXED_BY_HOSTS, MAGIC_V1, MAGIC_V2, record_size
from orbitmq.message import PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX

_INT16: Final = struct.Struct(">h")
RECORD_BYTES_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Message:
    """One message with all that its record holds except the place; `properties` without the CRC."""

    fields: np.void
    queue_offset: int
    flag: int
    body: memoryview
    topic: bytes
    properties: bytes


def encode_records(
    out: Bytes,
    position: int,
    log_offset: int,
    store_ms: int,
    fields: npt.NDArray[np.void],
    payload: Bytes,
    *,
    property_crc: bool = False,
) -> Ints:
    messages = list(_messages_of_payload(fields, payload.data, property_crc))
    return _write_all(out, position, log_offset, store_ms, messages, property_crc)


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
    shared = one_row(common)[0]
    messages = list(_messages_of_batch(shared, topic, batch.data, extra_properties, property_crc))
    return _write_all(out, position, log_offset, store_ms, messages, property_crc)


def client_batch_sizes(
    topic: bytes,
    batch: Bytes,
    extra_properties: bytes,
    common: npt.NDArray[np.void],
    *,
    property_crc: bool = False,
) -> Ints:
    shared = one_row(common)[0]
    messages = _messages_of_batch(shared, topic, batch.data, extra_properties, property_crc)
    return np.array([_record_size(message, property_crc) for message in messages], dtype=np.int64)


def one_row(common: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return an array of the single APPEND row, given as such or alone."""
    rows = np.atleast_1d(np.asarray(common))
    if rows.dtype != APPEND or rows.shape != (1,):
        raise FormatError(f"a batch shares one row of fields, not {rows.shape} of {rows.dtype}")
    return rows


def _messages_of_payload(
    fields: npt.NDArray[np.void], payload: memoryview, property_crc: bool
) -> Iterator[_Message]:
    at = 0
    for row in fields:
        body_length, topic_length = int(row["body_length"]), int(row["topic_length"])
        kept = int(row["properties_length"]) - (CRC_TAIL_BYTES if property_crc else 0)
        if min(body_length, topic_length, kept) < 0:
            raise FormatError("a message has a negative length", at)
        topic_at = at + body_length
        properties_at = topic_at + topic_length
        end = properties_at + kept
        if end > len(payload):
            raise FormatError(f"the payload ends inside a message of {end - at} bytes", at)
        yield _Message(
            row,
            int(row["queue_offset"]),
            int(row["flag"]),
            payload[at:topic_at],
            bytes(payload[topic_at:properties_at]),
            bytes(payload[properties_at:end]),
        )
        at = end


def _messages_of_batch(
    shared: np.void, topic: bytes, batch: memoryview, extra: bytes, property_crc: bool
) -> Iterator[_Message]:
    at, queue_offset = 0, int(shared["queue_offset"])
    while at < len(batch):
        flag, body, own, end = _read_batch_message(batch, at)
        properties = join_properties(own, extra)
        if property_crc and properties and not properties.endswith(b"\x02"):
            properties += b"\x02"
        yield _Message(shared, queue_offset, flag, body, topic, properties)
        at, queue_offset = end, int64(queue_offset + 1)


def _read_batch_message(batch: memoryview, at: int) -> tuple[int, memoryview, bytes, int]:
    """Return flag, body, own properties and the end of the batch message at this position.

    Its size, magic and CRC fields are not looked at, as the Java broker does not.
    """
    body_at = at + HEAD_BYTES
    if body_at > len(batch):
        raise FormatError("the batch ends inside a message's header", at)
    *_, flag, body_length = HEAD.unpack_from(batch, at)
    properties_at = body_at + body_length + 2
    if body_length < 0 or properties_at > len(batch):
        raise FormatError(f"the batch cannot hold a body of {body_length} bytes", at)
    (properties_length,) = _INT16.unpack_from(batch, properties_at - 2)
    end = properties_at + properties_length
    if properties_length < 0 or end > len(batch):
        raise FormatError(f"the batch cannot hold {properties_length} bytes of properties", at)
    return flag, batch[body_at : properties_at - 2], bytes(batch[properties_at:end]), end


def _record_size(message: _Message, property_crc: bool) -> int:
    version, sys_flag = int(message.fields["version"]), int(message.fields["sys_flag"])
    if version not in (1, 2):
        raise FormatError(f"there is no record version {version}")
    topic_length, topic_max = len(message.topic), TOPIC_BYTES_MAX if version == 1 else 2**15 - 1
    if topic_length > topic_max:
        raise FormatError(f"a topic of {topic_length} bytes does not fit record version {version}")
    properties_length = len(message.properties) + (CRC_TAIL_BYTES if property_crc else 0)
    if properties_length > PROPERTIES_BYTES_MAX:
        raise FormatError(f"{properties_length} bytes of properties do not fit a record")
    lengths = len(message.body), topic_length, properties_length
    size = record_size(*lengths, sys_flag=sys_flag, version=version)
    if size > RECORD_BYTES_MAX:
        raise FormatError(f"a record of {size} bytes is too long")
    return size


def _write_all(
    out: Bytes,
    position: int,
    log_offset: int,
    store_ms: int,
    messages: list[_Message],
    property_crc: bool,
) -> Ints:
    sizes = [_record_size(message, property_crc) for message in messages]
    if position < 0 or sum(sizes) > len(out) - position:
        raise FormatError(f"{sum(sizes)} bytes of records do not fit behind it", position)
    view = out.data
    for message, size in zip(messages, sizes, strict=True):
        _write_record(view[position : position + size], log_offset, store_ms, message)
        if property_crc:
            covered = size - CRC_TAIL_BYTES
            view[position + covered : position + size] = crc_tail(
                masked_crc32(view[position : position + covered])
            )
        position += size
        log_offset = int64(log_offset + size)
    return np.array(sizes, dtype=np.int64)


def _write_record(view: memoryview, log_offset: int, store_ms: int, message: _Message) -> None:
    """Fill the view with the record, except for the CRC behind the properties."""
    row = message.fields
    version, sys_flag = int(row["version"]), int(row["sys_flag"])
    fixed = FIXED_BY_HOSTS[sys_flag >> 4 & 3]
    fixed.pack_into(
        view,
        0,
        len(view),
        MAGIC_V1 if version == 1 else MAGIC_V2,
        masked_crc32(message.body),
        int(row["queue_id"]),
        message.flag,
        message.queue_offset,
        log_offset,
        sys_flag,
        int(row["born_ms"]),
        bytes(row["born_host"]),  # the struct takes as much of the 20 bytes as the host has
        store_ms,
        bytes(row["store_host"]),
        int(row["reconsume_times"]),
        int(row["prepared_offset"]),
        len(message.body),
    )
    topic_at = fixed.size + len(message.body)
    view[fixed.size : topic_at] = message.body
    properties_length = len(view) - topic_at - version - len(message.topic) - 2
    rest = (
        len(message.topic).to_bytes(version, "big")
        + message.topic
        + _INT16.pack(properties_length)
        + message.properties
    )
    view[topic_at : topic_at + len(rest)] = rest
