"""The bytes of a command: one frame.

Layout of a frame, big-endian:

at  | size | type | field         | RocketMQ name | meaning
0   |    4 | i32  | length        | total length  | bytes that follow this word
4   |    4 | u32  | mark          | header length | encoding << 24 | header length
8   |    n | text | header        | header data   | see `header_json`, `header_binary`
8+n |    m | text | body          | body          | the rest
"""

import itertools
import struct
from typing import Final

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire import header_binary
from orbitmq.wire.header import ONEWAY_FLAG, RESPONSE_FLAG, Command, Encoding
from orbitmq.wire.header_json import decode_header as decode_json
from orbitmq.wire.header_json import encode_header as encode_json

__all__ = [
    "ONEWAY_FLAG",
    "PREFIX",
    "PREFIX_BYTES",
    "RESPONSE_FLAG",
    "Command",
    "Encoding",
    "Opaques",
    "decode_command",
    "decode_parts",
    "encode_command",
    "encode_prefix",
]

PREFIX: Final = struct.Struct(">iI")
PREFIX_BYTES: Final = 8
ENCODING_SHIFT: Final = 24
HEADER_LENGTH_MASK: Final = (1 << ENCODING_SHIFT) - 1
OPAQUE_MAX: Final = 0x7FFFFFFF

_pack: Final = PREFIX.pack
_JSON: Final = Encoding.JSON
_BINARY: Final = Encoding.BINARY


def encode_prefix(command: Command, body_bytes: int) -> bytes:
    """Return everything of a frame but its body, for a body of this length that is sent beside it."""
    if command.encoding is _JSON:
        header, mark = encode_json(command), 0
    else:
        header, mark = header_binary.encode_header(command), _BINARY << ENCODING_SHIFT
    size = len(header)
    if size > HEADER_LENGTH_MASK:
        raise RemoteProtocolError(f"a header of {size} bytes is too long for a frame")
    prefix: bytes = _pack(4 + size + body_bytes, mark | size)
    return prefix + header


def encode_command(command: Command) -> bytes:
    """Return the whole frame."""
    body = command.body
    return encode_prefix(command, len(body)) + body if body else encode_prefix(command, 0)


def decode_command(frame: bytes) -> Command:
    """Return the command in a whole frame, length word included."""
    if len(frame) < PREFIX_BYTES:
        raise RemoteProtocolError(f"a frame of {len(frame)} bytes has no header")
    length, mark = PREFIX.unpack_from(frame)
    size = mark & HEADER_LENGTH_MASK
    if length != len(frame) - 4 or size > length - 4:
        what = f"length {length} and header length {size} do not fit"
        raise RemoteProtocolError(f"frame of {len(frame)} bytes: {what}")
    body_at = PREFIX_BYTES + size
    return decode_parts(mark, memoryview(frame)[PREFIX_BYTES:body_at], bytes(frame[body_at:]))


def decode_parts(mark: int, header: memoryview, body: bytes) -> Command:
    """Return the command of a frame's mark, header and body; their lengths were checked."""
    command: Command
    if mark <= HEADER_LENGTH_MASK:
        command = decode_json(header)
        # Set although it is the default: the JSON of a header may have a member of this name.
        command.encoding = _JSON
    elif mark >> ENCODING_SHIFT == _BINARY:
        command = header_binary.decode_header(header)
        command.encoding = _BINARY
    else:
        encoding = mark >> ENCODING_SHIFT
        raise RemoteProtocolError(f"header encoding {encoding} is neither JSON (0) nor binary (1)")
    command.body = body
    return command


class Opaques:
    """Numbers for requests: each connection's own, from 1 on, back to 0 behind the largest."""

    def __init__(self, start: int = 1) -> None:
        self._count = itertools.count(start)

    def next(self) -> int:
        return next(self._count) & OPAQUE_MAX
