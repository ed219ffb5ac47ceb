"""The process that Spark forks its Python workers from, with the kernels already in it.

Spark starts it as `python -m orbitmq.spark.start.daemon <worker module>` (spark.python.daemon.module). A
worker then has the compiled kernels at once and shares their memory, instead of loading them for a second.
"""

import gc
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from orbitmq.spark.start.daemon_ahead import handed_over
from orbitmq.spark.start.quick_socket import acknowledging, send_at_once

TASKS: Final = "pyspark.worker"
"""The module that runs tasks. The others plan a query, one process each, and may not need kernels."""


def main() -> None:
    sys.path[:] = installed_first(sys.path)
    if TASKS in sys.argv[1:]:
        if handed_over():
            return
        load_kernels()
        serve_tasks()
        return
    from pyspark.daemon import manager

    manager()


def serve_tasks() -> None:
    """Fork a worker for each connection that Spark makes, until it is gone."""
    from pyspark import daemon as of_spark

    of_spark.worker = Worker(of_spark.worker)
    of_spark.manager()


class Worker:
    """Runs tasks one after the other in a forked process. Takes the place of Spark's function."""

    def __init__(self, run: Callable[[socket.socket, bool], int]) -> None:
        self._run = run
        self._is_first = True

    def __call__(self, sock: socket.socket, authenticated: bool) -> int:
        """Run one and return its exit code; with another than 0 the process ends."""
        if self._is_first:
            take_over(sock)
        try:
            code = self._run(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            # Spark has the rows that it wanted (a limit) and is gone: nobody needs a traceback.
            return 1
        if self._is_first:
            self._is_first = False
            keep_objects()
        return code


def take_over(sock: socket.socket) -> None:
    """Have the tasks of this process use its socket without the waiting of TCP."""
    send_at_once(sock)
    from pyspark import worker  # not before the fork: it starts threads

    worker.main = acknowledging(worker.main, sock)


def keep_objects() -> None:
    """Leave what there is out of all later garbage collections, of which Spark does one after each task."""
    gc.collect()
    gc.freeze()


def installed_first(path: list[str]) -> list[str]:
    """Return a module path on which the archives of an installed PySpark come last.

    Spark puts them first, for machines that have nothing else. They hold no compiled modules: this process
    and each worker would compile them anew, a second's work, and look into them for every other import.
    """
    packages = tuple(str(Path(site, "pyspark")) + os.sep for site in path)
    archives = [entry for entry in path if entry.startswith(packages)]
    return [entry for entry in path if entry not in archives] + archives


def load_kernels() -> None:
    """Load what tasks need and what starts no thread: a forked process would not have it.

    That rules out pyarrow, and threads of numpy's linear algebra, which nobody here uses.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from orbitmq.format.kernels import compiled

    compiled()
    keep_objects()  # Numba's, which stay anyway, would cost each task 75 ms.


if __name__ == "__main__":
    main()
