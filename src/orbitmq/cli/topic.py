"""`orbitmq topic`: list, show, check, create and delete the topics of a cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.cluster_options import (
    NAMESRV,
    DryRun,
    Namesrv,
    OutputForm,
    Yes,
    confirm,
    open_admin,
    parse_pairs,
    plural,
)
from orbitmq.cli.output import Output, bytes_text, note, print_json, print_table, table_row
from orbitmq.doctor.topic_queues import Finding, check_topic, queue_range_text

if TYPE_CHECKING:
    from orbitmq.client import Admin
    from orbitmq.client.admin.results import QueueStats, TopicInfo

app = typer.Typer(help="List, look at, create and delete topics.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Cluster = Annotated[str | None, typer.Option(help="Only in this cluster.")]
Broker = Annotated[str | None, typer.Option(help="Only on this broker (its name).")]


@app.command("list")
def list_topics(
    namesrv: Namesrv = NAMESRV,
    output: OutputForm = Output.TABLE,
    system: Annotated[
        bool, typer.Option("--all", help="Also retry, dead letter and system topics.")
    ] = False,
    cluster: Cluster = None,
) -> None:
    """List the topics with their queues and messages."""
    with open_admin(namesrv) as admin:
        rows = []
        for name in admin.topics(system=system, cluster=cluster):
            info, stats = admin.topic(name), admin.topic_stats(name)
            rows.append(
                {
                    "topic": name,
                    "brokers": info.brokers,
                    "read_queues": info.read_queues,
                    "write_queues": info.write_queues,
                    "kept_in": info.kept_in,
                    "messages": sum(queue.message_count for queue in stats),
                    "last_ms": max((queue.last_ms for queue in stats), default=0),
                }
            )
    if output is Output.JSON:
        print_json(rows)
        return
    if not rows:
        note("no topics yet: `orbitmq topic create Orders`, or just send to one")
        return
    print_table(
        ["topic", "brokers", "read queues", "write queues", "kept in", "messages", "last message"],
        [table_row(row) for row in rows],
    )


@app.command()
def stats(topic: Topic, namesrv: Namesrv = NAMESRV, output: OutputForm = Output.TABLE) -> None:
    """Show a topic's queues: first and next offset, messages, time of the last one.

    Behind the table: how far each broker's dispatch is behind its log. A message is readable when it
    is dispatched, so a growing figure explains why the newest ones cannot be pulled.
    """
    with open_admin(namesrv) as admin:
        info, found = admin.topic(topic), admin.topic_stats(topic)
        groups = admin.groups_of_topic(topic)
        dispatch = [_dispatch(admin, share.broker_name) for share in info.shares if share.address]
    if output is Output.JSON:
        print_json(
            {
                "topic": topic,
                "ordered": info.ordered,
                "kept_in": info.kept_in,
                "groups": groups,
                "queues": [_queue_value(one) for one in found],
                "dispatch": dispatch,
            }
        )
        return
    _print_stats(info, found)
    typer.echo(f"groups: {' '.join(groups) or 'none'}")
    for one in dispatch:
        behind = bytes_text(int(one["behind_bytes"]))
        log = f"{one['log_min_offset']} to {one['log_max_offset']}"
        typer.echo(f"{one['broker']}: log offsets {log}, dispatch is {behind} behind")


def _dispatch(admin: "Admin", broker: str) -> dict[str, str | int]:
    runtime = admin.broker_runtime(broker)
    return {
        "broker": broker,
        "log_min_offset": int(runtime.get("commitLogMinOffset", 0)),
        "log_max_offset": int(runtime.get("commitLogMaxOffset", 0)),
        "behind_bytes": int(runtime.get("dispatchBehindBytes", 0)),
    }


def _queue_value(one: "QueueStats") -> dict[str, str | int]:
    return {
        "broker": one.queue.broker_name,
        "queue_id": one.queue.queue_id,
        "min_offset": one.min_offset,
        "max_offset": one.max_offset,
        "messages": one.message_count,
        "last_ms": one.last_ms,
    }


def _print_stats(info: "TopicInfo", found: "list[QueueStats]") -> None:
    print_table(
        ["broker", "queue", "first offset", "next offset", "messages", "last message"],
        [table_row(_queue_value(one)) for one in found],
        title=info.topic,
    )
    count = sum(one.message_count for one in found)
    where = ", in memory only" if info.kept_in == "memory" else ""
    typer.echo(f"{plural(count, 'message')} in {plural(len(found), 'queue')}{where}")


@app.command()
def check(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Name of the topic; none: all.")
    ] = None,
    namesrv: Namesrv = NAMESRV,
    output: OutputForm = Output.TABLE,
) -> None:
    """Find messages that nobody can read, and queues and members that wait in vain.

    That happens when a topic has more write queues than read queues, or the reverse. Exit code 1 if
    there are findings.
    """
    with open_admin(namesrv) as admin:
        names = [topic] if topic is not None else admin.topics()
        findings = [finding for name in names for finding in check_topic(admin, name)]
    if output is Output.JSON:
        print_json(findings)
    elif findings:
        _print_findings(findings)
    else:
        typer.echo(f"{plural(len(names), 'topic')} looked at, nothing found")
    if findings:
        raise typer.Exit(code=1)


def _print_findings(findings: list[Finding]) -> None:
    print_table(
        ["topic", "broker", "queues", "finding", "what it means, and what to do"],
        [
            (one.topic, one.broker, queue_range_text(one.queue_ids), one.kind.value, one.text)
            for one in findings
        ],
    )
    typer.echo(plural(len(findings), "finding"))


@app.command()
def create(
    topic: Topic,
    namesrv: Namesrv = NAMESRV,
    queues: Annotated[int, typer.Option(min=1, help="Queues on each broker.")] = 8,
    read_queues: Annotated[
        int | None, typer.Option(min=1, help="Queues to read from, if not --queues.")
    ] = None,
    write_queues: Annotated[
        int | None, typer.Option(min=1, help="Queues to send to, if not --queues.")
    ] = None,
    perm: Annotated[
        int, typer.Option(min=0, max=7, help="6: read and write, 4: read only, 2: write only.")
    ] = 6,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Keep a key's queue even if its broker is away.")
    ] = False,
    attribute: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="As queue.type=BatchCQ.")
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Keep its messages in memory only; a stop loses them.")
    ] = False,
    cluster: Cluster = None,
    broker: Broker = None,
    dry_run: DryRun = False,
) -> None:
    """Create a topic, or change one, on all brokers of a cluster or on one.

    Fewer queues without losing sight of messages: first fewer --write-queues, and fewer
    --read-queues when `orbitmq topic check` says that the rest is consumed.

    --memory needs brokers with memoryTopicEnable=true, and cannot be changed later.
    """
    attributes = parse_pairs(attribute, "--attribute")
    if memory:
        attributes = {**(attributes or {}), "memory.topic": "true"}
    read, write = read_queues or queues, write_queues or queues
    counts = f"{read} read and {write} write queues"
    with open_admin(namesrv) as admin:
        if dry_run:
            primaries = [b.name for b in admin.brokers(cluster=cluster) if b.is_primary]
            names = [broker] if broker else sorted(primaries)
            verb = "change" if topic in admin.topics(system=True) else "create"
            typer.echo(f"would {verb} {topic}: {counts}, perm {perm}, on {' '.join(names)}")
            return
        info = admin.create_topic(
            topic,
            read_queues=read,
            write_queues=write,
            perm=perm,
            ordered=ordered,
            attributes=attributes,
            cluster=cluster,
            broker=broker,
        )
    typer.echo(f"{topic}: {counts}, perm {perm}, on {broker or ' '.join(info.brokers)}")


@app.command()
def delete(
    topic: Topic,
    namesrv: Namesrv = NAMESRV,
    cluster: Cluster = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete a topic: its queues, its place in every group, its route."""
    with open_admin(namesrv) as admin:
        count = sum(one.message_count for one in admin.topic_stats(topic))
        if dry_run:
            typer.echo(f"would delete {topic} with {plural(count, 'message')}")
            return
        confirm(f"Delete {topic} with {plural(count, 'message')}?", yes)
        admin.delete_topic(topic, cluster=cluster)
    note(f"{topic} is deleted")
