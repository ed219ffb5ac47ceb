"""The pool of Python processes of one JVM: one process with loaded kernels, which forks the workers.

    python -m orbitmq.spark.columns.pool PATH

The JVM's reader starts it and connects to the socket at PATH, in a directory that only this user may enter.
Each connection goes to a worker that is idle, or to a new one: a task may read two tables at once, so nobody
waits for a worker. The pool ends when its standard input does: when the JVM ends, however it ends.
"""

import contextlib
import os
import selectors
import shutil
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Final

from orbitmq.spark.start.daemon import installed_first
from orbitmq.spark.start.workers import keep_objects, load_kernels

READY: Final = b"R"
_WORD: Final = b"1"
_STDIN, _STDOUT, _STDERR = 0, 1, 2
_WAITING_MAX: Final = 128


class Pool:
    """Hands connections to workers. Not thread-safe."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._idle: list[socket.socket] = []
        self._workers: set[socket.socket] = set()
        self._kept = len(os.sched_getaffinity(0))
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(_STDIN, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve until standard input ends."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == _STDIN:
                    if not os.read(_STDIN, 1):
                        return
                elif key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._hear(key.fileobj)

    def _accept(self) -> None:
        link, _ = self._listener.accept()
        with link:
            self._hand_over(link)
        if len(self._workers) < self._kept:
            self._idle.append(
                self._forked()
            )  # loads what it needs while the first query is planned

    def _hand_over(self, link: socket.socket) -> None:
        while self._idle:
            worker = self._idle.pop()
            try:
                socket.send_fds(worker, [_WORD], [link.fileno()])
            except OSError:
                self._lose(worker)  # it was killed
            else:
                return
        socket.send_fds(self._forked(link), [_WORD], [link.fileno()])

    def _hear(self, worker: socket.socket) -> None:
        """Note that a worker is idle, or gone."""
        try:
            is_there = bool(worker.recv(1))
        except OSError:
            is_there = False
        if is_there and len(self._idle) < self._kept:
            self._idle.append(worker)
        else:
            self._lose(worker)

    def _lose(self, worker: socket.socket) -> None:
        if worker in self._workers:
            self._workers.discard(worker)
            self._selector.unregister(worker)
            worker.close()
        if worker in self._idle:
            self._idle.remove(worker)

    def _forked(self, *opened: socket.socket) -> socket.socket:
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            self._become_worker(theirs, ours, *opened)
        theirs.close()
        self._workers.add(ours)
        self._selector.register(ours, selectors.EVENT_READ)
        return ours

    def _become_worker(self, orders: socket.socket, *opened: socket.socket) -> None:
        """Work in a forked process, and end with it."""
        try:
            # Were one of these left open here, nobody would see that its other owner is gone.
            self._selector.close()
            for other in (self._listener, *self._workers, *opened):
                other.close()
            os.dup2(os.open(os.devnull, os.O_RDONLY), _STDIN)
            # Not before the fork: Arrow has threads, and a forked process would not.
            from orbitmq.spark.columns import worker

            keep_objects()
            worker.work(orders)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)  # what there is to clean up belongs to the pool


def main(path: str) -> None:
    sys.path[:] = installed_first(sys.path)
    # Ctrl-C is for the driver, which cancels the query. Workers that end need nobody to wait for them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            before = os.umask(0o077)
            listener.bind(path)
            os.umask(before)
            listener.listen(_WAITING_MAX)  # who comes before the kernels are loaded waits
            load_kernels()
            import pyspark.sql.datasource  # noqa: F401  (what all workers import, once)

            os.write(_STDOUT, READY)
            os.dup2(_STDERR, _STDOUT)  # nobody reads the other one any more
            Pool(listener).run()
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(Path(path).parent)


if __name__ == "__main__":
    main(sys.argv[1])
