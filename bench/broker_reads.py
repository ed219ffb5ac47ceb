"""Parts of `bench_broker.py`: messages that are read, by pulls, by pops and through filters."""

import itertools
import time
from pathlib import Path

import filtered_pulls
from broker_drive import Size, both, drive, lines_of, say
from broker_sides import Side, require_count, sides_of
from harness import Line

CONNECTIONS = 4
FILTER_RUNS = 5  # the best of them counts
FILTER_SHARE = 3.0  # of what a filter by tag takes


def part_backlog(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """Pulls from the first message to the last, one in flight per queue of eight."""
    with sides_of(root, dict(size.settings), kinds, "-backlog") as sides:
        topics = {side.kind: side.new_topic() for side in sides}
        sent = both(
            sides, "send", topics, depth=16, batch=16, seconds=size.seconds * 2, warm=size.warm
        )
        for side in sides:
            require_count(side, topics[side.kind], sent[side.kind]["messages"])
        rows = both(sides, "pull", topics, queues=8)
        again = both(sides, "pull", topics, queues=8) if size.warm_up else rows
    for kind, row in rows.items():
        if row["messages"] != sent[kind]["messages"]:
            raise SystemExit(f"{kind}: {row['messages']} of {sent[kind]['messages']} were read")
        row["rate"] = max(row["rate"], again[kind]["rate"])
    return lines_of("backlog, raw pulls", rows, 1.5)


def part_pop(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """Pops of 32 messages, each acknowledged by itself, four at a time, until nothing is left."""
    with sides_of(root, dict(size.settings), kinds, "-pop") as sides:
        topics = {side.kind: side.new_topic() for side in sides}
        times = {"seconds": size.seconds, "warm": size.warm}
        for side in sides:
            sent = drive(side, "send", topics[side.kind], depth=4, **times)
            require_count(side, topics[side.kind], sent["messages"])
        rows = both(sides, "pop", topics, connections=CONNECTIONS)
    return lines_of("pop and ack, messages", rows, 1.5)


def part_filtered(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """Pulls over a queue of which one message in a hundred is wanted."""
    settings = {**dict(size.settings), "enablePropertyFilter": "true"}
    units, best = size.filtered, {}
    with sides_of(root, settings, kinds, "-filtered") as sides:
        for side in sides:
            topic = side.new_topic()
            filtered_pulls.fill(side.address, topic, units)
            require_count(side, topic, units)
            _warm_filters(side, topic, units, size.filter_warm)
            for _, (name, wanted) in itertools.product(
                range(FILTER_RUNS), filtered_pulls.FILTERS.items()
            ):
                seconds = filtered_pulls.seconds_of(side.address, topic, units, *wanted)
                best[side.kind, name] = min(best.get((side.kind, name), seconds), seconds)
                say(f"  {side.kind:5} {name:5} {seconds / units * 1e6:.2f} us a unit")
    lines = [
        Line(
            f"filtered pulls by {name}",
            units / best["ours", name],
            units / best["java", name] if "java" in kinds else None,
            goal=1.5,
        )
        for name in filtered_pulls.FILTERS
    ]
    share = {kind: best[kind, "SQL92"] / best[kind, "tag"] for kind in kinds}
    what, limit = "SQL92, times the filter by tag", FILTER_SHARE
    return [*lines, Line(what, share["ours"], share.get("java"), "x", limit, False, "x of the tag")]


def _warm_filters(side: Side, topic: str, units: int, seconds: float) -> None:
    """Pull for a while, so that each side has compiled, or loaded, what it needs."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for wanted in filtered_pulls.FILTERS.values():
            filtered_pulls.seconds_of(side.address, topic, units, *wanted)
