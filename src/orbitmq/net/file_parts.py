"""Parts of what is sent that lie in files: sent by the kernel, or from the mapping where it cannot."""

import asyncio
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class FilePart(NamedTuple):
    """Bytes of a file. The view shows the same ones, and stays valid when the file is deleted."""

    path: Path
    position: int
    view: memoryview


Part = bytes | memoryview | FilePart


def views(parts: Sequence[Part]) -> list[bytes | memoryview]:
    """Return the bytes of all parts, without copying any."""
    return [part.view if isinstance(part, FilePart) else part for part in parts]


class PartSender:
    """Sends parts on a transport's connection. Belongs to the loop's thread."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._own_socket: socket.socket | None = None

    def send(self, parts: Sequence[Part]) -> None:
        """Send without copying; parts of files by sendfile, if nothing waits to be sent before them."""
        by_file = any(isinstance(part, FilePart) for part in parts)
        if by_file and not self._transport.get_write_buffer_size():
            rest = send_now(self._socket(), parts)
        else:
            rest = views(parts)
        if rest:
            self._transport.writelines(rest)

    def close(self) -> None:
        """The connection is gone."""
        if self._own_socket is not None:
            self._own_socket.close()

    def _socket(self) -> socket.socket:
        """Return the socket under a descriptor of our own: the transport's is not for others to use."""
        if self._own_socket is None:
            fd = self._transport.get_extra_info("socket").fileno()
            self._own_socket = socket.socket(fileno=os.dup(fd))
        return self._own_socket


def send_now(sock: socket.socket, parts: Sequence[Part]) -> list[bytes | memoryview]:
    """Send what the socket takes without waiting, files by sendfile; return the rest, in order.

    A broken connection is not told here: whoever sends the rest will see it.
    """
    last = len(parts) - 1
    for number, part in enumerate(parts):
        if isinstance(part, FilePart):
            sent, size = _send_file(sock, part), len(part.view)
        else:
            sent, size = _send_bytes(sock, part, more=number < last), len(part)
        if sent < size:
            return [views([part])[0][sent:], *views(parts[number + 1 :])]
    return []


def _send_bytes(sock: socket.socket, data: bytes | memoryview, *, more: bool) -> int:
    try:
        return sock.send(data, socket.MSG_MORE if more else 0)
    except OSError:
        return 0


def _send_file(sock: socket.socket, part: FilePart) -> int:
    """Return how many bytes of a file were sent; the file may be gone."""
    sent, size = 0, len(part.view)
    try:
        # Opened anew each time: a descriptor that another thread may close could become another file's.
        fd = os.open(part.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        while sent < size:
            count = os.sendfile(sock.fileno(), fd, part.position + sent, size - sent)
            if not count:
                break
            sent += count
    except OSError:
        pass  # it takes no more now, or never again
    finally:
        os.close(fd)
    return sent
