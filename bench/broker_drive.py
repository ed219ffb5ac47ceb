"""What the parts of `bench_broker.py` share: sizes, drivers run against a side, and lines of figures."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker_sides import SERVERS, Side, java
from compat.maven import classpath
from harness import Line

DRIVER = Path(__file__).with_name("raw_driver.py")
DRIVERS = {
    "paced": DRIVER.with_name("paced_driver.py"),
    "pop": DRIVER.with_name("pop_driver.py"),
    "request": DRIVER.with_name("request_driver.py"),
    "transactions": DRIVER.with_name("transaction_driver.py"),
}
CLIENT_MAIN = "orbitmq.javaclient.ClientBench"

Row = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How long a run takes."""

    depths: tuple[int, ...]
    seconds: float
    warm: float
    threads: tuple[int, ...]
    client_seconds: float
    settings: tuple[tuple[str, str], ...] = ()
    batch_depths: tuple[int, ...] = (4, 16)
    # Waiting, due, over so many seconds; the first is due so long after the last was sent.
    timers: tuple[int, int, float, float] = (1_000_000, 100_000, 20, 3)
    requests: tuple[int, ...] = (16,)  # in flight
    idle: float = 2.0  # before idle memory is looked at
    warm_up: bool = True  # have both sides compile, or load, what they need
    shares: bool = False  # one broker for all parts with the same settings
    filtered: int = 100_000  # messages of which one in a hundred is wanted
    filter_warm: float = 8


SMALL_LOG = (("mappedFileSizeCommitLog", str(64 << 20)), ("enablePropertyFilter", "true"))
SIZES = {
    "full": Size((1, 4, 16, 64, 256), 4, 1.5, (1, 16, 64), 6, requests=(1, 16, 64)),
    "smoke": Size(
        *((4,), 0.2, 0.05, (2,), 1, SMALL_LOG),
        batch_depths=(4,),
        timers=(200, 100, 0.2, 1.5),
        idle=0.1,
        warm_up=False,
        shares=True,
        filtered=2_000,
        filter_warm=0,
    ),
    # One of many, as compare.py runs them.
    "turn": Size((64,), 3, 0.5, (16,), 3, timers=(20_000, 10_000, 5, 3)),
}
GOALS = {"raw": 2.0, "sync": 1.5}


def drive(side: Side, what: str, topic: str, **options: object) -> Row:
    """Run the raw driver against one side; adds what the broker's processor time was."""
    arguments = [f"--{name}={value}" for name, value in options.items()]
    before = side.cpu_seconds()
    driver = DRIVERS.get(what, DRIVER)
    command = [sys.executable, str(driver), what, side.address, topic, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"{side.kind}, {what}: {ended.stdout}{ended.stderr}{side.broker.tail()}")
    row: Row = json.loads(ended.stdout)
    if row.get("errors"):
        raise SystemExit(f"{side.kind}, {what}: {row['errors']} answers were no success")
    row["cpu_per_million"] = (side.cpu_seconds() - before) / row["messages"] * 1e6
    return row


def both(sides: list[Side], what: str, topics: dict[str, str], **options: object) -> dict[str, Row]:
    rows = {side.kind: drive(side, what, topics[side.kind], **options) for side in sides}
    for kind, row in rows.items():
        say(f"  {kind:5} {options} {row['rate']:10,.0f}/s  " + _latency(row))
    return rows


def _latency(row: Row) -> str:
    parts = [f"{name[:-3]} {row[name]:.2f}" for name in ("p50_ms", "p99_ms", "p999_ms")]
    return ", ".join(parts) + f" ms, {row['cpu_per_million']:.1f} CPU s a million"


def lines_of(
    what: str, rows: dict[str, Row], goal: float | None, p50_goal: float | None = None
) -> list[Line]:
    """Return the lines of one comparison: rate, latencies, processor time."""
    ours, java_row = rows["ours"], rows.get("java", {})
    lines = [Line(what, ours["rate"], java_row.get("rate"), goal=goal)]
    for name, share in (("p50_ms", p50_goal), ("p99_ms", 2.0), ("p999_ms", None)):
        title = f"{what}, {name[:-3]}"
        values = ours[name], java_row.get(name)
        lines.append(Line(title, *values, unit="ms", goal=share, more_is_better=False))
    values = ours["cpu_per_million"], java_row.get("cpu_per_million")
    lines.append(Line(f"{what}, CPU s a million", *values, unit="s", more_is_better=False))
    return lines


def memory_lines(sides: list[Side], what: str) -> list[Line]:
    found = {side.kind: side.memory_bytes()[0] / 1e6 for side in sides}
    return [Line(what, found["ours"], found.get("java"), "MB", more_is_better=False)]


def warm_up(sides: list[Side], topics: dict[str, str], size: Size) -> None:
    """Have both sides compile, or load, what they need."""
    if not size.warm_up:
        return
    both(sides, "send", topics, depth=16, batch=16, seconds=size.seconds, warm=size.warm)
    both(sides, "send", topics, depth=16, seconds=size.seconds, warm=size.warm)


def java_client(side: Side, what: str, topic: str, threads: int, *options: object) -> Row:
    home = side.root / "client"
    command = java(home, "512m", CLIENT_MAIN, what, side.namesrv, topic, str(threads))
    command[command.index("-cp") + 1] = classpath("clients/java", SERVERS)
    before = side.cpu_seconds()
    ended = subprocess.run(
        [*command, *map(str, options)], capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise SystemExit(f"{side.kind}, Java client: {ended.stdout}{ended.stderr}")
    figures = [
        line for line in ended.stdout.splitlines() if line.startswith("{")
    ]  # its log has none
    row: Row = json.loads(figures[-1])
    row["cpu_per_million"] = (side.cpu_seconds() - before) / max(row["messages"], 1) * 1e6
    say(f"  {side.kind:5} {what} {threads} {options} {row['rate']:10,.0f}/s  " + _latency(row))
    return row


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
