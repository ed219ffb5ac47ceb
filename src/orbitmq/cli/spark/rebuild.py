"""`orbitmq spark rebuild`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitmq.cli.output import Output, bytes_text, print_json
from orbitmq.cli.spark.options import Conf, Config, Master, OutputForm, Root, spark_context
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


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(rebuild)


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
    scope = _scope(topics, only)  # what is wrong with the options shows before Spark starts
    _require_store(root, config)
    report = _run(root, scope, to, master, conf, config, dry_run=dry_run)
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


def _require_store(root: Path, config: Path | None) -> None:
    from orbitmq.settings import load_settings
    from orbitmq.store.offline.tools import config_of

    config_of(root, load_settings(config))


def _run(
    root: Path,
    scope: "Scope",
    to: Path | None,
    master: str | None,
    conf: list[str] | None,
    config: Path | None,
    *,
    dry_run: bool,
) -> "RebuildReport":
    from orbitmq.cli.spark.progress import shown_progress
    from orbitmq.settings import load_settings
    from orbitmq.spark.jobs.rebuild.job import RebuildOptions
    from orbitmq.spark.jobs.rebuild.job import rebuild as rebuild_on_spark

    options = RebuildOptions(scope, to, dry_run=dry_run)
    with spark_context(master, conf) as spark, shown_progress(spark) as progress:
        return rebuild_on_spark(spark, root, load_settings(config), options, progress=progress)


def rebuild_value(report: "RebuildReport") -> dict[str, Any]:
    """Return a rebuild's result as JSON prints it."""
    return {
        "dry_run": report.dry_run,
        "root": str(report.root),
        "records": report.records,
        "log_bytes": report.log_bytes,
        "queues": report.queues,
        "units": report.units,
        "index_files": report.index_files,
        "index_entries": report.index_entries,
        "conflicts": report.conflicts,
        "trusted": report.trusted,
        "kept": [str(path) for path in report.kept],
        "shuffle_bytes": report.shuffle_bytes,
        "seconds": {stage: round(seconds, 3) for stage, seconds in report.seconds.items()},
    }


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
