"""`orbitmq spark lake`: care for the tables that `orbitmq spark export` made."""

from dataclasses import asdict
from typing import Annotated

import typer

from orbitmq.cli.output import Output, print_json
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
def compact(root: Lake, catalog: Catalog = None, output: OutputForm = Output.TABLE) -> None:
    """Make few files of many small ones, day by day; no row changes. For lakes in Delta."""
    require_pyspark()
    from orbitmq.spark.jobs.export.care import compact as compact_tables

    done = compact_tables(root, catalog=catalog)
    if output is Output.JSON:
        print_json({name: {"removed": old, "added": new} for name, (old, new) in done.items()})
        return
    for name, (old, new) in done.items():
        typer.echo(f"{name}: {old} files became {new}")
