"""`orbitmq message trace`: the way of a message, one row for each step, in order of time."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.cluster_options import (
    NAMESRV,
    Namesrv,
    OutputForm,
    moment_ms,
    open_admin,
    stop_with,
)
from orbitmq.cli.output import Output, print_json, print_table, time_text
from orbitmq.errors import NoRouteError

if TYPE_CHECKING:
    from orbitmq.client.trace.way import MessageWay, TraceStep

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
COLUMNS = ["time", "what", "group", "try", "took", "result", "client", "broker"]
_HOW_TO_TRACE = (
    "Switch traces on where messages are sent and consumed: trace=True of Producer and Consumer, "
    "enableTrace of a Java client; and leave traceOn=true at the broker. A trace comes up to 5 seconds after "
    "its message; clients that were given another trace topic need --topic."
)


def trace(
    wanted: Annotated[
        str, typer.Argument(metavar="ID|KEY", help="Id of a message, either kind, or a key.")
    ],
    namesrv: Namesrv = NAMESRV,
    topic: Annotated[
        str, typer.Option(help="The trace topic, if clients were told another one.")
    ] = TRACE_TOPIC,
    start: Annotated[
        str, typer.Option("--from", help="Traced then or later: now-1h, ISO ...")
    ] = "",
    end: Annotated[str, typer.Option("--to", help="Traced then or before.")] = "",
    output: OutputForm = Output.TABLE,
) -> None:
    """Show the way of a message: who sent it, which groups had it, how often, and what they said.

    Needs clients that write traces: Producer(..., trace=True), or enableTrace of a Java client. Exit code 1
    if there is no trace.
    """
    times = {}
    if start:
        times["begin_ms"] = moment_ms(start, "--from")
    if end:
        times["end_ms"] = moment_ms(end, "--to")
    with open_admin(namesrv) as admin:
        try:
            found = admin.trace(wanted, trace_topic=topic, **times)
        except NoRouteError:
            stop_with(f"there is no topic {topic}: nobody wrote a trace yet. {_HOW_TO_TRACE}")
    if not found:
        stop_with(f"no trace of {wanted} in {topic}. {_HOW_TO_TRACE}")
    print_ways(found, output)


def print_ways(ways: "list[MessageWay]", output: Output) -> None:
    """Print ways: a table each, or a line of JSON each."""
    for way in ways:
        if output is Output.JSON:
            print_json(asdict(way))
            continue
        about = [f"message {way.message_id}"]
        about += [f"topic {way.topic}"] if way.topic else []
        about += [f"tag {way.tag}"] if way.tag else []
        about += [f"keys {' '.join(way.keys)}"] if way.keys else []
        typer.echo(", ".join(about))
        print_table(COLUMNS, [_row(step) for step in way.steps])


def _row(step: "TraceStep") -> list[object]:
    kind = f" ({step.message_kind})" if step.message_kind not in ("", "normal") else ""
    return [
        time_text(step.time_ms),
        step.what + kind,
        step.group,
        "" if step.attempt is None else str(step.attempt + 1),
        "" if step.cost_ms is None else f"{step.cost_ms} ms",
        step.result,
        step.client,
        step.broker,
    ]
