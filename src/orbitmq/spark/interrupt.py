"""Ctrl-C while Spark works: what runs is cancelled, then KeyboardInterrupt goes on.

Spark's own handler asks the JVM to cancel on the very connection whose answer the main thread waits for,
so it waits for the end of the job that it is to cancel. Here another thread asks, on a connection of its
own, and the waiting call comes back with the job's error; that error becomes KeyboardInterrupt.
"""

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from orbitmq.spark.context import Spark, context_of

LOG = logging.getLogger(__name__)


class Interruptible:
    """A stretch of the main thread's work that Ctrl-C ends. Elsewhere than there it does nothing."""

    def __init__(self, spark: Spark) -> None:
        self._spark = spark
        self._before: Callable[[int, FrameType | None], Any] | int | None = None
        self._installed = False
        self.interrupted = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_sigint)
            self._installed = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._before)
        if self.interrupted and not isinstance(error, KeyboardInterrupt):
            of_spark = isinstance(error, Py4JError | PySparkException)  # that it was cancelled
            raise KeyboardInterrupt from (None if of_spark else error)

    def _on_sigint(self, number: int, frame: FrameType | None) -> None:
        again, self.interrupted = self.interrupted, True
        if not again:
            threading.Thread(target=self._cancel, name="orbitmq-cancel", daemon=True).start()
        # A call that is cut off in the middle leaves its answer on the connection for the next call
        # to take; so let it come back. Who presses twice does not want to wait.
        if again or not _waits_for_the_jvm(frame):
            raise KeyboardInterrupt

    def _cancel(self) -> None:
        try:
            if isinstance(self._spark, SparkSession):
                for query in self._spark.streams.active:
                    query.stop()
            context_of(self._spark).cancelAllJobs()
        except (Py4JError, PySparkException, OSError):
            LOG.warning("the running Spark jobs could not be cancelled", exc_info=True)


def _waits_for_the_jvm(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("py4j."):
            return True
        frame = frame.f_back
    return False
