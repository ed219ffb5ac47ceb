"""Filler: a valid record that stands where a damaged one was, of exactly the wanted size.

It keeps topic, queue id and queue offset of the lost record, so that every later unit of that queue
keeps its place also when a Java broker rebuilds the queue. Its body is zeros and its property
ORBITMQ_FILLER is 1; OrbitMQ's readers skip it.
"""

from collections.abc import Mapping

from orbitmq.errors import FormatError
from orbitmq.format.properties import encode_properties
from orbitmq.format.property_crc import CRC_TAIL_BYTES
from orbitmq.format.record import encode_record, record_size, topic_version
from orbitmq.message import LOOPBACK, AppendRequest, Host, Property


def encode_filler(
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    log_offset: int,
    size: int,
    store_ms: int,
    *,
    sys_flag: int = 0,
    host: Host = LOOPBACK,
    more_properties: Mapping[str, str] | None = None,
    property_crc: bool = False,
) -> bytes:
    """Return a filler of `size` bytes.

    `sys_flag` keeps the transaction type of a lost half message, which has no queue unit.
    `more_properties` keeps INNER_BASE and INNER_NUM of a lost inner batch. FormatError if the size is
    smaller than `filler_bytes_min`, or the topic is none.
    """
    least = filler_bytes_min(topic, more_properties=more_properties, property_crc=property_crc)
    if size < least:
        raise FormatError(f"a filler for this topic needs {least} bytes, not {size}")
    request = AppendRequest(
        topic=_decoded(topic),
        queue_id=queue_id,
        body=bytes(size - least),
        properties=_properties(more_properties),
        sys_flag=sys_flag,
        born_ms=store_ms,
        born_host=LOOPBACK,
    )
    record = encode_record(
        request,
        log_offset=log_offset,
        queue_offset=queue_offset,
        store_ms=store_ms,
        store_host=host,
        property_crc=property_crc,
    )
    assert len(record) == size
    return record


def filler_bytes_min(
    topic: bytes,
    *,
    more_properties: Mapping[str, str] | None = None,
    property_crc: bool = False,
) -> int:
    """Return the size of the smallest filler of this topic: one with an empty body."""
    properties = len(_properties(more_properties)) + (CRC_TAIL_BYTES if property_crc else 0)
    return record_size(0, len(topic), properties, version=topic_version(topic))


def _properties(more: Mapping[str, str] | None) -> bytes:
    return encode_properties({Property.FILLER: "1", **(more or {})})


def _decoded(topic: bytes) -> str:
    try:
        return topic.decode()
    except UnicodeDecodeError as exc:
        raise FormatError(f"topic {topic[:40]!r} is not UTF-8: {exc.reason}", exc.start) from exc
