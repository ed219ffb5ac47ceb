"""Commit log record: one message as bytes, big-endian.

Layout of FIXED, 88 bytes with IPv4 hosts:

at | size | type  | field           | RocketMQ name             | meaning
 0 |    4 | i32   | size            | TOTALSIZE                 | whole record, this field included
 4 |    4 | i32   | magic           | MAGICCODE                 | version 1: DAA320A7, 2: DAA320AB
 8 |    4 | i32   | body_crc        | BODYCRC                   | masked CRC-32 of the body as stored
12 |    4 | i32   | queue_id        | QUEUEID                   |
16 |    4 | i32   | flag            | FLAG                      | the producer's, never looked at
20 |    8 | i64   | queue_offset    | QUEUEOFFSET               | number of the message in its queue
28 |    8 | i64   | log_offset      | PHYSICALOFFSET            | where this record starts
36 |    4 | i32   | sys_flag        | SYSFLAG                   | bits, see below
40 |    8 | i64   | born_ms         | BORNTIMESTAMP             | the producer's clock
48 |    8 | bytes | born_host       | BORNHOST                  | address, port as i32
56 |    8 | i64   | store_ms        | STORETIMESTAMP            | the store's clock
64 |    8 | bytes | store_host      | STOREHOSTADDRESS          | address, port as i32
72 |    4 | i32   | reconsume_times | RECONSUMETIMES            |
76 |    8 | i64   | prepared_offset | Prepared Transaction Offset | of the half message, else 0
84 |    4 | i32   | body_length     | BODY                      |

at     | size   | type       | field             | meaning
88     | B      | bytes      | body              |
88+B   | 1 or 2 | i8 or i16  | topic_length      | one byte in version 1, two in version 2
       | T      | bytes      | topic             | UTF-8
       | 2      | i16        | properties_length |
       | P      | bytes      | properties        | see `properties`, `property_crc`

Bits of sys_flag: 0x1 body compressed, 0x2 several tags, 0xC transaction (0x4 prepared, 0x8 commit, 0xC
rollback), 0x10 the born host is IPv6, 0x20 the store host is IPv6, 0x40 the body must be unwrapped,
0x80 inner batch, 0x700 how it is compressed (0x100 LZ4, 0x200 ZSTD, 0x300 or 0 ZLIB).

An IPv6 host takes 20 bytes in place of 8 and moves what follows by 12. A topic of more than 127 bytes
makes a record version 2. The size must be the sum of the fields.

A record never spans two segments. The rest of a full segment is one blank record, of at least 8 bytes;
what lies behind its two fields may be anything:

Layout of BLANK, 8 bytes:

at | size | type | field | RocketMQ name | meaning
 0 |    4 | i32  | size  | TOTALSIZE     | bytes to the end of the segment
 4 |    4 | i32  | magic | MAGICCODE     | CBD43194
"""

import struct
from dataclasses import dataclass
from typing import Any, Final

from orbitmq.errors import FormatError
from orbitmq.format.crc import CRC_MASK, crc32, masked_crc32
from orbitmq.format.message_id import encode_offset_id
from orbitmq.format.properties import decode_properties, find_property
from orbitmq.format.property_crc import (
    CRC_TAIL_BYTES,
    crc_tail,
    property_crc_matches,
    ready_for_crc,
)
from orbitmq.message import (
    PROPERTIES_BYTES_MAX,
    TOPIC_BYTES_MAX,
    AppendRequest,
    Host,
    Property,
    SysFlag,
)

MAGIC_V1: Final = -626843481  # 0xDAA320A7
MAGIC_V2: Final = -626843477  # 0xDAA320AB
BLANK_MAGIC: Final = -875286124  # 0xCBD43194

MAGIC_AT: Final = 4
BODY_CRC_AT: Final = 8
QUEUE_ID_AT: Final = 12
FLAG_AT: Final = 16
QUEUE_OFFSET_AT: Final = 20
LOG_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36
BORN_MS_AT: Final = 40
BORN_HOST_AT: Final = 48
# The following three hold for IPv4 hosts; each IPv6 host before the field adds HOST_V6_EXTRA.
STORE_MS_AT: Final = 56
STORE_HOST_AT: Final = 64
BODY_AT: Final = 88
HOST_V6_EXTRA: Final = 12

FIXED: Final = struct.Struct(">iiiiiqqiq8sq8siqi")
FIXED_BY_HOSTS: Final = (  # by sys_flag >> 4 & 3: bit 0 the born host, bit 1 the store host is IPv6
    FIXED,
    struct.Struct(">iiiiiqqiq20sq8siqi"),
    struct.Struct(">iiiiiqqiq8sq20siqi"),
    struct.Struct(">iiiiiqqiq20sq20siqi"),
)
assert [fixed.size for fixed in FIXED_BY_HOSTS] == [88, 100, 100, 112]
BLANK: Final = struct.Struct(">ii")
assert BLANK.size == 8
BLANK_BYTES: Final = 8
"""Room that every record leaves in its segment, so that a blank always fits."""

OVERHEAD_BYTES: Final = 91
"""Bytes beside body, topic and properties in a version 1 record with IPv4 hosts."""
TOPIC_LENGTH_BYTES: Final = (0, 1, 2)  # by version

_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_TOPIC_LENGTH: Final = {MAGIC_V1: struct.Struct(">b"), MAGIC_V2: struct.Struct(">h")}
_PROPERTIES_LENGTH: Final = struct.Struct(">h")
_HOST_BITS: Final = SysFlag.BORN_HOST_V6.value | SysFlag.STORE_HOST_V6.value


@dataclass(frozen=True, slots=True)
class Record:
    """One record, decoded. `log_offset` is what it says of itself, not where it was found."""

    log_offset: int
    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    sys_flag: int
    born_ms: int
    born_host: Host
    store_ms: int
    store_host: Host
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: str
    properties: bytes

    @property
    def version(self) -> int:
        return 2 if self.magic == MAGIC_V2 else 1

    @property
    def property_map(self) -> dict[str, str]:
        return decode_properties(self.properties)

    @property
    def tags(self) -> str | None:
        return find_property(self.properties, Property.TAGS)

    @property
    def keys(self) -> list[str]:
        """The parts of KEYS; two spaces in a row do not make an empty key."""
        joined = find_property(self.properties, Property.KEYS)
        return [key for key in joined.split(" ") if key] if joined else []

    @property
    def unique_key(self) -> str | None:
        return find_property(self.properties, Property.UNIQ_KEY)

    @property
    def offset_id(self) -> str:
        return encode_offset_id(self.store_host, self.log_offset)

    @property
    def is_filler(self) -> bool:
        return find_property(self.properties, Property.FILLER) is not None

    def to_request(self) -> AppendRequest:
        """Return what would have to be appended to get this record again."""
        return AppendRequest(
            topic=self.topic,
            queue_id=self.queue_id,
            body=self.body,
            properties=self.properties,
            flag=self.flag,
            sys_flag=self.sys_flag,
            born_ms=self.born_ms,
            born_host=self.born_host,
            store_host=self.store_host,
            reconsume_times=self.reconsume_times,
            prepared_offset=self.prepared_offset,
        )


def record_size(
    body_length: int,
    topic_length: int,
    properties_length: int,
    *,
    sys_flag: int = 0,
    version: int = 1,
) -> int:
    """Return the size of a record with these lengths in bytes."""
    fixed = FIXED_BY_HOSTS[sys_flag >> 4 & 3].size
    return fixed + body_length + TOPIC_LENGTH_BYTES[version] + topic_length + 2 + properties_length


def topic_version(topic: bytes) -> int:
    """Return the version that a record of this topic needs: 2 from 128 bytes on.

    RocketMQ counts characters; for topics of ASCII, and it takes no others, that is the same.
    """
    return 1 if len(topic) <= TOPIC_BYTES_MAX else 2


def decode_record(
    buffer: Any, position: int = 0, *, check_crc: bool = True, check_property_crc: bool = False
) -> Record:
    """Return the record that starts at this position of a bytes-like object.

    Bytes behind the record do not matter. Raises FormatError for anything that is not a whole record
    whose lengths add up; with `check_crc` also for a wrong body CRC.
    """
    end = position + _checked_size(buffer, position)
    fixed = _checked_fixed(buffer, position, end)
    fields = fixed.unpack_from(buffer, position)
    body_at = position + fixed.size
    body_end = _checked_end(fields[-1], body_at, end, "body")
    body = bytes(buffer[body_at:body_end])
    topic, topic_end = _read_sized(buffer, body_end, end, _TOPIC_LENGTH[fields[1]], "topic")
    properties, found_end = _read_sized(buffer, topic_end, end, _PROPERTIES_LENGTH, "properties")
    if found_end != end:
        reason = f"record of {fields[0]} bytes has fields of {found_end - position}"
        raise FormatError(reason, position)
    if check_crc and masked_crc32(body) != fields[2]:
        raise FormatError("body does not match its CRC", position + BODY_CRC_AT)
    if check_property_crc and not property_crc_matches(buffer[position:end]):
        raise FormatError("record does not match its property CRC", topic_end)
    return _make_record(fields, body, topic, properties)


def properties_of(record: memoryview) -> bytes:
    """Return the property string of a whole record, without decoding the rest. FormatError: it is none."""
    start, end = properties_place(record)
    return bytes(record[start:end])


def properties_place(record: memoryview) -> tuple[int, int]:
    """Return where the property string of a whole record begins and ends. FormatError: it is none."""
    end = _checked_size(record, 0)
    fixed = _checked_fixed(record, 0, end)
    body_end = _checked_end(_I32.unpack_from(record, fixed.size - 4)[0], fixed.size, end, "body")
    topic_length = _TOPIC_LENGTH[_I32.unpack_from(record, MAGIC_AT)[0]]
    _, topic_end = _read_sized(record, body_end, end, topic_length, "topic")
    properties, stop = _read_sized(record, topic_end, end, _PROPERTIES_LENGTH, "properties")
    return stop - len(properties), stop


def _checked_size(buffer: Any, position: int) -> int:
    room = len(buffer) - position
    if position < 0 or room < BLANK_BYTES:
        raise FormatError(f"no room for a record in {len(buffer)} bytes", position)
    size: int
    size, magic = BLANK.unpack_from(buffer, position)
    if magic == BLANK_MAGIC:
        raise FormatError("end of segment, not a record", position)
    if magic not in _TOPIC_LENGTH:
        raise FormatError(f"unknown magic {magic & 0xFFFFFFFF:#010x}", position + MAGIC_AT)
    if not OVERHEAD_BYTES <= size <= room:
        raise FormatError(f"record of {size} bytes, {room} bytes left", position)
    return size


def _checked_fixed(buffer: Any, position: int, end: int) -> struct.Struct:
    (sys_flag,) = _I32.unpack_from(buffer, position + SYS_FLAG_AT)
    fixed = FIXED_BY_HOSTS[sys_flag >> 4 & 3]
    if position + fixed.size > end:
        raise FormatError("record ends before its body", position)
    return fixed


def _checked_end(length: int, start: int, end: int, what: str) -> int:
    if not 0 <= length <= end - start:
        raise FormatError(f"{what} of {length} bytes, {end - start} bytes left", start)
    return start + length


def _read_sized(
    buffer: Any, position: int, end: int, length_type: struct.Struct, what: str
) -> tuple[bytes, int]:
    start = position + length_type.size
    if start > end:
        raise FormatError(f"record ends before the length of its {what}", position)
    (length,) = length_type.unpack_from(buffer, position)
    stop = _checked_end(length, start, end, what)
    return bytes(buffer[start:stop]), stop


def _make_record(fields: tuple[Any, ...], body: bytes, topic: bytes, properties: bytes) -> Record:
    (size, magic, body_crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_ms) = fields[
        :9
    ]
    (born_host, store_ms, store_host, reconsume_times, prepared_offset, _) = fields[9:]
    return Record(
        log_offset=log_offset,
        size=size,
        magic=magic,
        body_crc=body_crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        sys_flag=sys_flag,
        born_ms=born_ms,
        born_host=unpack_host(born_host),
        store_ms=store_ms,
        store_host=unpack_host(store_host),
        reconsume_times=reconsume_times,
        prepared_offset=prepared_offset,
        body=body,
        topic=topic.decode("utf-8", "replace"),
        properties=properties,
    )


def unpack_host(packed: bytes) -> Host:
    """Return the host of 8 or 20 packed bytes."""
    return Host(packed[:-4], _I32.unpack_from(packed, len(packed) - 4)[0])


def encode_record(
    request: AppendRequest,
    *,
    log_offset: int,
    queue_offset: int,
    store_ms: int,
    store_host: Host,
    property_crc: bool = False,
    version: int | None = None,
) -> bytes:
    """Return the record of a message. `store_host` is used unless the request has its own.

    The host bits of sys_flag follow from the addresses, whatever the request says. Raises FormatError
    for values that the layout cannot hold.
    """
    topic = request.topic.encode("utf-8", "replace")
    version = version or topic_version(topic)
    properties = ready_for_crc(request.properties) if property_crc else request.properties
    tail_bytes = CRC_TAIL_BYTES if property_crc else 0
    hosts = request.born_host, request.store_host or store_host
    sys_flag = with_host_bits(request.sys_flag, *hosts)
    lengths = len(request.body), len(topic), len(properties) + tail_bytes
    if lengths[2] > PROPERTIES_BYTES_MAX:
        raise FormatError(f"properties of {lengths[2]} bytes, limit {PROPERTIES_BYTES_MAX}")
    magic = MAGIC_V2 if version == 2 else MAGIC_V1
    try:
        parts = record_parts(
            request,
            FIXED_BY_HOSTS[sys_flag >> 4 & 3],
            record_size(*lengths, sys_flag=sys_flag, version=version),
            magic,
            sys_flag,
            queue_offset,
            log_offset,
            hosts[0].packed(),
            store_ms,
            hosts[1].packed(),
            _TOPIC_LENGTH[magic].pack(lengths[1]) + topic,
            properties,
            tail_bytes,
        )
    except (struct.error, OverflowError) as exc:
        raise FormatError(f"a value does not fit a record: {exc}") from exc
    record = b"".join(parts)
    return record + crc_tail(masked_crc32(record)) if property_crc else record


def record_parts(
    message: AppendRequest,
    fixed: struct.Struct,
    size: int,
    magic: int,
    sys_flag: int,
    queue_offset: int,
    log_offset: int,
    born_host: bytes,
    store_ms: int,
    store_host: bytes,
    topic: bytes,
    properties: bytes,
    reserved: int = 0,
) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Return the pieces of a record, to be joined: whoever writes one in Python uses this.

    Hosts are packed, the topic has its length before it, and `reserved` bytes will follow the
    properties. The caller knows that the properties fit; struct.error: a number does not.
    """
    body = message.body
    head = fixed.pack(
        size,
        magic,
        crc32(body) & CRC_MASK,
        message.queue_id,
        message.flag,
        queue_offset,
        log_offset,
        sys_flag,
        message.born_ms,
        born_host,
        store_ms,
        store_host,
        message.reconsume_times,
        message.prepared_offset,
        len(body),
    )
    return head, body, topic, (len(properties) + reserved).to_bytes(2, "big"), properties


def with_host_bits(sys_flag: int, born_host: Host, store_host: Host) -> int:
    """Return the flag with the two IPv6 bits as the addresses are."""
    bits = 0
    for host, bit in ((born_host, SysFlag.BORN_HOST_V6), (store_host, SysFlag.STORE_HOST_V6)):
        if len(host.address) not in (4, 16):
            raise FormatError(f"an address has 4 or 16 bytes, not {len(host.address)}")
        bits |= bit.value if len(host.address) == 16 else 0
    return sys_flag & ~_HOST_BITS | bits


def encode_blank(size: int) -> bytes:
    """Return the 8 bytes that end a segment with `size` bytes left."""
    if not BLANK_BYTES <= size <= 0x7FFFFFFF:
        raise FormatError(f"a blank record of {size} bytes is not possible")
    return BLANK.pack(size, BLANK_MAGIC)


def decode_blank(buffer: Any, position: int = 0) -> int | None:
    """Return the size of the blank record at this position, None if there is none."""
    if not 0 <= position <= len(buffer) - BLANK_BYTES:
        return None
    size, magic = BLANK.unpack_from(buffer, position)
    return size if magic == BLANK_MAGIC else None


def store_ms_at(buffer: Any, position: int = 0) -> int:
    """Return the store time of the record at this position, without decoding the rest."""
    room = len(buffer) - position
    if position < 0 or room < STORE_MS_AT + HOST_V6_EXTRA + 8:
        raise FormatError(f"no room for a record in {len(buffer)} bytes", position)
    (sys_flag,) = _I32.unpack_from(buffer, position + SYS_FLAG_AT)
    extra = HOST_V6_EXTRA if sys_flag & SysFlag.BORN_HOST_V6.value else 0
    store_ms: int = _I64.unpack_from(buffer, position + STORE_MS_AT + extra)[0]
    return store_ms
