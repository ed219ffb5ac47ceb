"""`orbitmq spark load`."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitmq.cli.output import Output, bytes_text, print_json
from orbitmq.cli.spark.options import Conf, Master, open_session, require_pyspark
from orbitmq.cli.store import Config, OutputForm
from orbitmq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.spark.jobs.load.job import LoadReport


class TableFormat(StrEnum):
    """What a table may be read from."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"
    ORC = "orc"
    ORBITMQ = "orbitmq"


_SUFFIXES = {".jsonl": "json", ".ndjson": "json", ".tsv": "csv"}

Source = Annotated[
    str,
    typer.Argument(metavar="SOURCE", help="A file or directory that Spark reads, on any machine."),
]
To = Annotated[
    Path, typer.Option(metavar="STORE_DIR", help="The new store: empty, or not there yet.")
]
Format = Annotated[
    TableFormat | None,
    typer.Option("--format", help="Of SOURCE; default by its name, else parquet."),
]
Option = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="For Spark's reader; many times."),
]
Select = Annotated[
    list[str] | None,
    typer.Option(
        metavar="EXPRESSION",
        help="A column in Spark's SQL, as in 'order_id AS sharding_key'; many times. Default: all.",
    ),
]
Topic = Annotated[str | None, typer.Option(help="Of all rows; default: the column topic.")]
Queues = Annotated[int, typer.Option(help="Of a topic whose rows do not name theirs.")]
OrderBy = Annotated[
    str | None,
    typer.Option("--order-by", metavar="COLUMN,...", help="Sort first; default: as it is read."),
]
StoreHost = Annotated[
    str | None,
    typer.Option("--store-host", metavar="IP:PORT", help="Of the broker that will serve it."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read and check all rows; write nothing.")]


def load(
    source: Source,
    to: To,
    table_format: Format = None,
    option: Option = None,
    select: Select = None,
    topic: Topic = None,
    queues: Queues = 4,
    order_by: OrderBy = None,
    store_host: StoreHost = None,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    config: Config = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Make a store directory of a table: log, queues, index and topics, for a broker to serve.

    Columns are named as in a table that is read from a store: topic, body, tags, keys, queue_id, properties,
    born_time, message_id; sharding_key chooses a queue. The store is there whole, or not at all.
    """
    require_pyspark()
    from orbitmq.cli.spark.progress import shown_progress
    from orbitmq.settings import load_settings
    from orbitmq.spark.jobs.load.staging import require_new

    # What is wrong with the options shows before Spark starts.
    settings = {**load_settings(config), **_host(store_host)}
    require_new(to)
    reading = dict(_pair(text) for text in option or ())
    session = open_session(master, conf)
    try:
        from orbitmq.spark.failures import clear_errors
        from orbitmq.spark.jobs.load.job import LoadOptions
        from orbitmq.spark.jobs.load.job import load as load_table

        with clear_errors("reading the table"):
            frame = _frame(session, source, table_format, reading, select)
        columns = tuple(name.strip() for name in (order_by or "").split(",") if name.strip())
        options = LoadOptions(topic, queues, columns, dry_run=dry_run)
        with shown_progress(session) as progress:
            report = load_table(frame, to, settings, options, progress=progress)
    finally:
        session.stop()
    if output is Output.JSON:
        print_json(load_value(report))
    else:
        typer.echo(load_text(report))


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ConfigError("--option", text, "must be NAME=VALUE")
    return name, value


def _host(text: str | None) -> dict[str, str]:
    """Return the settings by which a broker has this address, which offset ids name."""
    if text is None:
        return {}
    address, sign, port = text.rpartition(":")
    if not sign or not port.isdecimal():
        raise ConfigError("--store-host", text, "must be IP:PORT")
    return {"brokerIP1": address, "listenPort": port}


def _frame(
    session: "SparkSession",
    source: str,
    given: TableFormat | None,
    reading: dict[str, str],
    select: list[str] | None,
) -> "DataFrame":
    suffix = Path(source).suffix.lower()
    name = given or _SUFFIXES.get(suffix, suffix[1:])
    table_format = name if name in list(TableFormat) else TableFormat.PARQUET
    defaults = {"header": "true"} if table_format == TableFormat.CSV else {}
    frame = session.read.format(str(table_format)).options(**{**defaults, **reading}).load(source)
    return frame.selectExpr(*select) if select else frame


def load_value(report: "LoadReport") -> dict[str, Any]:
    """Return a load's result as JSON prints it."""
    seconds = {stage: round(seconds, 3) for stage, seconds in report.seconds.items()}
    return asdict(report) | {"root": str(report.root), "seconds": seconds}


def load_text(report: "LoadReport") -> str:
    did = "dry run: would be loaded" if report.dry_run else "loaded"
    rows = f"{report.records} messages ({bytes_text(report.record_bytes)})"
    parts = f"{len(report.topics)} topics with {report.queues} queues"
    lines = [f"{did} into {report.root}: {rows}, {parts}"]
    lines += [f"  {topic}: {count}" for topic, count in report.topics.items()]
    return "\n".join(lines)
