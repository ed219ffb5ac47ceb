"""Looks at a group again and again, and says of each rebalance what it cost: `orbitmq group watch`."""

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from orbitmq.cli.cluster_options import plural, stop_with
from orbitmq.cli.output import Output, note, print_json, print_table, time_text
from orbitmq.errors import ClientError, WireError

if TYPE_CHECKING:
    from orbitmq.client import Admin, MessageQueue
    from orbitmq.client.rebalance.sample import GroupSample
    from orbitmq.client.rebalance.watch import Bounds, QueueMove, Rebalance

SILENCE_MAX_SECONDS = 2.0
"""A member that does not answer for so long is left out of a look."""


class GroupWatcher:
    """Follows one group with an admin client."""

    def __init__(self, admin: "Admin", group: str, interval: float) -> None:
        from orbitmq.client.rebalance.watch import RebalanceWatch

        self._admin, self._group, self._interval = admin, group, interval
        self._topics: set[str] = set()
        self._silent: set[str] = set()
        self._failing = False
        self.first = self._look()
        if self.first.broadcasting:
            stop_with(f"{group} broadcasts: every member reads all queues, none moves")
        self.watch: RebalanceWatch = RebalanceWatch(self.first)

    def _look(self) -> "GroupSample":
        sample = self._admin.sample_group(
            self._group, self._topics, timeout_ms=SILENCE_MAX_SECONDS * 1000
        )
        self._topics |= {queue.topic for queue in sample.reach}
        for client_id in sorted(sample.silent - self._silent):
            note(f"{client_id} does not say which queues it reads")
        self._silent = sample.silent
        return sample

    def rebalances(self, seconds: float | None) -> "Iterator[Rebalance]":
        """Yield rebalances as they are over, for so long or for ever."""
        end = None if seconds is None else time.monotonic() + seconds
        due = time.monotonic()
        while True:
            due = max(due + self._interval, time.monotonic())
            if end is not None and due >= end:
                return
            time.sleep(max(due - time.monotonic(), 0))
            sample = self._look_again()
            rebalance = None if sample is None else self.watch.see(sample)
            if rebalance is not None:
                yield rebalance

    def _look_again(self) -> "GroupSample | None":
        """Look once more; None: it failed, as it does while a broker starts anew. Said once."""
        try:
            sample = self._look()
        except (WireError, ClientError) as error:
            if not self._failing:
                note(f"no look at {self._group}: {error}; trying again")
            self._failing = True
            return None
        if self._failing:
            note(f"{self._group} can be looked at again")
        self._failing = False
        return sample


def print_start(watcher: GroupWatcher, group: str, output: Output) -> None:
    """Say who reads what at the beginning."""
    owners = watcher.watch.owners
    members = sorted(watcher.first.client_ids)
    if output is Output.JSON:
        queues = [{**_queue_value(queue), "member": owner} for queue, owner in owners.items()]
        print_json({"event": "start", "group": group, "members": members, "queues": queues})
    else:
        what = f"{plural(len(members), 'member')}, {plural(len(owners), 'queue')}"
        note(f"watching {group}: {what}; Ctrl-C ends it")
    sys.stdout.flush()


def print_rebalance(one: "Rebalance", output: Output) -> None:
    """Print one rebalance, at once."""
    if output is Output.JSON:
        print_json(_value(one))
    else:
        typer.echo(_headline(one))
        if one.moves:
            print_table(
                ["topic", "broker", "queue", "from", "to", "nobody read (ms)", "twice", "burst"],
                [_row(move) for move in one.moves],
            )
        if one.unread:
            typer.echo(f"read by nobody: {' '.join(map(_queue_text, one.unread))}")
    sys.stdout.flush()


def _headline(one: "Rebalance") -> str:
    changes = [
        f"{word} {' '.join(names)}"
        for word, names in (
            ("joined", one.joined),
            ("left", one.left),
            ("restarted", one.restarted),
            ("removed", list(map(_queue_text, one.removed))),
        )
        if names
    ]
    moved = f"{plural(len(one.moves), 'queue')} moved in at most {one.duration_ms:.0f} ms"
    going_on = [] if one.settled else ["not settled yet: it goes on"]
    return f"{time_text(one.at_ms)}  {'; '.join([*changes, moved, *going_on])}"


def _row(move: "QueueMove") -> list[object]:
    queue = move.queue
    pause, twice, burst = map(_bounds_text, (move.pause_ms, move.duplicates, move.burst))
    if move.source is None:  # nobody read it before, as far as was seen
        pause = twice = "-"
    source = move.source or "-"
    return [
        queue.topic,
        queue.broker_name,
        queue.queue_id,
        source,
        move.target,
        pause,
        twice,
        burst,
    ]


def _bounds_text(bounds: "Bounds | None") -> str:
    if bounds is None:
        return "?"
    least, most = round(bounds.least), round(bounds.most)
    return str(least) if least == most else f"{least} to {most}"


def _queue_text(queue: "MessageQueue") -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


def _queue_value(queue: "MessageQueue") -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id}


def _value(one: "Rebalance") -> dict[str, Any]:
    return {
        "event": "rebalance",
        "at_ms": one.at_ms,
        "duration_ms": round(one.duration_ms),
        "members": one.members,
        "joined": one.joined,
        "left": one.left,
        "restarted": one.restarted,
        "moved": [_move_value(move) for move in one.moves],
        "unread": [_queue_value(queue) for queue in one.unread],
        "removed": [_queue_value(queue) for queue in one.removed],
        "settled": one.settled,
    }


def _move_value(move: "QueueMove") -> dict[str, Any]:
    return {
        **_queue_value(move.queue),
        "from": move.source,
        "to": move.target,
        **_bounds_value("pause_ms", move.pause_ms),
        **_bounds_value("duplicates", move.duplicates),
        **_bounds_value("burst", move.burst),
    }


def _bounds_value(name: str, bounds: "Bounds | None") -> dict[str, int | None]:
    if bounds is None:
        return {f"{name}_min": None, f"{name}_max": None}
    return {f"{name}_min": round(bounds.least), f"{name}_max": round(bounds.most)}
