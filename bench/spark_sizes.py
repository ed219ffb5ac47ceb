"""How much work a run of the Spark benchmark does."""

from dataclasses import dataclass

import spark_log
from orbitmq.units import KiB, MiB

LARGE_BODY_BYTES = 4 * MiB - 4 * KiB  # what a broker takes by default, nearly
Files = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Size:
    """How much work a run does."""

    log_bytes: int
    warm_bytes: int
    shares: tuple[int, ...]  # growth: the log's size divided by these
    files: Files = ()
    small_files: Files = (("segment_bytes", 16 * MiB),)
    large_body_bytes: int = LARGE_BODY_BYTES
    runs: int = 3  # the median counts
    seconds: float = 8  # short queries are asked more often, for so long
    lookups: int = 6  # the first warms up
    shares_jvm: bool = False  # one for all parts: a JVM takes seconds to start and is warm then

    def count(self, log_bytes: float, body_bytes: int = 1 * KiB) -> int:
        """Return how many messages make a log of about this size."""
        return max(1, round(log_bytes / (spark_log.RECORD_BYTES - 1 * KiB + body_bytes)))


SMOKE = Size(
    log_bytes=1_000_000,
    warm_bytes=100_000,
    shares=(2, 1),
    files=(("segment_bytes", 512 * KiB), ("index_slots", 1_250), ("index_items", 1_000)),
    small_files=(("segment_bytes", 512 * KiB),),
    large_body_bytes=256 * KiB,
    runs=1,
    seconds=0,
    lookups=2,
    shares_jvm=True,
)


def full_size(gigabytes: float) -> Size:
    log_bytes = round(gigabytes * 1e9)
    return Size(log_bytes, max(log_bytes // 20, 20_000_000), shares=(8, 4, 2, 1))
