"""What goes over the socket between the JVM's reader and a worker: requests as JSON, answers in frames.

A request is its length (4 bytes, big-endian) and JSON. An answer is made of frames: a letter, a length and so
many bytes.

frame | bytes
J     | JSON: the answer to `schema`, `filters`, `groups` and `plan`
A     | a part of an Arrow stream
F     | JSON, before the part with the batch: the stretch of a file that its bodies are in
M     | JSON, after the stream: what was read
E     | text: what went wrong, instead of anything that would have followed
"""

import io
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from orbitmq.units import MiB

JSON: Final = b"J"
ARROW: Final = b"A"
FILE: Final = b"F"
METRICS: Final = b"M"
ERROR: Final = b"E"

REQUEST_BYTES_MAX: Final = 64 * MiB
FRAME_BYTES_MAX: Final = 1024 * MiB
"""Java's lengths end at 2 GiB: a longer part of a stream, with bodies as long as that, is sent as several."""
_LENGTH: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">cI")
_BUFFERS_MAX: Final = os.sysconf("SC_IOV_MAX") if hasattr(os, "sysconf") else 16


class BrokenRequestError(Exception):
    """The peer sent no whole request. Nobody is left to be told."""


def receive_request(link: socket.socket) -> bytes:
    """Return the bytes of a request."""
    (length,) = _LENGTH.unpack(_exactly(link, _LENGTH.size))
    if length > REQUEST_BYTES_MAX:
        raise BrokenRequestError(f"a request of {length} bytes")
    return _exactly(link, length)


def _exactly(link: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        more = link.recv(min(length - len(data), 1 << 20))
        if not more:
            raise BrokenRequestError(f"the peer left after {len(data)} of {length} bytes")
        data += more
    return bytes(data)


def send_json(link: socket.socket, kind: bytes, value: Any) -> None:
    """Send a value as a frame of JSON."""
    send_frame(link, kind, [msgspec.json.encode(value)])


def send_error(link: socket.socket, text: str) -> None:
    send_frame(link, ERROR, [text.encode("utf-8", "replace")])


def send_frame(link: socket.socket, kind: bytes, parts: list[Any]) -> None:
    """Send buffers as one frame, without joining them first."""
    views = [memoryview(part).cast("B") for part in parts if len(part)]
    total = sum(view.nbytes for view in views)
    views.insert(0, memoryview(_HEAD.pack(kind, total)))
    while views:
        sent = link.sendmsg(views[:_BUFFERS_MAX])
        while views and sent >= views[0].nbytes:
            sent -= views.pop(0).nbytes
        if sent:
            views[0] = views[0][sent:]


class FrameSink(io.RawIOBase):
    """Takes what an Arrow writer writes, and sends a frame for each batch. Not thread-safe.

    The buffers are those of the arrays: nothing is copied between a column and the socket.
    """

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._parts: list[Any] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(data)
        return len(data)

    def send(self) -> None:
        """Send what was written since the last call."""
        parts, self._parts = self._parts, []
        for frame in _frames(parts):
            send_frame(self._link, ARROW, frame)


def _frames(parts: list[Any]) -> Iterator[list[memoryview]]:
    """Share buffers among frames that are not too long."""
    frame, left = list[memoryview](), FRAME_BYTES_MAX
    for part in parts:
        rest = memoryview(part).cast("B")
        while rest.nbytes > left:
            yield [*frame, rest[:left]]
            rest, frame, left = rest[left:], [], FRAME_BYTES_MAX
        frame.append(rest)
        left -= rest.nbytes
    yield frame
