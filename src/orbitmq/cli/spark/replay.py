"""`orbitmq spark replay`."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.output import Output, bytes_text, print_json
from orbitmq.cli.spark.options import Conf, Master, open_session, require_pyspark
from orbitmq.cli.store import Config, OutputForm
from orbitmq.errors import ConfigError

if TYPE_CHECKING:
    from orbitmq.spark.jobs.replay.job import ReplayReport

From = Annotated[
    Path | None, typer.Option("--from", metavar="DIR", help="Store directory to read from.")
]
FromNamesrv = Annotated[
    str | None,
    typer.Option("--from-namesrv", metavar="HOST:PORT", help="Read from this cluster instead."),
]
Namesrv = Annotated[
    str, typer.Option("--namesrv", metavar="HOST:PORT", help="Name servers of where they are sent.")
]
Topic = Annotated[
    list[str] | None, typer.Option("--topic", help="Messages of this topic; many times.")
]
Key = Annotated[list[str] | None, typer.Option("--key", help="Messages with this key; many times.")]
Id = Annotated[list[str] | None, typer.Option("--id", help="This message; many times.")]
Tag = Annotated[list[str] | None, typer.Option("--tag", help="Messages with this tag; many times.")]
Sql92 = Annotated[
    str | None, typer.Option("--sql92", help="Messages whose properties match, as in 'a > 3'.")
]
Since = Annotated[
    str | None, typer.Option(help="Stored then or later: now-1h, 2026-11-15T20:31, milliseconds.")
]
Until = Annotated[str | None, typer.Option(help="Stored before; as --since.")]
DeadLetters = Annotated[
    str | None,
    typer.Option(
        "--dead-letters", metavar="GROUP", help="Dead letters of this group, to their own topics."
    ),
]
ToTopic = Annotated[str | None, typer.Option("--to-topic", help="Where all of them go.")]
Rate = Annotated[float | None, typer.Option(help="Messages per second; default: no limit.")]
State = Annotated[
    Path, typer.Option(help="Says how far it is; a second run with it goes on from there.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count what is selected; send nothing.")]


def replay(
    namesrv: Namesrv,
    source: From = None,
    from_namesrv: FromNamesrv = None,
    topic: Topic = None,
    key: Key = None,
    message_id: Id = None,
    tag: Tag = None,
    sql92: Sql92 = None,
    since: Since = None,
    until: Until = None,
    dead_letters: DeadLetters = None,
    to_topic: ToTopic = None,
    rate: Rate = None,
    state: State = Path("orbitmq-replay.json"),
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    config: Config = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Send messages again: a selection to a topic, or dead letters to the topics that they came from.

    Id, times, topic and place of each original are kept as properties (ORBITMQ_REPLAY...). Killed at any time
    and run again, each message is there once.
    """
    require_pyspark()
    from orbitmq.cli.spark.progress import shown_progress
    from orbitmq.spark.source.options import ReadOptions

    lists = {"topics": topic, "keys": key, "ids": message_id, "tags": tag}
    texts = {"sql92": sql92, "startTime": since, "endTime": until, "namesrv": from_namesrv}
    reading = {name: ",".join(values) for name, values in lists.items() if values}
    reading |= {name: text for name, text in texts.items() if text is not None}
    reading |= _dead_letters(dead_letters, topic, to_topic)
    reading |= _source(source, from_namesrv, config)
    # What is wrong with the options shows before Spark starts.
    ReadOptions.parse(reading)
    session = open_session(master, conf)
    try:
        from orbitmq.spark.failures import clear_errors
        from orbitmq.spark.jobs.replay.job import LOG_ORDER, ReplayOptions
        from orbitmq.spark.jobs.replay.job import replay as replay_messages

        options = ReplayOptions(
            namesrv,
            state,
            to_topic,
            rate,
            what=", ".join(f"{name}={value}" for name, value in sorted(reading.items())),
            order_by=LOG_ORDER[1:] if source is not None else LOG_ORDER,
            dry_run=dry_run,
        )
        with clear_errors("reading the messages"):
            frame = session.read.format("orbitmq").options(**reading).load()
        with shown_progress(session) as progress:
            report = replay_messages(frame, options, progress=progress)
    finally:
        session.stop()
    if output is Output.JSON:
        print_json(asdict(report))
    else:
        typer.echo(replay_text(report))


def _source(source: Path | None, namesrv: str | None, config: Path | None) -> dict[str, str]:
    if (source is None) == (namesrv is None):
        rule = "give a store directory (--from) or a cluster (--from-namesrv), one of them"
        raise ConfigError("--from", str(source) if source is not None else None, rule)
    given = {"path": str(source.absolute())} if source is not None else {}
    return given | ({"config": str(config.absolute())} if config is not None else {})


def _dead_letters(
    group: str | None, topics: list[str] | None, to_topic: str | None
) -> dict[str, str]:
    from orbitmq.message import DLQ_PREFIX

    if group is not None:
        if topics:
            raise ConfigError("--topic", ", ".join(topics), "--dead-letters names the topic")
        return {"topics": DLQ_PREFIX + group}
    if to_topic is None:
        raise ConfigError("--to-topic", None, "is needed; only dead letters know their topic")
    return {}


def replay_text(report: "ReplayReport") -> str:
    span = f"stored {_time(report.first_stored_ms)} to {_time(report.last_stored_ms)}"
    lines = [
        f"selected: {report.selected} messages ({bytes_text(report.selected_bytes)}), {span}"
        if report.selected
        else "selected: no messages"
    ]
    lines += [
        f"  {topic} -> {target}: {count}"
        for topic, targets in report.topics.items()
        for target, count in targets.items()
    ]
    if report.dry_run:
        return "\n".join([*lines, "dry run: nothing was sent"])
    told = f"sent: {report.sent}, and {report.sent_before} by earlier runs (replay {report.replay})"
    return "\n".join([*lines, told])


def _time(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "-"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
