"""Makes the format "orbitmq" known in every session of Spark: it looks for packages named pyspark_*."""

from orbitmq.spark.source.source import OrbitmqSource as DefaultSource

__all__ = ["DefaultSource"]
