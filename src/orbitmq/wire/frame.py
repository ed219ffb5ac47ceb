"""Cut a stream of bytes into frames and commands. Owns no socket: any chunking, any I/O library."""

import struct
from typing import Final

from orbitmq.errors import RemoteProtocolError
from orbitmq.units import MiB
from orbitmq.wire.command import HEADER_LENGTH_MASK, PREFIX, PREFIX_BYTES, Command, decode_parts

FRAME_BYTES_MAX: Final = 16 * MiB
"""RocketMQ's own limit, length word included: a larger frame would pass here and be refused there."""

HEADER_BYTES_MAX: Final = 1 * MiB
"""The longest header of a real client is that of a send with 32 KiB of properties, escaped: 200 KiB."""

_LENGTH: Final = struct.Struct(">i")
_LENGTH_BYTES: Final = 4
_LENGTH_MIN: Final = 4  # the mark alone

_unpack: Final = PREFIX.unpack_from


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
