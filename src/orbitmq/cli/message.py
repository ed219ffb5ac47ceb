"""`orbitmq message`: send messages, watch them come, look them up."""

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.cluster_options import (
    NAMESRV,
    Namesrv,
    OutputForm,
    cluster,
    duration_ms,
    moment_ms,
    open_admin,
    parse_pairs,
    plural,
    stop_with,
)
from orbitmq.cli.message_trace import trace
from orbitmq.cli.output import Output, note, print_json, print_table, time_text

if TYPE_CHECKING:
    from orbitmq.client import PullConsumer, ReceivedMessage

app = typer.Typer(help="Send, watch and look up messages.", no_args_is_help=True)

BODY_SHOWN = 60
TAIL_GROUP = "TOOLS_CONSUMER"
"""The group of tools: it is there on every broker, so that watching leaves no group behind."""

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Tag = Annotated[str, typer.Option(help="Tag of the message.")]
Key = Annotated[list[str] | None, typer.Option("--key", help="A key; may be given many times.")]
Tags = Annotated[str, typer.Option("--tags", help='Only these, as "TagA || TagB".')]
Property = Annotated[
    list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property.")
]


@app.command()
def send(
    topic: Topic,
    body: Annotated[
        str | None,
        typer.Argument(metavar="[BODY]", help="Text; without it, each line of input is a message."),
    ] = None,
    namesrv: Namesrv = NAMESRV,
    tag: Tag = "",
    key: Key = None,
    property_: Property = None,
    delay_level: Annotated[
        int,
        typer.Option(
            min=0, help="Deliver later: 1 is 1 s, 2 5 s, 3 10 s, 4 30 s, 5 1 min ... 18 2 h."
        ),
    ] = 0,
    delay: Annotated[
        str | None, typer.Option(help="Deliver after this time: 500ms, 90s, 15m, 2h, 1d.")
    ] = None,
    deliver_at: Annotated[
        str | None, typer.Option(help="Deliver at this time: ISO, or epoch milliseconds.")
    ] = None,
    order_key: Annotated[
        str | None, typer.Option(help="Messages with the same one go to the same queue.")
    ] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Send a message, or one for each line of standard input."""
    from orbitmq.client import Message, Producer

    properties = parse_pairs(property_, "--property", "NAME=VALUE")
    delay_ms = 0 if delay is None else duration_ms(delay, "--delay")
    deliver_ms = 0 if deliver_at is None else moment_ms(deliver_at, "--deliver-at")
    bodies = [body.encode()] if body is not None else _input_lines()
    count = 0
    with cluster(), Producer(namesrv, "orbitmq-send") as producer:
        for one in bodies:
            message = Message(
                topic,
                one,
                tag=tag,
                keys=key or [],
                properties=properties,
                delay_level=delay_level,
                deliver_ms=deliver_ms,
                delay_ms=delay_ms,
            )
            result = producer.send(message, key=order_key)
            count += 1
            if output is Output.JSON:
                print_json(
                    {
                        "message_id": result.message_id,
                        "offset_id": result.offset_id,
                        "broker": result.queue.broker_name,
                        "queue_id": result.queue.queue_id,
                        "queue_offset": result.queue_offset,
                        "status": result.status.value,
                        "recall_handle": result.recall_handle,
                    }
                )
            elif body is not None:
                where = f"{result.queue.broker_name}, queue {result.queue.queue_id}"
                typer.echo(f"{result.message_id}  {where}, offset {result.queue_offset}")
                if result.recall_handle:
                    typer.echo(f"recall handle {result.recall_handle}")
    if output is Output.TABLE and body is None:
        typer.echo(f"{plural(count, 'message')} sent to {topic}")


@app.command()
def recall(
    topic: Topic,
    handle: Annotated[
        str, typer.Argument(metavar="HANDLE", help="What `message send` printed for it.")
    ],
    namesrv: Namesrv = NAMESRV,
) -> None:
    """Take back a message that waits for its time (the broker needs recallMessageEnable)."""
    from orbitmq.client import Producer

    with cluster(), Producer(namesrv, "orbitmq-send") as producer:
        typer.echo(f"{producer.recall(topic, handle)} will not be delivered")


@app.command()
def tail(
    topic: Topic,
    namesrv: Namesrv = NAMESRV,
    tags: Tags = "*",
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql",
            metavar="EXPRESSION",
            help="Only these, by properties: \"price > 3 AND city = 'Rome'\".",
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", help="earliest, or a time: now-1h, ISO, epoch milliseconds; default: now."
        ),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Print messages as they come, until Ctrl-C. No group's progress is touched.

    Each line: when it was stored, broker/queue@offset, tag and keys, the beginning of the body.
    """
    from orbitmq.client import PullConsumer
    from orbitmq.client import sql as by_sql

    if sql is not None and tags != "*":
        stop_with("--tags and --sql exclude each other: write TAGS = 'TagA' in the expression", 2)
    shown = 0
    with cluster(), PullConsumer(namesrv, TAIL_GROUP, auto_commit=False) as consumer:
        queues = consumer.topic_queues(topic)
        if not queues:
            stop_with(f"{topic} has no queue that may be read: see `orbitmq topic list`")
        consumer.assign(queues, tags if sql is None else by_sql(sql))
        _seek(consumer, start)
        note(f"watching {topic}, {plural(len(queues), 'queue')}; Ctrl-C ends it")
        try:
            while count is None or shown < count:
                for message in consumer.poll(timeout=1.0):
                    shown += 1  # before it is seen: Ctrl-C may follow at once
                    _print_one(message, output)
                    if shown == count:
                        break
        except KeyboardInterrupt:
            note(f"{plural(shown, 'message')} shown")


@app.command()
def get(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Its id, either kind.")],
    namesrv: Namesrv = NAMESRV,
    topic: Annotated[
        str | None, typer.Option(help="Needed for the id that a producer gave it.")
    ] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show one message with all its properties. Exit code 1 if there is none."""
    with open_admin(namesrv) as admin:
        message = admin.message(message_id, topic)
    if message is None:
        hint = "" if topic else "; if it is a producer's id, say --topic"
        stop_with(f"no message {message_id}{hint}")
    if output is Output.JSON:
        print_json(_value(message))
        return
    rows = [(name, value) for name, value in _value(message).items() if name != "properties"]
    rows += [(f"property {name}", value) for name, value in message.properties.items()]
    print_table(["what", "value"], rows)


@app.command()
def query(
    topic: Topic,
    key: Annotated[str, typer.Option("--key", help="A key of the messages.")],
    namesrv: Namesrv = NAMESRV,
    start: Annotated[
        str, typer.Option("--from", help="Stored then or later: now-1h, ISO ...")
    ] = "",
    end: Annotated[str, typer.Option("--to", help="Stored then or before.")] = "",
    max_: Annotated[int, typer.Option("--max", min=1, help="At most so many per broker.")] = 64,
    output: OutputForm = Output.TABLE,
) -> None:
    """Find messages by key. Exit code 1 if there are none."""
    times = {}
    if start:
        times["begin_ms"] = moment_ms(start, "--from")
    if end:
        times["end_ms"] = moment_ms(end, "--to")
    with open_admin(namesrv) as admin:
        found = admin.messages_by_key(topic, key, count_max=max_, **times)
    if not found:
        stop_with(f"no message with key {key} in {topic}")
    _print_many(found, output)


app.command()(trace)


def _seek(consumer: "PullConsumer", start: str | None) -> None:
    if start is None or start == "latest":
        consumer.seek_to_end()
    elif start == "earliest":
        consumer.seek_to_begin()
    else:
        consumer.seek_to_time(moment_ms(start, "--from"))


def _input_lines() -> Iterator[bytes]:
    if sys.stdin.isatty():
        note("type a message per line; Ctrl-D ends")
    for line in sys.stdin.buffer:
        if text := line.rstrip(b"\r\n"):
            yield text


def _print_many(messages: "Iterable[ReceivedMessage]", output: Output) -> None:
    if output is Output.JSON:
        for message in messages:
            print_json(_value(message))
        return
    print_table(
        ["stored", "broker", "queue", "offset", "tag", "keys", "id", "body"],
        [
            (
                time_text(m.store_ms),
                m.broker_name,
                m.queue_id,
                m.queue_offset,
                m.tag,
                " ".join(m.keys),
                m.message_id,
                _body_text(m.body),
            )
            for m in messages
        ],
    )


def _print_one(message: "ReceivedMessage", output: Output) -> None:
    if output is Output.JSON:
        print_json(_value(message))
    else:
        where = f"{message.broker_name}/{message.queue_id}@{message.queue_offset}"
        about = " ".join([message.tag or "-", *message.keys])
        typer.echo(f"{time_text(message.store_ms)}  {where}  {about}  {_body_text(message.body)}")
    sys.stdout.flush()


def _body_text(body: bytes) -> str:
    text = body[: BODY_SHOWN * 4].decode("utf-8", "replace")
    text = "".join(c if c.isprintable() else "." for c in text[:BODY_SHOWN])
    more = len(body) - len(text.encode())
    return text + (f"... ({len(body)} bytes)" if more > 0 else "")


def _value(message: "ReceivedMessage") -> dict[str, object]:
    try:
        body: object = message.body.decode()
    except UnicodeDecodeError:
        body = message.body.hex()
    return {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_id": message.offset_id,
        "tag": message.tag,
        "keys": message.keys,
        "born_ms": message.born_ms,
        "store_ms": message.store_ms,
        "born_host": message.born_host,
        "reconsume_times": message.reconsume_times,
        "body": body,
        "properties": message.properties,
    }
