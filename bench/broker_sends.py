"""Parts of `bench_broker.py`: a start, and sends, by a light driver and by RocketMQ's own client."""

import itertools
import subprocess
import time
from pathlib import Path

from broker_drive import GOALS, Row, Size, both, java_client, lines_of, memory_lines, say, warm_up
from broker_sides import Side, ask, message_count, sides_of
from doors import Command
from harness import Line


def part_start(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """From the start of the broker's process to its first acknowledged send; then idle memory."""
    found: dict[str, tuple[float, int, int]] = {}
    for kind in kinds:
        side = Side(kind, root, dict(size.settings), "-start")
        with side.namesrv_running():
            seconds = _cold_start(side)
            time.sleep(size.idle)
            found[kind] = (seconds, *side.memory_bytes())
        say(f"  {kind:5} first send after {seconds:.2f} s, {found[kind][1] / 1e6:.0f} MB anonymous")
    ours, theirs = found["ours"], found.get("java", (None, None, None))
    return [
        Line("cold start to first send", ours[0], theirs[0], "s", 1 / 0.3, False),
        Line("idle memory, anonymous", ours[1] / 1e6, _mb(theirs[1]), "MB", 1 / 0.3, False),
        Line("idle memory, resident", ours[2] / 1e6, _mb(theirs[2]), "MB", None, False),
    ]


def _mb(value: int | None) -> float | None:
    return None if value is None else value / 1e6


def _cold_start(side: Side) -> float:
    fields = {"a": "G", "b": "TBW102x", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1"}
    fields |= {"h": "0", "i": "WAIT\x01true\x02", "j": "0", "k": "false", "m": "false"}
    started = time.perf_counter()
    broker = side.broker
    broker.root.mkdir(parents=True, exist_ok=True)
    with broker.log.open("ab") as output:
        broker.process = subprocess.Popen(broker.command, stdout=output, stderr=output)
    while time.perf_counter() - started < 60:
        try:
            code = ask(side.address, Command(310, fields, b"hello")).code
        except OSError:
            code = -1
        if code == 0:
            return time.perf_counter() - started
        time.sleep(0.01)
    raise SystemExit(f"{side.kind}: no send in 60 s\n{broker.tail()}")


def part_raw(root: Path, size: Size, kinds: list[str], *, sync: bool = False) -> list[Line]:
    """Sends made ahead at several depths, by turns."""
    flush = {"flushDiskType": "SYNC_FLUSH"} if sync else {}
    name = "sync" if sync else "raw"
    lines = []
    with sides_of(root, {**dict(size.settings), **flush}, kinds, f"-{name}") as sides:
        topics = {side.kind: side.new_topic() for side in sides}
        warm_up(sides, topics, size)
        for depth in size.depths:
            rows = both(sides, "send", topics, depth=depth, seconds=size.seconds, warm=size.warm)
            flushed = "sync" if sync else "async"
            lines += lines_of(f"sends, {flushed}, {depth} in flight", rows, GOALS[name])
        lines += memory_lines(sides, f"memory after {name} sends")
    return lines


def part_sync(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """The same with sync flush."""
    return part_raw(root, size, kinds, sync=True)


def part_batch(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """Client batches of 16."""
    lines = []
    with sides_of(root, dict(size.settings), kinds, "-batch") as sides:
        topics = {side.kind: side.new_topic() for side in sides}
        warm_up(sides, topics, size)
        for depth in size.batch_depths:
            rows = both(
                sides, "send", topics, depth=depth, batch=16, seconds=size.seconds, warm=size.warm
            )
            lines += lines_of(f"batches of 16, {depth} in flight", rows, None)
    return lines


def part_client(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """RocketMQ's own Java client: sends by threads, single and in batches; then a push consumer."""
    lines = []
    for sync in (False, True):
        flush = {"flushDiskType": "SYNC_FLUSH"} if sync else {}
        with sides_of(root, {**dict(size.settings), **flush}, kinds, f"-client{sync:d}") as sides:
            topics = {side.kind: side.new_topic() for side in sides}
            warm_up(sides, {side.kind: side.new_topic() for side in sides}, size)
            for threads, batch in itertools.product(size.threads, (1, 16)):
                options = threads, batch, size.client_seconds
                rows = {s.kind: java_client(s, "send", topics[s.kind], *options) for s in sides}
                mode = "sync" if sync else "async"
                what = f"Java client, {mode}, {threads} threads, batch {batch}"
                lines += lines_of(what, rows, None)
            if not sync:
                rows = {}
                for side in sides:
                    wanted = message_count(side, topics[side.kind])
                    rows[side.kind] = java_client(side, "push", topics[side.kind], 20, wanted)
                lines.append(_rate_line("backlog, Java push consumer", rows, 1.5))
    return lines


def _rate_line(what: str, rows: dict[str, Row], goal: float) -> Line:
    return Line(what, rows["ours"]["rate"], rows.get("java", {}).get("rate"), goal=goal)
