"""Messages of retry topics: how one gets there, and how it looks to who pops it."""

from dataclasses import replace

from orbitmq.errors import FormatError
from orbitmq.format.properties import encode_properties
from orbitmq.format.record import Record, decode_record, encode_record
from orbitmq.message import PROPERTY_SEPARATOR, AppendRequest, Host, Property, SysFlag
from orbitmq.wire.receipt import Receipt

FIRST_POP_TIME = "1ST_POP_TIME"
_HOST_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_END = PROPERTY_SEPARATOR.encode()


def as_of_topic(raw: bytes | memoryview, topic: str, receipt: Receipt) -> bytes | memoryview:
    """Return the record as one of another topic, with its receipt in its properties."""
    record = decode_record(raw)
    properties = record.properties
    if Property.POP_CK not in record.property_map:
        gap = b"" if not properties or properties.endswith(_END) else _END
        properties += gap + encode_properties({Property.POP_CK: receipt.text})
    request = replace(record.to_request(), topic=topic, properties=properties)
    try:
        return encode_record(
            request,
            log_offset=record.log_offset,
            queue_offset=receipt.offset,
            store_ms=record.store_ms,
            store_host=record.store_host,
        )
    except FormatError:
        return raw  # no room for a receipt: the consumer makes it of the answer's offsets


def retry_of(record: Record, topic: str, pop_ms: int, host: Host) -> AppendRequest:
    """Return the append that puts a message into a retry topic, because its invisible time is over."""
    properties = record.property_map
    if not record.reconsume_times or FIRST_POP_TIME not in properties:
        properties[FIRST_POP_TIME] = str(pop_ms)
    return AppendRequest(
        topic,
        0,
        record.body,
        encode_properties(properties),
        record.flag,
        record.sys_flag & ~_HOST_BITS,
        record.born_ms,
        host,
        reconsume_times=record.reconsume_times + 1,
        due=True,
    )
