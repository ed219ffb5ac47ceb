"""`orbitmq store`: look into a store directory, without a broker.

Read-only but for `rebuild` and `repair`. Everything works on a copy, on a store that a broker has open,
and on one without consume queues or index files.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli import bounds
from orbitmq.cli.output import Output, note, print_json, print_lines, progress
from orbitmq.errors import ConfigError

if TYPE_CHECKING:
    from orbitmq.settings import Settings
    from orbitmq.store.offline.reader import Found, OfflineStore, Selection

app = typer.Typer(help="Look into a store directory, check it and mend it.", no_args_is_help=True)


def _here(root: Path) -> Path:
    """Refuse the address of an object store; `Path` has made one slash of its two."""
    if str(root).lower().startswith("s3:/"):
        rule = (
            "a store at s3:// can be read, verified and exported (orbitmq spark); for anything else copy it"
            " to a directory"
        )
        raise ConfigError("DIR", str(root).replace(":/", "://", 1), rule)
    return root


Root = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="Store directory (storePathRootDir).", callback=_here),
]
Config = Annotated[
    Path | None,
    typer.Option(
        exists=True, dir_okay=False, help="broker.conf with the sizes that are not in the files."
    ),
]
OutputForm = Annotated[Output, typer.Option(help="How to print.")]
Topic = Annotated[str | None, typer.Option(help="Only this topic.")]
Queue = Annotated[int | None, typer.Option(help="Only this queue id.")]
From = Annotated[str | None, typer.Option("--from", help=f"First one. {bounds.HELP}.")]
To = Annotated[str | None, typer.Option("--to", help="Up to here, exclusive; as --from.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")]


@app.command()
def stat(
    root: Root,
    config: Config = None,
    output: OutputForm = Output.TABLE,
    scan: Annotated[
        bool, typer.Option("--scan", help="Read the log and count records and bytes per topic.")
    ] = False,
) -> None:
    """Show what a store holds: log, topics, index, checkpoint."""
    from orbitmq.cli.store_text import print_stat
    from orbitmq.store.offline.stat import stat as stat_store

    with _opened(root, config, "reading") as store:
        found = stat_store(store, read_log=scan)
    if output is Output.JSON:
        print_json(found)
    else:
        print_stat(found)


@app.command()
def check(root: Root, config: Config = None, output: OutputForm = Output.TABLE) -> None:
    """Read everything and list what is wrong: file, position, cause, what to run. Changes nothing.

    Exit code 1 for findings, 4 for a store that cannot be read.
    """
    from orbitmq.cli.store_text import check_value, print_check
    from orbitmq.store.verify.check import check_store

    with progress("checking") as show:
        report = check_store(root, _settings(config), progress=show)
    if output is Output.JSON:
        print_json(check_value(report))
    else:
        print_check(root, report)
    if report.findings:
        raise typer.Exit(code=1)


@app.command()
def dump(
    root: Root,
    config: Config = None,
    output: OutputForm = Output.TABLE,
    topic: Topic = None,
    queue: Queue = None,
    start: From = None,
    end: To = None,
) -> None:
    """Print the records of the log, in order. Exit code 1 if bad places were passed over."""
    from orbitmq.cli.store_text import DUMP_HEADER, dump_json, dump_line

    selection = _selection(topic, queue, start, end)
    with _opened(root, config, "dumping") as store:
        line = dump_json if output is Output.JSON else dump_line
        if output is Output.TABLE:
            typer.echo(DUMP_HEADER)
        print_lines(line(found) for found in store.iter_records(selection))
        if store.bad_places:
            raise typer.Exit(code=1)


@app.command()
def get(
    root: Root,
    what: Annotated[
        str | None,
        typer.Argument(metavar="[OFFSET|ID]", help="A log offset, or a message id (32 or 56 hex)."),
    ] = None,
    config: Config = None,
    output: OutputForm = Output.TABLE,
    topic: Annotated[str | None, typer.Option(help="With --queue and --offset: by place.")] = None,
    queue: Annotated[int | None, typer.Option(help="Queue id.")] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="Queue offset.")] = None,
    body: Annotated[
        bool, typer.Option("--body", help="Print the stored body and no more.")
    ] = False,
) -> None:
    """Print one message: by log offset, by message id, or by topic, queue and queue offset.

    Exit code 1 if there is no such message.
    """
    by_place = topic is not None and queue is not None and offset is not None
    if by_place == (what is not None):
        raise typer.BadParameter("give a log offset, an id, or --topic, --queue and --offset")
    with _opened(root, config, "searching") as store:
        if what is not None:
            found = _get_one(store, what)
        else:
            assert topic is not None
            assert queue is not None
            assert offset is not None
            found = store.by_queue_offset(topic, queue, offset)
    if found is None:
        note(f"{root}: no such message")
        raise typer.Exit(code=1)
    _print_found(found, output, body_only=body)


@app.command()
def query(
    root: Root,
    topic: Annotated[str, typer.Option(help="Topic of the key.")],
    key: Annotated[str, typer.Option(help="A key, or the unique id of a message.")],
    config: Config = None,
    output: OutputForm = Output.TABLE,
    start: From = None,
    end: To = None,
    count_max: Annotated[
        int, typer.Option("--max", min=1, help="At most so many, the newest ones.")
    ] = 64,
) -> None:
    """Print the messages that have a key, in log order. Exit code 1 if there are none.

    The index files are used as far as they reach, the log for the rest.
    """
    from orbitmq.cli.store_text import DUMP_HEADER, dump_json, dump_line
    from orbitmq.store.offline.query import query as query_store

    selection = _selection(topic, None, start, end)
    with _opened(root, config, "searching") as store:
        hits = query_store(store, selection, key, count_max)
    if output is Output.TABLE and hits:
        typer.echo(DUMP_HEADER)
    for found in hits:
        typer.echo(dump_json(found) if output is Output.JSON else dump_line(found))
    if not hits:
        note(f"{root}: no message of {topic} has the key {key!r}")
        raise typer.Exit(code=1)


@app.command()
def rebuild(
    root: Root, config: Config = None, output: OutputForm = Output.TABLE, dry_run: DryRun = False
) -> None:
    """Make all consume queues and index files anew, from the log alone. The store must be stopped.

    The old files are kept in the quarantine. A dry run checks them; exit code 1 for findings.
    """
    from orbitmq.cli.store_text import print_rebuild, rebuild_value
    from orbitmq.store.offline.rebuild import rebuild_store

    with progress("checking" if dry_run else "rebuilding") as show:
        report = rebuild_store(root, _settings(config), dry_run=dry_run, progress=show)
    if output is Output.JSON:
        print_json(rebuild_value(report))
    else:
        print_rebuild(root, report)
    if report.check is not None and report.check.findings:
        raise typer.Exit(code=1)


@app.command()
def repair(
    root: Root, config: Config = None, output: OutputForm = Output.TABLE, dry_run: DryRun = False
) -> None:
    """Mend the log, then make queues and index agree with it. The store must be stopped.

    Keeps a copy of all bytes that it cuts or replaces. Exit code 1 if a dry run finds work to do.
    """
    from orbitmq.cli.store_text import print_repair, repair_value
    from orbitmq.store.offline.repair import repair_store

    with progress("reading" if dry_run else "repairing") as show:
        report = repair_store(root, _settings(config), dry_run=dry_run, progress=show)
    if output is Output.JSON:
        print_json(repair_value(report))
    else:
        print_repair(report)
    if dry_run and not report.is_clean:
        raise typer.Exit(code=1)


def _get_one(store: "OfflineStore", what: str) -> "Found | None":
    from orbitmq.errors import FormatError

    if what.isdecimal() and len(what) < 32:
        return store.record_at(int(what))
    try:
        return store.by_message_id(what)
    except FormatError as error:
        raise typer.BadParameter(f"neither a log offset nor a message id: {error.reason}") from None


def _print_found(found: "Found", output: Output, *, body_only: bool) -> None:
    from orbitmq.cli.store_text import dump_json, print_record

    if body_only:
        typer.echo(found.record.body, nl=False)
    elif output is Output.JSON:
        typer.echo(dump_json(found))
    else:
        print_record(found)


def _selection(
    topic: str | None, queue: int | None, start: str | None, end: str | None
) -> "Selection":
    from orbitmq.clock import SystemClock
    from orbitmq.store.offline.reader import OFFSET_MAX, Selection

    now_ms = SystemClock().now_ms()
    first, last = bounds.parse_bound(start, now_ms), bounds.parse_bound(end, now_ms)
    return Selection(
        topic=topic,
        queue_id=queue,
        start=first.offset or 0,
        end=OFFSET_MAX if last.offset is None else last.offset,
        start_ms=-OFFSET_MAX if first.ms is None else first.ms,
        end_ms=OFFSET_MAX if last.ms is None else last.ms,
    )


@contextmanager
def _opened(root: Path, config: Path | None, what: str) -> Iterator["OfflineStore"]:
    from orbitmq.store.offline.reader import OfflineStore

    with progress(what) as show:
        store = OfflineStore(root, _settings(config), say=note, progress=show)
        yield store


def _settings(config: Path | None) -> "Settings":
    from orbitmq.settings import load_settings

    return load_settings(config)
