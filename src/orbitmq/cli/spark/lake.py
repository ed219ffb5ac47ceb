"""`orbitmq spark lake`: care for the tables that `orbitmq spark export` made."""

import sys
import time
from dataclasses import asdict
from typing import Annotated

import typer

from orbitmq.cli.output import Output, bytes_text, print_json
from orbitmq.cli.spark.options import require_pyspark
from orbitmq.cli.store import DryRun, OutputForm

app = typer.Typer(help="Care for the tables of a lake.", no_args_is_help=True)


Lake = Annotated[str, typer.Argument(metavar="DIR", help="The lake (--to of the export).")]
Catalog = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Database of Iceberg tables at s3:// (--catalog of the export)."
    ),
]


@app.command()
def expire(
    root: Lake,
    keep: Annotated[
        list[str],
        typer.Option(
            metavar="TOPIC=DAYS",
            help="Keep a topic so long (Orders=30d); '*=90d' is for all others. Many times.",
        ),
    ],
    catalog: Catalog = None,
    dry_run: DryRun = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Remove the days of each topic that are older than it is to be kept, for good.

    The next export goes on where the last one was: nothing that was removed comes again.
    """
    require_pyspark()
    from orbitmq.spark.jobs.export.care import expire as expire_days
    from orbitmq.spark.jobs.export.care import parse_keep

    report = expire_days(root, parse_keep(keep), dry_run=dry_run, catalog=catalog)
    if output is Output.JSON:
        print_json(asdict(report) | {"lake": str(report.lake), "dry_run": dry_run})
        return
    did = "would remove" if dry_run else "removed"
    for table, day in report.expired.items():
        typer.echo(f"{table}: {did} the days before {day}")


@app.command()
def compact(
    root: Lake,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Only tables of this topic; many times.")
    ] = None,
    cluster_by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Sort the rows of each day by this column, as keys or tags; many times.",
        ),
    ] = None,
    target_mb: Annotated[int, typer.Option(min=1, help="Megabytes of a file that is made.")] = 128,
    exclusive: Annotated[
        bool,
        typer.Option(
            "--exclusive", help="Nobody reads the directories of Parquet files meanwhile."
        ),
    ] = False,
    catalog: Catalog = None,
    dry_run: DryRun = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Make few files of many small ones, day by day, sorted if that is asked for; no row changes.

    It is a commit of the lake: killed at any moment, nothing is lost and nothing is there twice. An export
    goes on where it was.
    """
    require_pyspark()
    from orbitmq.spark.jobs.compact.job import compact as compact_tables

    report = compact_tables(
        root,
        topics=topic or (),
        cluster_by=cluster_by or (),
        target_bytes=target_mb << 20,
        exclusive=exclusive,
        dry_run=dry_run,
        catalog=catalog,
        on_bytes=_Shown(),
    )
    if output is Output.JSON:
        print_json(asdict(report) | {"lake": str(report.lake)})
        return
    for name, table in report.tables.items():
        old = f"{table.removed:,} files ({bytes_text(table.removed_bytes)}) of {table.days} days"
        if dry_run:
            typer.echo(f"{name}: {old} would be rewritten")
        else:
            new = f"{table.added:,} ({bytes_text(table.added_bytes)}), {table.rows:,} rows"
            typer.echo(f"{name}: {old} became {new}")
    if not report.tables:
        typer.echo("there is nothing to rewrite")


class _Shown:
    """How far it is, as jobs on Spark show it."""

    def __init__(self) -> None:
        from orbitmq.cli.spark.progress import ProgressBar, ProgressLines

        self._form = ProgressBar() if sys.stderr.isatty() else ProgressLines()
        self._began = time.monotonic()

    def __call__(self, done: int, total: int, rows: int) -> None:
        from orbitmq.spark.progress import StageProgress

        seconds = time.monotonic() - self._began
        self._form.show(StageProgress("compact", done, total, rows, seconds, done == total))
        if done == total:
            self._form.close()
