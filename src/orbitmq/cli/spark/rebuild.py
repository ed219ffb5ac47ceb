"""`orbitmq spark rebuild`."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitmq.cli.output import Output, bytes_text, print_json
from orbitmq.cli.spark.options import Conf, Master, spark_context
from orbitmq.cli.store import Config, OutputForm, Root
from orbitmq.errors import ConfigError

if TYPE_CHECKING:
    from orbitmq.spark.jobs.rebuild.job import RebuildReport
    from orbitmq.store.offline.exchange import Scope


class Only(StrEnum):
    """The two halves of a rebuild."""

    QUEUES = "queues"
    INDEX = "index"


Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topics",
        metavar="TOPIC,...",
        help="Only the queues of these topics; the index stays. May be given many times.",
    ),
]
OnlyPart = Annotated[Only | None, typer.Option(help="Make only one half anew.")]
To = Annotated[
    Path | None,
    typer.Option(metavar="OTHER_DIR", help="Write there; the store stays as it is."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read the log; change nothing.")]


def rebuild(
    root: Root,
    topics: Topics = None,
    only: OnlyPart = None,
    to: To = None,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    config: Config = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Make consume queues and index anew, from the commit log alone. The store must be stopped.

    New files are made beside the old ones and take their place at the very end; the old ones are kept in
    the quarantine. A dry run reads the log and says what would be made.
    """
    from orbitmq.cli.spark.progress import shown_progress
    from orbitmq.settings import load_settings
    from orbitmq.store.offline.tools import config_of

    # What is wrong with the options, or is no store, shows before Spark starts.
    scope, settings = _scope(topics, only), load_settings(config)
    config_of(root, settings)
    with spark_context(master, conf) as spark, shown_progress(spark) as progress:
        from orbitmq.spark.jobs.rebuild.job import RebuildOptions
        from orbitmq.spark.jobs.rebuild.job import rebuild as rebuild_store

        options = RebuildOptions(scope, to, dry_run=dry_run)
        report = rebuild_store(spark, root, settings, options, progress=progress)
    if output is Output.JSON:
        print_json(rebuild_value(report))
    else:
        print_rebuild(report)


def _scope(topics: list[str] | None, only: Only | None) -> "Scope":
    from orbitmq.store.offline.exchange import Scope

    if topics is None:
        return Scope(queues=only is not Only.INDEX, index=only is not Only.QUEUES)
    names = frozenset(name.strip() for text in topics for name in text.split(",") if name.strip())
    if not names:
        raise ConfigError("--topics", ",".join(topics), "names no topic")
    if only is Only.INDEX:
        raise ConfigError(
            "--topics", ",".join(sorted(names)), "an index has the keys of all topics"
        )
    return Scope(index=False, topics=names)


def rebuild_value(report: "RebuildReport") -> dict[str, Any]:
    """Return a rebuild's result as JSON prints it."""
    seconds = {stage: round(seconds, 3) for stage, seconds in report.seconds.items()}
    kept = [str(path) for path in report.kept]
    return asdict(report) | {"root": str(report.root), "kept": kept, "seconds": seconds}


def print_rebuild(report: "RebuildReport") -> None:
    did = "dry run: would be made" if report.dry_run else "made"
    log = f"{report.records} records ({bytes_text(report.log_bytes)})"
    queues = f"{report.queues} queues with {report.units} units"
    index = f"{report.index_files} index files with {report.index_entries} entries"
    typer.echo(f"{did} from {log}: {queues}, {index}")
    if report.conflicts:
        typer.echo(f"{report.conflicts} records have a queue offset that another one has: left out")
    if not report.dry_run and not report.trusted:
        typer.echo("the next start compares the store with its log")
    if report.kept:
        typer.echo(f"the old files are in {report.kept[0].parent}")
