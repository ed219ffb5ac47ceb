"""A worker's end of its socket to the JVM, without the waiting of TCP.

Spark sends a task in several small writes. TCP holds the second one back until the first is acknowledged,
and the receiving end delays acknowledgements by 40 ms or more in the hope of sending them along with
an answer: every task began with that pause, longer than most take to read their split. The JVM's end
is Spark's, so ours acknowledges at once. The other way round our own small writes are not held back.
"""

import io
import socket
from collections.abc import Callable
from typing import Final

Main = Callable[[io.BufferedIOBase, io.BufferedIOBase], None]

QUICK_ACK: Final = getattr(socket, "TCP_QUICKACK", None)  # of Linux alone
_BUFFER_BYTES: Final = 64 * 1024


def send_at_once(sock: socket.socket) -> None:
    """Have small writes leave without waiting; a Unix socket never waits."""
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def acknowledging(main: Main, sock: socket.socket) -> Main:
    """Return a worker's `main` whose reads from this socket are acknowledged at once."""
    if QUICK_ACK is None or sock.family == socket.AF_UNIX:
        return main

    def run(infile: io.BufferedIOBase, outfile: io.BufferedIOBase) -> None:
        main(io.BufferedReader(_Acknowledged(infile, sock), _BUFFER_BYTES), outfile)

    return run


class _Acknowledged(io.RawIOBase):
    """What the file of a socket gives, acknowledged as it is read."""

    def __init__(self, file: io.BufferedIOBase, sock: socket.socket) -> None:
        self._file, self._socket = file, sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = self._file.readinto1(buffer)
        # Not a mode that stays: the call sends the acknowledgement that is due now.
        self._socket.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)  # type: ignore[arg-type]
        return count
