"""What a query read, and what told it where to look: measured, not reckoned.

Of a log the tasks count themselves (`source/metrics.py`). Of a lake Spark counts the bytes that its tasks got
from files; it does so only where Parquet's reader takes them one after the other (COUNTED).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

COUNTED: Final[Mapping[str, str]] = {"parquet.hadoop.vectored.io.enabled": "false"}
"""Options of a read whose bytes are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFigures:
    """One side of a query: the log, the brokers of a cluster, or the lake."""

    found_by: tuple[str, ...]  # none: all of it was looked at
    read_bytes: int | None  # None: it could not be counted
    of_bytes: int | None  # None: brokers do not tell
    files: int | None = None  # of a lake
    of_files: int | None = None

    @property
    def share(self) -> float | None:
        """How much of all there is was read, 0 to 1 or more: what was found first is read twice."""
        if self.read_bytes is None or not self.of_bytes:
            return None
        return self.read_bytes / self.of_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFigures:
    """Both sides; None where a query had no such side."""

    log: SideFigures | None
    lake: SideFigures | None


def input_bytes(context: SparkContext) -> int | None:
    """Return how many bytes of files all stages of this Spark have read so far; None: it does not tell."""
    try:
        jvm: Any = context._jsc.sc()
        jvm.listenerBus().waitUntilEmpty()
        gateway: Any = context._gateway
        none = gateway.new_array(gateway.jvm.double, 0)
        stages = jvm.statusStore().stageList(None, False, False, none, None)
        return sum(int(stages.apply(at).inputBytes()) for at in range(stages.size()))
    except (
        Py4JError,
        PySparkException,
        AttributeError,
    ):  # another Spark than the one that is known
        return None
