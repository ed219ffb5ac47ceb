"""`orbitmq spark export`."""

import signal
import sys
import threading
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitmq.cli.output import Output, bytes_text, note, print_json
from orbitmq.cli.spark.options import Conf, Master, require_pyspark, spark_context
from orbitmq.cli.store import Config, OutputForm
from orbitmq.errors import ConfigError

if TYPE_CHECKING:
    from orbitmq.spark.jobs.export.report import ExportReport


class LakeFormat(StrEnum):
    """What the tables of a lake can be."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class BodyForm(StrEnum):
    """What bodies become."""

    BINARY = "binary"
    JSON = "json"
    VARIANT = "variant"


class BadBytes(StrEnum):
    """What becomes of places of the log that hold no record."""

    FAIL = "fail"
    SKIP = "skip"


From = Annotated[
    str, typer.Option("--from", metavar="DIR", help="The store to export; or s3://bucket/prefix.")
]
FromCluster = Annotated[
    str, typer.Option("--namesrv", help='Export a cluster\'s topics instead, as "a:9876;b:9876".')
]
To = Annotated[
    str,
    typer.Option(
        "--to", metavar="DIR", help="The lake, made if it is not there; or s3://bucket/prefix."
    ),
]
TableFormat = Annotated[LakeFormat, typer.Option("--format", help="What the tables are.")]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", help="Only this topic; may be given many times. Else all but system's."
    ),
]
Since = Annotated[
    str | None,
    typer.Option(help="Start with messages stored then (now-1d, 2026-11-15T20:31); fills in too."),
]
FromOffset = Annotated[
    int | None, typer.Option(help="Start at this offset; 0 fills in all that is still there.")
]
BadRecords = Annotated[
    BadBytes, typer.Option(help="What to do where the log is damaged, or was deleted.")
]
Follow = Annotated[bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")]
Interval = Annotated[
    float, typer.Option(min=0.0, help="Seconds between two looks of --follow at the source.")
]
Body = Annotated[
    BodyForm,
    typer.Option(
        help="json: bodies become a column `value` too; misfits go to TOPIC~dlq."
        " variant: the same without fields, each value brings its own (parquet, delta)."
    ),
]
Schema = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help='Fields of bodies by topic, as {"Orders": {"id": "bigint"}}; else as messages tell.',
    ),
]
Catalog = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Database of Iceberg tables at s3://, as sqlite:////var/lib/lake.db."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count what is new; write nothing.")]


def export(
    to: To,
    from_: From = "",
    namesrv: FromCluster = "",
    format_: TableFormat = LakeFormat.PARQUET,
    topic: Topics = None,
    since: Since = None,
    from_offset: FromOffset = None,
    body: Body = BodyForm.BINARY,
    schema: Schema = None,
    bad_records: BadRecords = BadBytes.FAIL,
    follow: Follow = False,
    interval: Interval = 5.0,
    catalog: Catalog = None,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    config: Config = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Bring messages into tables of a lake, one for each topic: Parquet by day, Delta or Iceberg.

    Again brings what is new since. Killed at any moment and started again, each message is there once. Bodies
    that cannot be read go to the table TOPIC~dlq, with the reason.
    """
    if follow and dry_run:
        raise ConfigError("--dry-run", True, "counts once; leave --follow out")
    require_pyspark()
    from orbitmq.cli.spark.progress import shown_progress
    from orbitmq.settings import load_settings
    from orbitmq.spark.jobs.export.job import ExportJobs
    from orbitmq.spark.jobs.export.job import From as Source
    from orbitmq.spark.jobs.export.options import ExportOptions

    # What is wrong with the options, or is no store, shows before Spark starts.
    options = ExportOptions.of(
        to,
        format=format_,
        topics=topic or (),
        since=since,
        from_offset=from_offset,
        body=body,
        schema=schema,
        bad_records=bad_records,
        dry_run=dry_run,
        catalog=catalog,
    )
    source = Source.of(from_, namesrv, load_settings(config))
    if follow:
        source.require_grows()
    with spark_context(master, conf) as spark, shown_progress(spark) as progress:
        jobs = ExportJobs(spark, source, options, progress)
        report = jobs.follow(_stopped_by_signals(), _show, interval) if follow else jobs.once()
    if output is Output.JSON:
        print_json(export_value(report))
    else:
        print_export(report)


def _stopped_by_signals() -> threading.Event:
    """Return what is set when the command shall end, after the round that is under way."""
    over = threading.Event()

    def stop(*_: object) -> None:
        note("stopping after the round that is under way")
        over.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return over


def _show(report: "ExportReport") -> None:
    """Tell of a round that brought something: text on a terminal, JSON lines elsewhere."""
    import msgspec

    if not report.rows and not report.misfits:
        return
    is_terminal = sys.stderr.isatty()
    line = _text(report) if is_terminal else msgspec.json.encode(export_value(report)).decode()
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def export_value(report: "ExportReport") -> dict[str, Any]:
    """Return an export's result as JSON prints it."""
    seconds = {stage: round(seconds, 3) for stage, seconds in report.seconds.items()}
    return asdict(report) | {"to": str(report.to), "seconds": seconds}


def print_export(report: "ExportReport") -> None:
    typer.echo(_text(report))
    if report.finished:
        typer.echo(f"{report.finished} of the files had been written by a run that was killed")
    for name, topic in sorted(report.topics.items()):
        dlq = f", {topic.misfits:,} in {name}~dlq" if topic.misfits else ""
        typer.echo(f"  {name}: {topic.rows:,} rows{dlq}")
    if report.bad_places:
        typer.echo(f"{report.bad_places:,} places of the log hold no record: skipped")


def _text(report: "ExportReport") -> str:
    source = f"from {bytes_text(report.read_bytes)} of the source"
    if report.dry_run:
        return f"dry run: {report.rows:,} rows of {len(report.topics)} topics are new, {source}"
    if not report.files:
        return f"nothing new, {source}; {report.to} is at commit {report.commit}"
    rows = f"{report.rows:,} rows of {len(report.topics)} topics"
    files = f"{report.files:,} files ({bytes_text(report.bytes)})"
    return f"exported {rows} to {files} of {report.to}, {source}; commit {report.commit}"
