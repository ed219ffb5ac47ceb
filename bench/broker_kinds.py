"""Parts of `bench_broker.py`: messages that are more than sent and read: timers, transactions, requests."""

import json
import subprocess
import sys
from pathlib import Path

from broker_drive import Row, Size, both, java_client, lines_of, memory_lines, say, warm_up
from broker_sides import Side, require_count, sides_of
from harness import Line

TIMER = Path(__file__).with_name("timer_lateness.py")


def part_timer(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """Timer messages: how long after their time they are stored, at the default precision of a second."""
    rows: dict[str, Row] = {}
    with sides_of(root, dict(size.settings), kinds, "-timer") as sides:
        for side in sides:
            options = map(str, (side.namesrv, side.address, side.new_topic(), *size.timers))
            ended = subprocess.run(
                [sys.executable, str(TIMER), *options], capture_output=True, text=True, check=False
            )
            if ended.returncode != 0:
                raise SystemExit(f"{side.kind}, timer: {ended.stderr}{side.broker.tail()}")
            rows[side.kind] = row = json.loads(ended.stdout)
            if row["early"]:
                raise SystemExit(f"{side.kind}, timer: {row['early']} came before their time")
            say(f"  {side.kind:5} {row}")
        lines = memory_lines(sides, "timer, memory with all waiting")
    ours, theirs = rows["ours"], rows.get("java", {})
    lines.append(Line("timer, sends that wait", ours["rate"], theirs.get("rate"), goal=1.5))
    for name, goal in (("p50_ms", None), ("p99_ms", 1500.0)):
        values = ours[name], theirs.get(name)
        title = f"timer, late, {name[:-3]}"
        line = Line(title, *values, "ms", goal=goal, more_is_better=False, goal_unit="ms")
        lines.append(line)
    return lines


def part_transactions(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """Half message and commit, 16 in flight; what was committed is counted in the topic."""
    lines = []
    for sync in (False, True):
        flush = {"flushDiskType": "SYNC_FLUSH"} if sync else {}
        with sides_of(root, {**dict(size.settings), **flush}, kinds, f"-tx{sync:d}") as sides:
            times = {"seconds": size.seconds, "warm": size.warm}
            if size.warm_up:
                unused = {side.kind: side.new_topic() for side in sides}
                both(sides, "transactions", unused, depth=16, **times)
            topics = {side.kind: side.new_topic() for side in sides}
            rows = both(sides, "transactions", topics, depth=16, **times)
            for side in sides:
                require_count(side, topics[side.kind], rows[side.kind]["messages"])
        mode = "sync" if sync else "async"
        lines += lines_of(f"transactions, {mode}, 16 in flight", rows, 1.5)
    return lines


def part_request(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """Requests and their replies from end to end: by a light asker and replier, and by RocketMQ's client."""
    lines = []
    with sides_of(root, dict(size.settings), kinds, "-request") as sides:
        times = {"seconds": size.seconds, "warm": size.warm}
        warm_up(sides, {side.kind: side.new_topic() for side in sides}, size)
        if size.warm_up:
            both(sides, "request", {s.kind: s.new_topic() for s in sides}, depth=16, **times)
        for depth in size.requests:
            topics = {side.kind: side.new_topic() for side in sides}
            rows = both(sides, "request", topics, depth=depth, **times)
            what = f"request and reply, {depth} in flight"
            lines += lines_of(what, rows, None, p50_goal=1.5)
        if "java" in kinds:
            lines += _requests_of_java(sides, size)
    return lines


def _requests_of_java(sides: list[Side], size: Size) -> list[Line]:
    """Return what an application sees; its own client takes more than either broker: so no goal."""
    lines = []
    for threads in size.threads:
        options = threads, size.client_seconds
        rows = {s.kind: java_client(s, "request", s.new_topic(), *options) for s in sides}
        lines += lines_of(f"request and reply, Java client, {threads} threads", rows, None)
    return lines
