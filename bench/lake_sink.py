"""The sink (`df.write.format("orbitmq")`) against RocketMQ's Java client: batches of 64 from two threads.

Both send to one broker of ours, by turns. Rows are those of a load (`lake_load`): 1 KiB, a key, a tag, in a
Parquet file that the sink reads while the clock runs; the Java client makes its messages (1 KiB, no key) as
it sends them. The sink's clock stops when `save` returns: every row is stored and answered, once.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker_drive import java_client
from broker_sides import Side, require_count
from compat.java_store import why_not
from harness import Line
from lake_load import BATCH, SENDERS, WARM_ROWS, write_table
from orbitmq.spark.start.session import make_session
from orbitmq.units import MiB

GOAL = 1.0


@dataclass(frozen=True)
class Size:
    """How much work a run does."""

    rows: int
    runs: int
    seconds: float  # of the Java client's sends
    settings: tuple[tuple[str, str], ...] = ()


SIZES = {
    "full": Size(1_000_000, 3, 10.0),
    "smoke": Size(20_000, 1, 2.0, (("mappedFileSizeCommitLog", str(64 * MiB)),)),
}


def lines(name: str, directory: Path) -> list[Line]:
    """Measure both by turns and compare them."""
    size = SIZES[name]
    directory.mkdir(parents=True)
    table, warm = directory / "table.parquet", directory / "warm.parquet"
    write_table(table, size.rows)
    write_table(warm, WARM_ROWS)
    spark = make_session(app="orbitmq-bench")
    ours, theirs = [], []
    try:
        with Side("ours", directory, dict(size.settings)).running() as side:
            send(spark, warm, side, WARM_ROWS)
            for _ in range(size.runs):
                ours.append(size.rows / send(spark, table, side, size.rows))
                if not why_not():
                    options = side.new_topic(), SENDERS, BATCH, size.seconds
                    theirs.append(java_client(side, "send", *options)["rate"])
    finally:
        spark.stop()
    what = f"{size.rows:,} rows of 1 KiB to a topic: Java's batches".replace(",", " ")
    return [Line(what, max(ours), max(theirs, default=None), "/s", GOAL)]


def send(spark: Any, table: Path, side: Side, count: int) -> float:
    """Send all rows of a table to a new topic; return how long that took."""
    topic, frame = side.new_topic(), spark.read.parquet(str(table))
    start = time.perf_counter()
    options = {"namesrv": side.namesrv, "topic": topic}
    frame.write.format("orbitmq").mode("append").options(**options).save()
    seconds = time.perf_counter() - start
    require_count(side, topic, count)
    return seconds
