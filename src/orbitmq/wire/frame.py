"""The bytes of a command: one frame; and a stream of bytes cut into frames. Owns no socket: any chunking.

Layout of a frame, big-endian:

at  | size | type | field         | RocketMQ name | meaning
0   |    4 | i32  | length        | total length  | bytes that follow this word
4   |    4 | u32  | mark          | header length | encoding << 24 | header length
8   |    n | text | header        | header data   | see `header_json`, `header_binary`
8+n |    m | text | body          | body          | the rest
"""

import struct
from typing import Final

from orbitmq.errors import RemoteProtocolError
from orbitmq.units import MiB
from orbitmq.wire import header_binary
from orbitmq.wire.command import Command, Encoding
from orbitmq.wire.header_json import decode_header as decode_json
from orbitmq.wire.header_json import encode_header as encode_json

FRAME_BYTES_MAX: Final = 16 * MiB
"""RocketMQ's own limit, length word included: a larger frame would pass here and be refused there."""

HEADER_BYTES_MAX: Final = 1 * MiB
"""The longest header of a real client is that of a send with 32 KiB of properties, escaped: 200 KiB."""

PREFIX: Final = struct.Struct(">iI")
PREFIX_BYTES: Final = 8
ENCODING_SHIFT: Final = 24
HEADER_LENGTH_MASK: Final = (1 << ENCODING_SHIFT) - 1

_LENGTH: Final = struct.Struct(">i")
_LENGTH_BYTES: Final = 4
_LENGTH_MIN: Final = 4  # the mark alone

_pack: Final = PREFIX.pack
_unpack: Final = PREFIX.unpack_from
_ANSWER: Final = b'"flag":1'
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


class FrameDecoder:
    """Bytes in, commands out. Not thread-safe.

    After bytes that are no frame `error` is set and nothing is understood any more: close.
    """

    def __init__(
        self, frame_bytes_max: int = FRAME_BYTES_MAX, header_bytes_max: int = HEADER_BYTES_MAX
    ) -> None:
        self.error: RemoteProtocolError | None = None
        self._length_max = frame_bytes_max - _LENGTH_BYTES
        self._header_bytes_max = header_bytes_max
        self._buffer = bytearray()  # the beginning of a frame
        self._wanted = 0  # so many bytes have to be in it before there is anything to do

    @property
    def waiting_bytes(self) -> int:
        """How much of a frame is here that has not come whole."""
        return len(self._buffer)

    def with_waiting(self, data: bytes) -> bytes:
        """Return these bytes behind those that wait for them; none while a frame is not whole."""
        if not self._buffer:
            return data
        self._buffer += data
        if len(self._buffer) < self._wanted:
            return b""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def receive(self, data: bytes) -> list[Command]:
        """Return the commands that are whole now, those before bad bytes too."""
        commands: list[Command] = []
        if self.error is not None:
            return commands
        data = self.with_waiting(data)
        if not data:
            return commands
        try:
            at = self._cut(data, commands)
        except RemoteProtocolError as error:
            self.error = error
            return commands
        if at < len(data):
            self._buffer += memoryview(data)[at:]
        return commands

    def answers_first(self, data: bytes) -> tuple[list[Command], bytes]:
        """Return the answers that these bytes begin with, whole frames in JSON only, and what follows them.

        Bytes that are no frame are among what follows: `receive` finds them.
        """
        commands: list[Command] = []
        end = 0
        while end + PREFIX_BYTES <= len(data):
            length, mark = _unpack(data, end)
            header_at, frame_end = end + PREFIX_BYTES, end + _LENGTH_BYTES + length
            if (
                mark > self._header_bytes_max
                or not mark + _LENGTH_MIN <= length <= self._length_max
                or frame_end > len(data)
                or data.find(_ANSWER, header_at, header_at + mark) < 0
            ):
                break
            try:
                self._cut(data[end:frame_end], commands)
            except RemoteProtocolError:
                break
            end = frame_end
            if not commands[-1].is_response:
                break  # it only looked like one
        return commands, data[end:] if end else data

    def _cut(self, data: bytes, commands: list[Command]) -> int:
        """Decode the frames that are whole; return where the rest begins."""
        view = memoryview(data)
        at, end = 0, len(data)
        while end - at >= PREFIX_BYTES:
            length, mark = _unpack(data, at)
            header_bytes = mark & HEADER_LENGTH_MASK
            if not header_bytes + _LENGTH_MIN <= length <= self._length_max:
                raise self._wrong_length(length, header_bytes)
            if header_bytes > self._header_bytes_max:
                what = f"a header of {header_bytes} bytes; allowed are {self._header_bytes_max}"
                raise RemoteProtocolError(what)
            header_at, frame_end = at + PREFIX_BYTES, at + _LENGTH_BYTES + length
            if frame_end > end:
                self._wanted = frame_end - at
                return at
            body_at = header_at + header_bytes
            header, body = view[header_at:body_at], data[body_at:frame_end]
            commands.append(decode_parts(mark, header, body))
            at = frame_end
        if end - at >= _LENGTH_BYTES:  # a length that is wrong is known before the mark is here
            (length,) = _LENGTH.unpack_from(data, at)
            if not _LENGTH_MIN <= length <= self._length_max:
                raise self._wrong_length(length, 0)
        self._wanted = PREFIX_BYTES
        return at

    def _wrong_length(self, length: int, header_bytes: int) -> RemoteProtocolError:
        frame_bytes = length + _LENGTH_BYTES
        if _LENGTH_MIN <= length <= self._length_max:
            what = f"a header of {header_bytes} bytes in a frame of {frame_bytes}"
            return RemoteProtocolError(what)
        allowed = f"allowed are {PREFIX_BYTES} to {self._length_max + _LENGTH_BYTES}"
        return RemoteProtocolError(f"a frame of {frame_bytes} bytes; {allowed}")
