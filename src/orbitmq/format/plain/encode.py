"""Write the messages of a client batch as records: the reference for `compiled.encode`."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.format.client_batch import iter_client_batch
from orbitmq.format.columns import APPEND, Bytes, Ints
from orbitmq.format.crc import masked_crc32
from orbitmq.format.plain.scan import int64
from orbitmq.format.properties import join_properties
from orbitmq.format.property_crc import CRC_TAIL_BYTES, crc_tail
from orbitmq.format.record import FIXED_BY_HOSTS, MAGIC_V1, MAGIC_V2, record_parts, record_size
from orbitmq.message import PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX, AppendRequest

RECORD_BYTES_MAX: Final = 2**31 - 1


class _Message(NamedTuple):
    """One message of a batch; `properties` are those of its record, without the CRC."""

    flag: int
    body: bytes
    properties: bytes
    size: int  # of its record


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
    """Write the messages of a client batch body as records; return their sizes.

    `common` is one APPEND row with what they share; its queue_offset is the first message's.
    `extra_properties` is added to each message's own (a 0x02 between them if missing).
    Raises FormatError on a broken batch, before the first byte is written.
    """
    shared = one_row(common)[0]
    messages = list(_messages(shared, topic, batch.data, extra_properties, property_crc))
    total = sum(message.size for message in messages)
    if position < 0 or total > len(out) - position:
        raise FormatError(f"{total} bytes of records do not fit behind it", position)
    queue_offset = int(shared["queue_offset"])
    for message in messages:
        record = _encode(shared, topic, message, queue_offset, log_offset, store_ms, property_crc)
        out.data[position : position + message.size] = record
        position += message.size
        log_offset, queue_offset = int64(log_offset + message.size), int64(queue_offset + 1)
    return np.array([message.size for message in messages], dtype=np.int64)


def client_batch_sizes(
    topic: bytes,
    batch: Bytes,
    extra_properties: bytes,
    common: npt.NDArray[np.void],
    *,
    property_crc: bool = False,
) -> Ints:
    """Return the record sizes that `encode_client_batch` would write."""
    shared = one_row(common)[0]
    messages = _messages(shared, topic, batch.data, extra_properties, property_crc)
    return np.array([message.size for message in messages], dtype=np.int64)


def one_row(common: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return an array of the single APPEND row, given as such or alone."""
    rows = np.atleast_1d(np.asarray(common))
    if rows.dtype != APPEND or rows.shape != (1,):
        raise FormatError(f"a batch shares one row of fields, not {rows.shape} of {rows.dtype}")
    return rows


def _messages(
    shared: np.void, topic: bytes, batch: memoryview, extra: bytes, property_crc: bool
) -> Iterator[_Message]:
    # Sizes, magics and CRCs of the messages are not looked at, as the Java broker does not.
    for body, own, flag in iter_client_batch(batch):
        properties = join_properties(own, extra)
        if property_crc and properties and not properties.endswith(b"\x02"):
            properties += b"\x02"
        size = _record_size(shared, body, topic, properties, property_crc)
        yield _Message(flag, body, properties, size)


def _record_size(
    shared: np.void, body: bytes, topic: bytes, properties: bytes, property_crc: bool
) -> int:
    version, sys_flag = int(shared["version"]), int(shared["sys_flag"])
    if version not in (1, 2):
        raise FormatError(f"there is no record version {version}")
    topic_length, topic_max = len(topic), TOPIC_BYTES_MAX if version == 1 else 2**15 - 1
    if topic_length > topic_max:
        raise FormatError(f"a topic of {topic_length} bytes does not fit record version {version}")
    properties_length = len(properties) + (CRC_TAIL_BYTES if property_crc else 0)
    if properties_length > PROPERTIES_BYTES_MAX:
        raise FormatError(f"{properties_length} bytes of properties do not fit a record")
    lengths = len(body), topic_length, properties_length
    size = record_size(*lengths, sys_flag=sys_flag, version=version)
    if size > RECORD_BYTES_MAX:
        raise FormatError(f"a record of {size} bytes is too long")
    return size


def _encode(
    shared: np.void,
    topic: bytes,
    message: _Message,
    queue_offset: int,
    log_offset: int,
    store_ms: int,
    property_crc: bool,
) -> bytes:
    version, sys_flag = int(shared["version"]), int(shared["sys_flag"])
    request = AppendRequest(
        "",
        int(shared["queue_id"]),
        message.body,
        flag=message.flag,
        born_ms=int(shared["born_ms"]),
        reconsume_times=int(shared["reconsume_times"]),
        prepared_offset=int(shared["prepared_offset"]),
    )
    parts = record_parts(
        request,
        FIXED_BY_HOSTS[sys_flag >> 4 & 3],
        message.size,
        MAGIC_V1 if version == 1 else MAGIC_V2,
        sys_flag,
        queue_offset,
        log_offset,
        bytes(shared["born_host"]),  # the struct takes as much of the 20 bytes as the host has
        store_ms,
        bytes(shared["store_host"]),
        len(topic).to_bytes(version, "big") + topic,
        message.properties,
        CRC_TAIL_BYTES if property_crc else 0,
    )
    record = b"".join(parts)
    return record + crc_tail(masked_crc32(record)) if property_crc else record
