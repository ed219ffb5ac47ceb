"""What a job without SQL needs of Spark: the context. A whole session has one too."""

from pyspark import SparkContext
from pyspark.accumulators import AccumulatorTCPServer
from pyspark.sql import SparkSession

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
    counts = context._accumulatorServer
    if isinstance(counts, AccumulatorTCPServer):  # one with a file has to remove it
        counts.server_shutdown = True
        context._accumulatorServer = None  # type: ignore[assignment]
    context.stop()
