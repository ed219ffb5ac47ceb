"""`orbitmq topic`: list, show, create and delete the topics of a cluster."""

from typing import Annotated

import typer

from orbitmq.cli.cluster_options import (
    NAMESRV,
    DryRun,
    Namesrv,
    OutputForm,
    Yes,
    confirm,
    open_admin,
)
from orbitmq.cli.output import Output, note, print_json, print_table, time_text

app = typer.Typer(help="Topics of a cluster.", no_args_is_help=True)

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
                    "messages": sum(queue.message_count for queue in stats),
                    "last_ms": max((queue.last_ms for queue in stats), default=0),
                }
            )
    if output is Output.JSON:
        print_json(rows)
        return
    print_table(
        ["topic", "brokers", "read queues", "write queues", "messages", "last message"],
        [
            (
                row["topic"],
                " ".join(row["brokers"]),  # type: ignore[arg-type]
                row["read_queues"],
                row["write_queues"],
                row["messages"],
                time_text(row["last_ms"]),  # type: ignore[arg-type]
            )
            for row in rows
        ],
    )


@app.command()
def stats(topic: Topic, namesrv: Namesrv = NAMESRV, output: OutputForm = Output.TABLE) -> None:
    """Show a topic's queues: first and next offset, messages, time of the last one."""
    with open_admin(namesrv) as admin:
        info, found = admin.topic(topic), admin.topic_stats(topic)
        groups = admin.groups_of_topic(topic)
    if output is Output.JSON:
        queues = [
            {
                "broker": one.queue.broker_name,
                "queue_id": one.queue.queue_id,
                "min_offset": one.min_offset,
                "max_offset": one.max_offset,
                "messages": one.message_count,
                "last_ms": one.last_ms,
            }
            for one in found
        ]
        print_json({"topic": topic, "ordered": info.ordered, "groups": groups, "queues": queues})
        return
    print_table(
        ["broker", "queue", "first offset", "next offset", "messages", "last message"],
        [
            (
                one.queue.broker_name,
                one.queue.queue_id,
                one.min_offset,
                one.max_offset,
                one.message_count,
                time_text(one.last_ms),
            )
            for one in found
        ],
        title=topic,
    )
    typer.echo(f"{sum(one.message_count for one in found)} messages in {len(found)} queues")
    typer.echo(f"groups: {' '.join(groups) or 'none'}")


@app.command()
def create(
    topic: Topic,
    namesrv: Namesrv = NAMESRV,
    queues: Annotated[int, typer.Option(min=1, help="Queues on each broker.")] = 8,
    perm: Annotated[int, typer.Option(min=0, max=7, help="4 read + 2 write.")] = 6,
    ordered: Annotated[bool, typer.Option("--ordered", help="Keep order over failures.")] = False,
    attribute: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="As queue.type=BatchCQ.")
    ] = None,
    cluster: Cluster = None,
    broker: Broker = None,
    dry_run: DryRun = False,
) -> None:
    """Create a topic, or change one, on all brokers of a cluster or on one."""
    attributes = dict(_pair(text) for text in attribute or [])
    with open_admin(namesrv) as admin:
        if dry_run:
            primaries = [b.name for b in admin.brokers(cluster=cluster) if b.is_primary]
            names = [broker] if broker else sorted(primaries)
            typer.echo(f"would create {topic} with {queues} queues on {' '.join(names)}")
            return
        info = admin.create_topic(
            topic,
            queues=queues,
            perm=perm,
            ordered=ordered,
            attributes=attributes,
            cluster=cluster,
            broker=broker,
        )
    typer.echo(f"{topic}: {info.write_queues} queues on {' '.join(info.brokers) or broker}")


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
            typer.echo(f"would delete {topic} with {count} messages")
            return
        confirm(f"Delete {topic} with {count} messages?", yes)
        admin.delete_topic(topic, cluster=cluster)
    note(f"{topic} is deleted")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise typer.BadParameter(f"{text}: write KEY=VALUE", param_hint="--attribute")
    return key, value
