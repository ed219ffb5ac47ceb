"""Python workers of Spark: what they are forked with, and their end of the socket to the JVM.

The socket has no Nagle delay and quick ACKs. Spark sends a task in several small writes. Nagle's algorithm
holds the second one back until the first is acknowledged, and the receiving end delays acknowledgements by
40 ms or more in the hope of sending them along with an answer: every task began with that pause, longer than
most take to read their split. The JVM's end is Spark's, so ours acknowledges at once. The other way round
our own small writes are not held back.
"""

import gc
import io
import os
import runpy
import socket
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

Main = Callable[..., None]
"""Takes a file to read from, one to write to, and whatever else a later Spark may give it."""

QUICK_ACK: Final = getattr(socket, "TCP_QUICKACK", None)  # of Linux alone
_BUFFER_BYTES: Final = 64 * 1024


def load_kernels() -> None:
    """Load what tasks need and what starts no thread: a forked process would not have it.

    That rules out pyarrow, and threads of numpy's linear algebra, which nobody here uses.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from orbitmq.format.kernels import compiled

    compiled()
    keep_objects()  # Numba's, which stay anyway, would cost each task 75 ms.


def serve_tasks() -> None:
    """Fork a worker for each connection that Spark makes, until it is gone."""
    from pyspark import daemon

    of_spark: Any = daemon
    run = getattr(of_spark, "worker", None)
    if run is not None:
        of_spark.worker = Worker(run)
    serve(of_spark)


def serve(of_spark: ModuleType) -> None:
    """Do what Spark's own daemon does; as Spark starts it, if this one has no such function any more."""
    manager = getattr(of_spark, "manager", None)
    if manager is None:
        runpy.run_module(of_spark.__name__, run_name="__main__", alter_sys=True)
    else:
        manager()


class Worker:
    """Runs tasks one after the other in a forked process. Takes the place of Spark's function."""

    def __init__(self, run: Callable[..., int]) -> None:
        self._run = run
        self._is_first = True

    def __call__(self, sock: socket.socket, *more: Any) -> int:
        """Run one and return its exit code; with another than 0 the process ends."""
        if self._is_first:
            take_over(sock)
        try:
            code = self._run(sock, *more)
        except (BrokenPipeError, ConnectionResetError):
            # Spark has the rows that it wanted (a limit) and is gone: nobody needs a traceback.
            return 1
        if self._is_first:
            self._is_first = False
            keep_objects()
        return code


def take_over(sock: socket.socket) -> None:
    """Have the tasks of this process use its socket without Nagle delay and with quick ACKs."""
    send_at_once(sock)
    from pyspark import worker  # not before the fork: it starts threads

    main = getattr(worker, "main", None)
    if main is not None:
        worker.main = acknowledging(main, sock)


def keep_objects() -> None:
    """Leave what there is out of all later garbage collections, of which Spark does one after each task."""
    gc.collect()
    gc.freeze()


# --- the socket ---


def send_at_once(sock: socket.socket) -> None:
    """Turn the Nagle delay off; a Unix socket never waits."""
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def acknowledging(main: Main, sock: socket.socket) -> Main:
    """Return a worker's `main` whose reads from this socket are acknowledged at once."""
    if QUICK_ACK is None or sock.family == socket.AF_UNIX:
        return main

    def run(infile: Any, *more: Any) -> None:
        if hasattr(infile, "readinto1"):
            infile = io.BufferedReader(_Acknowledged(infile, sock), _BUFFER_BYTES)
        main(infile, *more)

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
