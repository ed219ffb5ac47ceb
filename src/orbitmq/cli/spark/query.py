"""`orbitmq spark query`."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from orbitmq.cli.output import Output, note, print_json, print_lines, print_table
from orbitmq.cli.spark.export import BadBytes
from orbitmq.cli.spark.options import Conf, Master, open_session, require_pyspark
from orbitmq.cli.spark.query_text import (
    MESSAGE_HEADER,
    cells,
    figures_text,
    json_line,
    message_cells,
)
from orbitmq.cli.store import Config, OutputForm
from orbitmq.errors import JobFailedError, StaleQueryError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from orbitmq.spark.jobs.query.figures import QueryFigures
    from orbitmq.spark.jobs.query.job import Query
    from orbitmq.spark.jobs.query.options import QueryOptions

TABLE_ROWS: Final = 50
"""Shown on a terminal unless --limit says something else."""
TRIES: Final = 3
"""Of a query from whose log or lake something is deleted meanwhile."""
ORDER: Final = ("store_time", "store_host", "log_offset")

From = Annotated[str, typer.Option("--from", metavar="DIR", help="Store directory to look into.")]
Namesrv = Annotated[
    str, typer.Option("--namesrv", help='Ask a cluster\'s brokers instead, as "a:9876;b:9876".')
]
LakeDir = Annotated[
    str,
    typer.Option(
        "--lake", metavar="DIR", help="Look into this lake too, or alone; or s3://bucket/prefix."
    ),
]
Catalog = Annotated[
    str,
    typer.Option(metavar="URL", help="Database of Iceberg tables at s3:// (--catalog of export)."),
]
Key = Annotated[list[str] | None, typer.Option("--key", help="Messages with this key; many times.")]
Id = Annotated[
    list[str] | None, typer.Option("--id", help="This message, by either id; many times.")
]
Tag = Annotated[list[str] | None, typer.Option("--tag", help="Messages with this tag; many times.")]
Topic = Annotated[
    list[str] | None, typer.Option("--topic", help="Messages of this topic; many times.")
]
Body = Annotated[
    str,
    typer.Option(
        metavar="REGEX", help="Java's regular expression, found anywhere in the body as UTF-8."
    ),
]
Sql92 = Annotated[
    str, typer.Option("--sql92", help="Messages whose properties match, as in 'a > 3'.")
]
Since = Annotated[
    str, typer.Option(help="Stored then or later: now-1h, 2026-11-15T20:31, milliseconds.")
]
Until = Annotated[str, typer.Option(help="Stored before; as --since.")]
Sql = Annotated[
    str,
    typer.Option(
        "--sql", metavar="SELECT", help="A query over the view `messages`: what else is selected."
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(min=1, help=f"Show so many; default: all, but for a table {TABLE_ROWS}."),
]
Count = Annotated[bool, typer.Option("--count", help="Say how many there are, and no more.")]
BadRecords = Annotated[BadBytes, typer.Option(help="What to do where the log is damaged.")]


def query(
    from_: From = "",
    namesrv: Namesrv = "",
    lake: LakeDir = "",
    catalog: Catalog = "",
    key: Key = None,
    message_id: Id = None,
    tag: Tag = None,
    topic: Topic = None,
    body: Body = "",
    sql92: Sql92 = "",
    since: Since = "",
    until: Until = "",
    sql: Sql = "",
    limit: Limit = None,
    count: Count = False,
    bad_records: BadRecords = BadBytes.FAIL,
    master: Master = None,
    conf: Conf = None,
    config: Config = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Find messages in a log and a lake as if they were one: each message once, whichever holds it.

    What selects must hold all together; without anything all messages are meant. Nothing is cut off at 64.
    Keys and ids go through index files, consume queues and Parquet statistics; a line on standard error says
    which, and how many bytes were read. --sql asks the view `messages`, which has the columns of
    docs/SPARK-READING.md:

    orbitmq spark query --from DIR --lake LAKE --sql "SELECT topic, count(*) FROM messages GROUP BY topic"

    Messages come in the order of their store time, one line of JSON each with --output json. Exit code 1 if
    there are none.
    """
    require_pyspark()
    from orbitmq.spark.jobs.query.options import QueryOptions

    # What is wrong with the options shows before Spark starts.
    options = QueryOptions.of(
        store=from_,
        namesrv=namesrv,
        lake=lake,
        config=config or "",
        topics=topic or (),
        keys=key or (),
        ids=message_id or (),
        tags=tag or (),
        sql92=sql92,
        body=body,
        since=since,
        until=until,
        bad_records=bad_records,
        sql=sql,
        catalog=catalog,
    )
    session = open_session(master, conf)
    try:
        found = _Asking(session, options, limit, output).run(only_count=count)
    finally:
        session.stop()
    if not found and not sql and not count:
        note("no such message")
        raise typer.Exit(code=1)


class _Asking:
    """One run of the command. Not thread-safe."""

    def __init__(
        self, session: "SparkSession", options: "QueryOptions", limit: int | None, output: Output
    ) -> None:
        self._session, self._options, self._output = session, options, output
        is_table = output is Output.TABLE
        self._limit = TABLE_ROWS if limit is None and is_table else limit
        self._printed = False

    def run(self, *, only_count: bool) -> int:
        """Ask, print, say what was read; return how many were found. Asks again what is out of date."""
        for tries_left in reversed(range(TRIES)):
            try:
                return self._once(only_count=only_count)
            except StaleQueryError:
                if not tries_left or self._printed:
                    raise
        raise AssertionError("the last try returns or raises")

    def _once(self, *, only_count: bool) -> int:
        from orbitmq.cli.spark.progress import shown_progress
        from orbitmq.spark.jobs.query.job import Query

        with (
            tempfile.TemporaryDirectory(prefix="orbitmq-query-") as figures,
            shown_progress(self._session) as progress,
        ):
            progress.stage("query")
            asked = Query(self._session, self._options, figures)
            with _clear_errors(asked):
                frame = asked.frame()
                found = self._counted(frame) if only_count else self._shown(frame)
            _tell(asked.figures(), self._output)
        return found

    def _counted(self, frame: "DataFrame") -> int:
        found = frame.count()
        if self._output is Output.JSON:
            print_json({"count": found})
        else:
            typer.echo(found)
        return found

    def _shown(self, frame: "DataFrame") -> int:
        if self._limit is None:
            return self._all(frame)
        rows, total = self._first(frame, self._limit + 1)
        shown = rows[: self._limit]
        self._printed = True
        if self._output is Output.JSON:
            print_lines(map(json_line, shown))
        else:
            self._print_table(frame.columns, shown)
        if len(rows) > self._limit:
            more = f"{total - len(shown):,} more" if total else "there are more"
            note(f"{more}; --limit shows more of them, --output json all")
        return len(rows)

    def _first(self, frame: "DataFrame", count: int) -> "tuple[list[Row], int]":
        """Return the first rows, and how many there are: counted on their way, for both in one read.

        What SQL gives comes in its own order, so it ends with the last one that is wanted; 0: not counted.
        """
        if self._options.sql:
            return frame.limit(count).collect(), 0
        from pyspark.sql import Observation
        from pyspark.sql.functions import count as count_of
        from pyspark.sql.functions import lit

        seen = Observation()
        counted = frame.observe(seen, count_of(lit(1)).alias("rows"))
        rows = counted.orderBy(*ORDER).limit(count).collect()
        return rows, int(seen.get["rows"]) if len(rows) == count else len(rows)

    def _all(self, frame: "DataFrame") -> int:
        """Print all as they come; only what is shown has to fit into memory."""
        # Not orderBy, which reads everything twice, to find out how to share it among tasks.
        ordered = frame if self._options.sql else frame.repartition(1).sortWithinPartitions(*ORDER)
        found, rows = 0, ordered.toLocalIterator()
        while piece := list(islice(rows, 1_000)):
            self._printed = True
            print_lines(map(json_line, piece))
            found += len(piece)
        sys.stdout.flush()
        return found

    def _print_table(self, columns: list[str], rows: "list[Row]") -> None:
        if self._options.sql:
            print_table(columns, [cells(row) for row in rows])
        elif rows:
            print_table(MESSAGE_HEADER, [message_cells(row) for row in rows])


@contextmanager
def _clear_errors(asked: "Query") -> Iterator[None]:
    """Raise errors of Spark as ours; files of the lake that are gone are the reason, if any are."""
    from orbitmq.spark.failures import clear_errors

    try:
        with clear_errors("query"):
            yield
    except JobFailedError:
        asked.require_lake()
        raise


def _tell(figures: "QueryFigures", output: Output) -> None:
    if output is Output.JSON:
        import msgspec

        sides = {name: side for name, side in asdict(figures).items() if side is not None}
        sys.stderr.write(msgspec.json.encode({"read": sides}).decode() + "\n")
        sys.stderr.flush()
    else:
        note(figures_text(figures))
