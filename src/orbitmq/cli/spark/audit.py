"""`orbitmq spark audit`."""

from pathlib import Path
from typing import Annotated

import typer

from orbitmq.cli.output import Output, note, print_json
from orbitmq.cli.spark.export import BadBytes
from orbitmq.cli.spark.options import Conf, Master, require_pyspark, spark_context
from orbitmq.cli.store import Config, OutputForm
from orbitmq.errors import ConfigError

From = Annotated[str, typer.Option("--from", metavar="DIR", help="The store to look at.")]
FromCluster = Annotated[
    str, typer.Option("--namesrv", help='Look at a cluster instead, as "a:9876;b:9876".')
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", help="Only this topic; may be given many times. Else all but system's."
    ),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", help="Only this consumer group; may be given many times."),
]
Since = Annotated[
    str | None,
    typer.Option(help="Messages stored then or later: now-1d, 2026-11-15T20:31, milliseconds."),
]
Until = Annotated[str | None, typer.Option(help="Stored before; as --since. Lag is that of now.")]
Subscription = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GROUP:TOPIC=EXPR",
        help="What a group wants where nobody tells: 'shop:Orders=A || B', 'shop:Orders=sql92:n > 3'.",
    ),
]
TraceTopic = Annotated[str, typer.Option(help="Where clients write what they did with messages.")]
Top = Annotated[int, typer.Option(min=1, help="So many of the worst duplicates are named.")]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write a page with tables and charts."),
]
BadRecords = Annotated[
    BadBytes, typer.Option(help="What to do where the log is damaged, or segments are missing.")
]


def audit(
    from_: From = "",
    namesrv: FromCluster = "",
    topic: Topics = None,
    group: Groups = None,
    since: Since = None,
    until: Until = None,
    subscription: Subscription = None,
    trace_topic: TraceTopic = "RMQ_SYS_TRACE_TOPIC",
    top: Top = 20,
    html: Html = None,
    bad_records: BadRecords = BadBytes.FAIL,
    master: Master = None,
    conf: Conf = None,
    config: Config = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show traffic, sizes, latency, duplicates, lag, retries, dead letters and traces. Changes nothing.

    Lag counts the messages that a group's tags or SQL92 filter let through. What a group wants is known from
    its members (--namesrv), from the store's own files, or from --subscription; else lag is "at most" that.
    """
    require_pyspark()
    from orbitmq.cli.spark.progress import shown_progress
    from orbitmq.settings import load_settings
    from orbitmq.spark.jobs.audit.job import run_audit
    from orbitmq.spark.jobs.audit.options import AuditOptions
    from orbitmq.spark.jobs.audit.sources import require_near
    from orbitmq.spark.jobs.export.job import From as Source

    # What is wrong with the options, or is no store, shows before Spark starts.
    options = AuditOptions.of(
        topics=topic or (),
        groups=group or (),
        since=since,
        until=until,
        subscriptions=subscription or (),
        trace_topic=trace_topic,
        bad_records=bad_records,
        top=top,
    )
    require_near(from_)
    source = Source.of(from_, namesrv, load_settings(config))
    _require_writable(html)
    with spark_context(master, conf) as spark, shown_progress(spark) as progress:
        report = run_audit(spark, source, options, progress)
    if html is not None:
        _write(html, report.html())
        note(f"{html} holds the report as a page")
    if output is Output.JSON:
        print_json(report.value())
    else:
        from orbitmq.cli.spark.audit_text import print_audit

        print_audit(report)


def _require_writable(path: Path | None) -> None:
    if path is not None and path.is_dir():
        raise ConfigError("--html", str(path), "is a directory, not a file")
    if path is not None and not path.absolute().parent.is_dir():
        raise ConfigError("--html", str(path), "there is no such directory")


def _write(path: Path, text: str) -> None:
    from orbitmq.files.disk import Disk
    from orbitmq.files.replace import replace_file

    replace_file(Disk(), path.absolute(), text.encode("utf-8"))
