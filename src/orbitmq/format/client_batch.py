"""Client batch: several messages in one body, as a producer sends them, big-endian.

Layout of HEAD, 20 bytes:

at | size | type | field       | RocketMQ name | meaning
 0 |    4 | i32  | size        | TOTALSIZE     | whole message; written, not looked at
 4 |    4 | i32  | magic       | MAGICCODE     | 0, not looked at
 8 |    4 | i32  | body_crc    | BODYCRC       | 0, not looked at
12 |    4 | i32  | flag        | FLAG          | the producer's
16 |    4 | i32  | body_length | BODY          |

at   | size | type  | field             | meaning
20   | B    | bytes | body              |
20+B | 2    | i16   | properties_length |
     | P    | bytes | properties        |

The broker makes one record of each message, or keeps the whole as the body of one record (an inner
batch, for BatchCQ topics). Like the Java broker, readers go by the two lengths alone: a client that
fills the first three fields otherwise is served as well.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from orbitmq.errors import FormatError
from orbitmq.message import PROPERTIES_BYTES_MAX

HEAD: Final = struct.Struct(">iiiii")
HEAD_BYTES: Final = 20
assert HEAD.size == HEAD_BYTES
_PROPERTIES_LENGTH: Final = struct.Struct(">h")
OVERHEAD_BYTES: Final = HEAD_BYTES + _PROPERTIES_LENGTH.size
"""Bytes beside body and properties."""


class ClientMessage(NamedTuple):
    """One message of a batch; topic, queue and hosts are those of the request."""

    body: bytes
    properties: bytes = b""
    flag: int = 0


def encode_client_batch(messages: Iterable[ClientMessage]) -> bytes:
    """Return the messages as one batch body."""
    return b"".join(_encode_message(message) for message in messages)


def _encode_message(message: ClientMessage) -> bytes:
    if len(message.properties) > PROPERTIES_BYTES_MAX:
        raise FormatError(
            f"properties of {len(message.properties)} bytes, limit {PROPERTIES_BYTES_MAX}"
        )
    size = OVERHEAD_BYTES + len(message.body) + len(message.properties)
    try:
        head = HEAD.pack(size, 0, 0, message.flag, len(message.body))
    except struct.error as exc:
        raise FormatError(f"a value does not fit a batch message: {exc}") from exc
    length = _PROPERTIES_LENGTH.pack(len(message.properties))
    return b"".join((head, message.body, length, message.properties))


def iter_client_batch(batch: Any) -> Iterator[ClientMessage]:
    """Yield the messages of a batch body; FormatError at the first that is broken."""
    position = 0
    while position < len(batch):
        message, position = _decode_message(batch, position)
        yield message


def decode_client_batch(batch: Any) -> list[ClientMessage]:
    """Return the messages of a batch body; FormatError if any is broken."""
    return list(iter_client_batch(batch))


def _decode_message(batch: Any, position: int) -> tuple[ClientMessage, int]:
    room = len(batch) - position - OVERHEAD_BYTES
    if room < 0:
        raise FormatError(f"{len(batch) - position} bytes are no batch message", position)
    _, _, _, flag, body_length = HEAD.unpack_from(batch, position)
    if not 0 <= body_length <= room:
        raise FormatError(f"body of {body_length} bytes, {room} bytes left", position)
    body_at = position + HEAD_BYTES
    length_at = body_at + body_length
    (properties_length,) = _PROPERTIES_LENGTH.unpack_from(batch, length_at)
    if not 0 <= properties_length <= room - body_length:
        reason = f"properties of {properties_length} bytes, {room - body_length} bytes left"
        raise FormatError(reason, length_at)
    properties_at = length_at + _PROPERTIES_LENGTH.size
    end = properties_at + properties_length
    body = bytes(batch[body_at:length_at])
    return ClientMessage(body, bytes(batch[properties_at:end]), flag), end
