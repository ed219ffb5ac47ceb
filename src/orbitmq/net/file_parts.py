"""Parts of an answer that lie in files: sent by the kernel, or from the mapping where it cannot."""

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
