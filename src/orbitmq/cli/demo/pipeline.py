"""The pipeline's part of the demo: the log that the broker left behind, on Spark.

Queues and index are thrown away and made again from the bare log, byte for byte; then the store is verified
and asked as a table, and brought into a lake that another engine reads. Without the extra `spark` this part
is left out, and says so.
"""

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.markup import escape

from orbitmq.cli.demo.live import TOPIC, body
from orbitmq.cli.demo.load import key
from orbitmq.cli.demo.report import Report, Timer
from orbitmq.cli.output import bytes_text
from orbitmq.cli.spark.options import require_pyspark
from orbitmq.errors import SparkSetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS: Final = 3
DERIVED: Final = ("consumequeue", "index")


class PipelineDemo:
    """The steps. `numbers` are the messages that a consumer read from the store before it was stopped."""

    def __init__(self, report: Report, root: Path, numbers: list[int]) -> None:
        self.report, self.line = report, report.line
        self.root, self.numbers = root, numbers
        self.files = derived_files(root)
        self.lake = root.parent / "lake"
        self._random = random.Random(20_240_302)

    def run(self) -> None:
        self.report.console.print()
        try:
            require_pyspark()
        except SparkSetupError as error:
            self.report.heading(f"Spark is left out: {escape(str(error))}")
            return
        self.report.heading("The same store without a broker: its bare log, on Spark.")
        with self.session() as spark:
            self.throw_away()
            self.rebuild(spark)
            self.verify(spark)
            self.query_by_key(spark)
            self.count_by_topic(spark)
            self.export(spark)
        self.read_elsewhere()

    @contextmanager
    def session(self) -> "Iterator[SparkSession]":
        from orbitmq.spark.start.session import make_session

        # What Spark leaves on the disk goes with the demo's directory; few rows need few tasks.
        scratch = str(self.root.parent / "spark")
        conf = {"spark.local.dir": scratch, "spark.sql.shuffle.partitions": "2"}
        with Timer() as timer:
            spark = make_session(app="orbitmq demo", master="local[*]", conf=conf, quiet=True)
        try:
            self.line("spark", f"{spark.version} is ready on this machine", timer, ok=True)
            yield spark
        finally:
            spark.stop()

    def throw_away(self) -> None:
        for name in DERIVED:
            shutil.rmtree(self.root / name)
        (self.root / "checkpoint").unlink()
        gone = not derived_files(self.root)
        self.line("delete", "all queues and the index", ok=gone and bool(self.files))

    def rebuild(self, spark: "SparkSession") -> None:
        from orbitmq.spark.jobs.rebuild.job import rebuild

        with Timer() as timer:
            made = rebuild(spark, self.root)
        same = derived_files(self.root) == self.files
        text = f"{made.units:,} units, {made.index_entries:,} keys"
        self.line("rebuild", text, timer, made.records, ok=made.units >= len(self.numbers))
        self.line("", f"{len(self.files)} files, each byte as the broker wrote it", ok=same)
        self.report.remark(
            f"{bytes_text(made.log_bytes)} of log read; {bytes_text(made.shuffle_bytes)} shuffled"
        )

    def verify(self, spark: "SparkSession") -> None:
        from orbitmq.spark.jobs.verify.job import verify

        self.report.findings("verify", lambda: verify(spark, self.root).findings)

    def query_by_key(self, spark: "SparkSession") -> None:
        wanted = self._random.sample(self.numbers, KEYS)
        keys = ",".join(key(n) for n in wanted)
        with Timer() as timer:
            table = spark.read.format("orbitmq").option("keys", keys).load(str(self.root))
            rows = table.select("body").collect()
        ok = sorted(bytes(row["body"]) for row in rows) == sorted(body(n) for n in wanted)
        self.line("query", f"{len(rows)} messages by key, through the index", timer, ok=ok)

    def count_by_topic(self, spark: "SparkSession") -> None:
        with Timer() as timer:
            reader = spark.read.format("orbitmq").schema("topic string")
            table = reader.option("includeBody", "false").load(str(self.root))
            counts = {
                row["topic"]: row["count"] for row in table.groupBy("topic").count().collect()
            }
        found = counts.get(TOPIC, 0)
        ok = found == len(self.numbers)
        self.line("count", f"{found:,} messages of {TOPIC}, by topic", timer, found, ok=ok)

    def export(self, spark: "SparkSession") -> None:
        from orbitmq.spark.jobs.export.job import export

        with Timer() as timer:
            made = export(spark, self.lake, store=self.root, topics=[TOPIC])
        text = f"{made.rows:,} rows, {bytes_text(made.bytes)} of Parquet"
        self.line("export", text, timer, made.rows, ok=made.rows == len(self.numbers))

    def read_elsewhere(self) -> None:
        """Let an engine that knows nothing of us read the lake: the rows are those that were consumed."""
        try:
            import duckdb
        except ImportError:
            self.report.remark("no other engine reads the lake: pip install duckdb")
            return
        files = str(self.lake / TOPIC / "**" / "*.parquet")
        with Timer() as timer, duckdb.connect() as connection:
            rows = connection.execute("SELECT body FROM read_parquet(?)", [files]).fetchall()
        ok = sorted(row[0] for row in rows) == sorted(body(n) for n in self.numbers)
        self.line("duckdb", f"{len(rows):,} messages read from the lake", timer, len(rows), ok=ok)


def derived_files(root: Path) -> list[tuple[str, bytes]]:
    """Return queues and index files with their bytes.

    An index file is named by the time at which it was made, so only its place in the order counts. A file
    may have its full length or end with its last unit: zeros at the end do not count either.
    """
    return [
        (path.relative_to(root).as_posix() if name == DERIVED[0] else name, _bytes_of(path))
        for name in DERIVED
        for path in sorted((root / name).rglob("*"))
        if path.is_file()
    ]


def _bytes_of(path: Path) -> bytes:
    return path.read_bytes().rstrip(b"\0")
