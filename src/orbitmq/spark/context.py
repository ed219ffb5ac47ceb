"""A running Spark: its context (all that a job without SQL needs), its end, and Ctrl-C while it works."""

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

from py4j.protocol import Py4JError
from pyspark import SparkContext, accumulators
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

LOG = logging.getLogger(__name__)

Spark = SparkSession | SparkContext
"""What runs a job. A context alone starts in half the time of a session."""


def context_of(spark: Spark) -> SparkContext:
    """Return the context itself, or that of a session."""
    return spark if isinstance(spark, SparkContext) else spark.sparkContext


def stop_quickly(context: SparkContext) -> None:
    """Stop Spark where the process is about to end.

    Its own stop waits most of a second for the thread that takes the tasks' counts, which looks once a
    second whether it is to end. Here that thread is asked to, and ends with the process at the latest.
    """
    counts = getattr(context, "_accumulatorServer", None)
    kind = getattr(accumulators, "AccumulatorTCPServer", None)
    if kind is not None and isinstance(counts, kind):  # one with a file has to remove it
        counts.server_shutdown = True
        context._accumulatorServer = None  # type: ignore[assignment]
    context.stop()


class Interruptible:
    """A stretch of the main thread's work that Ctrl-C ends: what runs is cancelled, then KeyboardInterrupt.

    Spark's own handler asks the JVM to cancel on the very connection whose answer the main thread waits for,
    so it waits for the end of the job that it is to cancel. Here another thread asks, on a connection of its
    own, and the waiting call comes back with the job's error; that error becomes KeyboardInterrupt. In
    other threads it does nothing.
    """

    def __init__(self, spark: Spark) -> None:
        self._spark = spark
        self._before: Callable[[int, FrameType | None], Any] | int | None = None
        self._installed = False
        self.interrupted = False
        """Whether Ctrl-C was pressed; a job asks before it changes anything for good."""

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_sigint)
            self._installed = True
        return self

    def __exit__(self, *raised: Any) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._before)
        error = raised[1]
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
