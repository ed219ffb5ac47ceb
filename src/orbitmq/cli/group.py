"""`orbitmq group`: consumer groups, how far they are and where they go on."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orbitmq.cli.cluster_options import (
    NAMESRV,
    DryRun,
    Namesrv,
    OutputForm,
    Yes,
    confirm,
    moment_ms,
    open_admin,
    plural,
    stop_with,
)
from orbitmq.cli.group_lag import GroupLag
from orbitmq.cli.output import Output, note, print_json, print_table, table_row
from orbitmq.errors import ResponseError

if TYPE_CHECKING:
    from orbitmq.client import Admin
    from orbitmq.client.admin.results import GroupProgress, OffsetChange, QueueLag

app = typer.Typer(
    help="Consumer groups: how far they are, and where they go on.", no_args_is_help=True
)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the consumer group.")]


@app.command("list")
def list_groups(
    namesrv: Namesrv = NAMESRV,
    output: OutputForm = Output.TABLE,
    system: Annotated[bool, typer.Option("--all", help="Also the brokers' own groups.")] = False,
) -> None:
    """List the groups with their members and their lag."""
    with open_admin(namesrv) as admin:
        rows = []
        for info in admin.groups(system=system):
            state, progress = admin.consumers(info.group), admin.progress(info.group, matching=True)
            lag = GroupLag(progress, state.subscriptions, online=state.is_online)
            rows.append(
                {
                    "group": info.group,
                    "members": len(state.clients),
                    "model": state.message_model,
                    "topics": progress.topics,
                    "lag": lag.total if output is Output.JSON else lag.total_text,
                    **({"lag_is": lag.total_is} if output is Output.JSON else {}),
                    "in_flight": progress.in_flight,
                }
            )
    if output is Output.JSON:
        print_json(rows)
        return
    if not rows:
        note("no groups yet: a consumer makes its own when it starts")
        return
    print_table(
        ["group", "members", "model", "topics", "lag", "in flight"],
        [table_row(row) for row in rows],
    )


@app.command()
def progress(
    group: Group,
    namesrv: Namesrv = NAMESRV,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show how far a group is in each queue, its lag, and who consumes it."""
    with open_admin(namesrv) as admin:
        _require_known(admin, group)
        found, state = _progress(admin, group, topic), admin.consumers(group)
    lag = GroupLag(found, state.subscriptions, online=state.is_online)
    if output is Output.JSON:
        queues = [{**_queue_value(one), "lag_is": lag.kind(one)} for one in found.queues]
        total = {"lag": lag.total, "lag_is": lag.total_is, "tps": found.consume_tps}
        print_json({"group": group, **total, "queues": queues})
        return
    print_table(
        ["topic", "broker", "queue", "next offset", "consumed", "lag", "last consumed", "member"],
        [table_row({**_queue_value(one), "lag": lag.text(one)}) for one in found.queues],
        title=group,
    )
    rate = f"{found.consume_tps:.1f} messages/s"
    typer.echo(f"lag {lag.total_text}, in flight {found.in_flight}, {rate}")
    if lag.remark:
        note(lag.remark)
    if not found.queues:
        note(f"{group} has not consumed anything yet")


def _progress(admin: "Admin", group: str, topic: str | None) -> "GroupProgress":
    try:
        return admin.progress(group, topic, members=True, matching=True)
    except ResponseError as failure:
        note(f"a member does not tell which queues it has: {failure.remark}")
        return admin.progress(group, topic, matching=True)


def _require_known(admin: "Admin", group: str) -> None:
    if admin.group(group) is None:
        stop_with(f"no broker knows the group {group}: see `orbitmq group list`")


def _queue_value(one: "QueueLag") -> dict[str, object]:
    return {
        "topic": one.queue.topic,
        "broker": one.queue.broker_name,
        "queue_id": one.queue.queue_id,
        "broker_offset": one.broker_offset,
        "consumer_offset": one.consumer_offset,
        "lag": one.wanted_lag,
        "last_ms": one.last_ms,
        "member": one.client_id,
    }


@app.command()
def members(group: Group, namesrv: Namesrv = NAMESRV, output: OutputForm = Output.TABLE) -> None:
    """Show who consumes in a group right now, and what it subscribes to."""
    with open_admin(namesrv) as admin:
        _require_known(admin, group)
        state = admin.consumers(group)
    if output is Output.JSON:
        print_json(state)
        return
    print_table(
        ["member", "address", "language", "version"],
        [(one.client_id, one.address, one.language, one.version) for one in state.clients],
        title=f"{group}, {state.message_model or 'offline'}",
    )
    for one in state.subscriptions:
        typer.echo(f"{one.topic}: {one.expression_type} {one.expression}")


@app.command()
def watch(
    group: Group,
    namesrv: Namesrv = NAMESRV,
    interval: Annotated[
        float,
        typer.Option(min=0.02, help="Seconds between two looks; bounds get closer with less."),
    ] = 1.0,
    seconds: Annotated[
        float | None, typer.Option("--for", min=0, help="Stop after so many seconds.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many rebalances.")] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Report each rebalance of a group and what it cost, until Ctrl-C. Nothing is changed by watching.

    For each queue that moved: from whom to whom, how many milliseconds nobody read it, how many messages came
    twice, and how many waited there for the new reader (the burst). "80 to 310" are bounds: the truth lies
    between them. One number is exact: members of OrbitMQ's client tell what they counted themselves. As JSON:
    one line for who reads what at the start, then one for each rebalance.
    """
    from orbitmq.cli._group_watch import GroupWatcher, print_rebalance, print_start

    shown = 0
    with open_admin(namesrv) as admin:
        _require_known(admin, group)
        try:
            watcher = GroupWatcher(admin, group, interval)
            print_start(watcher, group, output)
            for rebalance in watcher.rebalances(seconds):
                shown += 1
                print_rebalance(rebalance, output)
                if shown == count:
                    break
        except KeyboardInterrupt:
            pass
    note(f"{plural(shown, 'rebalance')} seen")


@app.command()
def create(
    group: Group,
    namesrv: Namesrv = NAMESRV,
    retries: Annotated[int, typer.Option(min=0, help="Then a message is a dead letter.")] = 16,
    broadcast: Annotated[bool, typer.Option(help="Whether members may broadcast.")] = True,
    notices: Annotated[
        bool, typer.Option(help="Whether members hear at once who comes and goes.")
    ] = True,
    dry_run: DryRun = False,
) -> None:
    """Create a group, or change one, on all brokers. Brokers also create groups on first use."""
    with open_admin(namesrv) as admin:
        if dry_run:
            verb = "create" if admin.group(group) is None else "change"
            typer.echo(f"would {verb} {group} with {retries} retries")
            return
        info = admin.create_group(
            group, retries_max=retries, broadcast_enabled=broadcast, notices=notices
        )
    typer.echo(f"{group} on {' '.join(info.brokers)}")


@app.command()
def delete(
    group: Group,
    namesrv: Namesrv = NAMESRV,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="Also what it gave up on (%DLQ%).")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete a group with its offsets and its retries."""
    with open_admin(namesrv) as admin:
        _require_known(admin, group)
        members = f"{plural(len(admin.consumers(group).clients), 'member')} online"
        if dry_run:
            typer.echo(f"would delete {group}, {members}")
            return
        confirm(f"Delete {group} ({members})?", yes)
        admin.delete_group(group, dead_letters=dead_letters)
    note(f"{group} is deleted")


@app.command()
def reset(
    group: Group,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="In this topic.")],
    to: Annotated[
        str, typer.Option(help="earliest, latest, or a time: now-1h, ISO, epoch milliseconds.")
    ],
    namesrv: Namesrv = NAMESRV,
    queue: Annotated[int | None, typer.Option(help="Only this queue id.")] = None,
    output: OutputForm = Output.TABLE,
    dry_run: DryRun = False,
) -> None:
    """Let a group go on at another place of a topic. Members that are online follow.

    `--to earliest` also helps a group whose offset is illegal: it goes on at the first message there is.
    """
    target = _target(to)
    with open_admin(namesrv) as admin:
        act = admin.plan_reset if dry_run else admin.reset_offsets
        changes = act(group, topic, target, queue_id=queue)
    if output is Output.JSON:
        print_json([_change_value(change) for change in changes])
        return
    print_table(
        ["broker", "queue", "before", "after"],
        [
            (c.queue.broker_name, c.queue.queue_id, _offset_text(c.old_offset), c.new_offset)
            for c in changes
        ],
        title=f"{group} in {topic}",
    )
    if dry_run:
        typer.echo("nothing was changed")


def _target(to: str) -> int | Literal["earliest", "latest"]:
    if to == "earliest":
        return "earliest"
    if to == "latest":
        return "latest"
    return moment_ms(to, "--to")


def _offset_text(offset: int) -> str:
    return "-" if offset < 0 else str(offset)


def _change_value(change: "OffsetChange") -> dict[str, object]:
    return {
        "broker": change.queue.broker_name,
        "queue_id": change.queue.queue_id,
        "old_offset": change.old_offset,
        "new_offset": change.new_offset,
    }
