"""Copies of the log against RocketMQ's own: what a replica costs its primary, and how fast one catches up.

    python bench/bench_replication.py [--size full|smoke] [--only NAME ...] [--depths N ...]

A primary with one replica of each kind, Java 5.3.3 and ours, run beside each other and are driven by turns,
so that both see the same machine; the two brokers of a pair share it, and CPU time is that of both.

Parts: async (sends while a replica follows, beside a broker without one: all on the same cores, and once more
with primary and driver on one core and our replica on another, as one on its own machine has), sync (each
answer waits for the replica, inSyncReplicas=2), catch-up (a replica that was away while its primary got some
gigabytes; from its first byte to its last).

Every figure is checked: an answer that is no success, or a log that is not equally long, ends the run.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import harness
from broker_drive import SMALL_LOG, Row, drive, lines_of, say
from broker_sides import ORBITMQ, Side, java, process_seconds
from broker_sides import ask as side_ask
from compat.java_cluster import BROKER_MAIN, broker_settings, write_settings
from compat.java_store import why_not
from compat.server_process import ServerProcess, ask, free_port, is_registered
from doors import Command
from harness import Line

GET_BROKER_RUNTIME_INFO, SEND_MESSAGE_V2 = 28, 310
WITHIN_S = 600
START_S = 15
ALONE_SHARE = 90.0
SYNC_GOAL, CATCH_UP_GOAL = 1.5, 3.0
SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}


@dataclass(frozen=True)
class Size:
    """How long a run takes."""

    depths: tuple[int, ...]
    seconds: float
    warm: float
    behind_bytes: int  # what a replica has to catch up with
    rounds: int = 1
    fill: float = 0.5  # so long a driver runs that sends what a replica is to lack
    settings: tuple[tuple[str, str], ...] = ()


SIZES = {
    "full": Size((1, 16, 64, 256), 4, 1.5, 4 << 30, rounds=5, fill=5),
    "smoke": Size((4,), 0.2, 0.05, 4 << 20, settings=SMALL_LOG),
}


class Pair(Side):
    """A primary, and a replica that is started when it is wanted."""

    def __init__(self, kind: str, root: Path, settings: dict[str, str], tag: str) -> None:
        super().__init__(kind, root, settings, tag)
        port, place = free_port(), self.root / "replica"
        own = {"brokerRole": "SLAVE", "brokerId": "1", "diskMaxUsedSpaceRatio": "95"}
        known = broker_settings(place, port, self.namesrv, "broker-a")
        config = write_settings(place / "broker.conf", {**known, **settings, **own})
        command = [str(ORBITMQ), "broker", "run", "--config", str(config)]
        if kind == "java":
            command = java(place, "512m", BROKER_MAIN, "-c", str(config))
        address = f"127.0.0.1:{port}"
        self.replica = ServerProcess(
            "replica", command, port, place, lambda: is_registered(address, self.namesrv)
        )

    def cpu_seconds(self) -> float:
        """Return what both brokers used so far."""
        process = self.replica.process
        return super().cpu_seconds() + (process_seconds(process.pid) if process is not None else 0)

    @contextmanager
    def copied(self) -> Iterator[None]:
        """Run the replica; it has everything when the body starts."""
        self.replica.start()
        try:
            self.await_equal()
            yield
        finally:
            self.replica.kill()

    def await_equal(self) -> None:
        until = time.monotonic() + WITHIN_S
        while log_end(self.replica.address) != log_end(self.address):
            if time.monotonic() > until:
                raise SystemExit(f"{self.kind}: the replica does not follow\n{self.replica.tail()}")
            time.sleep(0.02)


def log_end(address: str) -> int:
    """Return how long the log of a broker is. RocketMQ's cannot tell in its first moments, and says so."""
    until = time.monotonic() + START_S
    while True:
        code, remark, body = ask(address, GET_BROKER_RUNTIME_INFO)
        if not code:
            return int(json.loads(body)["table"]["commitLogMaxOffset"])
        if time.monotonic() > until:
            raise SystemExit(f"{address}: {remark}")
        time.sleep(0.05)


def await_acknowledged(side: Side, topic: str) -> None:
    """Send until a send is a success: two empty logs are equal before the replica is connected."""
    fields = {"a": "Bench", "b": topic, "c": "TBW102", "d": "8", "e": "0", "f": "0", "g": "1"}
    fields |= {"h": "0", "i": "WAIT\x01true\x02", "j": "0", "k": "false", "m": "false"}
    until = time.monotonic() + START_S
    while (answer := side_ask(side.address, Command(SEND_MESSAGE_V2, fields, b"first"))).code:
        if time.monotonic() > until:
            raise SystemExit(f"{side.kind}: {answer.code} {answer.remark}")
        time.sleep(0.05)


@contextmanager
def pairs_of(
    root: Path, size: Size, kinds: list[str], tag: str, **settings: str
) -> Iterator[list[Pair]]:
    """Run the pairs of a part, each with a topic's first message copied."""
    with ExitStack() as stack:
        pairs = [Pair(kind, root, {**dict(size.settings), **settings}, tag) for kind in kinds]
        for pair in pairs:
            stack.enter_context(pair.running())
            stack.enter_context(pair.copied())
        yield pairs


def turns(sides: dict[str, Side], topics: dict[str, str], size: Size, depth: int) -> dict[str, Row]:
    """Drive each side in turn, several rounds; return the median one of each by its rate.

    A pair's row has its share of the rate of the side without a replica: the median of its rounds', for
    the machine may be faster in one round than in the next.
    """
    found: dict[str, list[Row]] = {name: [] for name in sides}
    for _ in range(size.rounds):
        for name, side in sides.items():
            options = {"depth": depth, "seconds": size.seconds, "warm": size.warm}
            before = process_seconds(side.pid)
            with on_core(0) if name in (APART, ONE_CORE) else nullcontext():
                row = drive(side, "send", topics[name], **options)
            row["primary_cpu"] = (process_seconds(side.pid) - before) / row["messages"] * 1e6
            if isinstance(side, Pair):
                row["behind"] = (log_end(side.address) - log_end(side.replica.address)) / 1e6
                side.await_equal()
            say(
                f"  {name:14} {depth:4} in flight {row['rate']:10,.0f}/s, p50 {row['p50_ms']:.2f} ms"
            )
            found[name].append(row)
    middle = {
        name: sorted(rows, key=lambda row: row["rate"])[len(rows) // 2]
        for name, rows in found.items()
    }
    for name, without in WITHOUT.items():
        if name in found and without in found:
            pairs = zip(found[name], found[without], strict=True)
            shares = [row["rate"] / alone["rate"] for row, alone in pairs]
            middle[name]["share"] = 100 * statistics.median(shares)
    return middle


APART, ONE_CORE = "ours, apart", "ours, one core"
WITHOUT = {"ours": "ours alone", APART: ONE_CORE}


@contextmanager
def on_core(number: int) -> Iterator[None]:
    """Have the processes that the body starts run on this core; where there is one only, on that."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[number % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def part_async(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """Sends while a replica follows, beside a broker without one."""
    lines: list[Line] = []
    with ExitStack() as stack, pairs_of(root, size, kinds, "-async") as pairs:
        alone = [Side(kind, root, dict(size.settings), "-alone") for kind in kinds]
        for side in alone:
            stack.enter_context(side.running())
        apart = Pair("ours", root, dict(size.settings), "-apart")
        one_core = Side("ours", root, dict(size.settings), "-one-core")
        with on_core(0):
            stack.enter_context(one_core.running())
            stack.enter_context(apart.running())
        with on_core(1):
            stack.enter_context(apart.copied())
        sides: dict[str, Side] = {f"{side.kind} alone": side for side in alone}
        sides |= {pair.kind: pair for pair in pairs} | {ONE_CORE: one_core, APART: apart}
        topics = {name: side.new_topic() for name, side in sides.items()}
        for depth in size.depths:
            rows = turns(sides, topics, size, depth)
            followed = {kind: rows[kind] for kind in kinds}
            lines += lines_of(f"sends with a replica, async, {depth} in flight", followed, None)
            bare = {kind: rows[f"{kind} alone"] for kind in kinds}
            lines += lines_of(f"sends without a replica, {depth} in flight", bare, None)[:1]
            for name, where in (("ours", "on these cores"), (APART, "on a core of its own")):
                what = f"with a replica {where}, of the rate without, {depth} in flight"
                lines.append(
                    Line(what, rows[name]["share"], unit="%", goal=ALONE_SHARE, goal_unit="%")
                )
            what = f"the replica on a core of its own is behind at the end, {depth} in flight"
            lines.append(Line(what, rows[APART]["behind"], unit="MB", more_is_better=False))
            own, bare_own = rows[APART]["primary_cpu"], rows[ONE_CORE]["primary_cpu"]
            what = f"CPU s a million of the primary, {depth} in flight"
            lines.append(Line(what, own, unit="s", more_is_better=False))
            lines.append(Line(f"{what}, without", bare_own, unit="s", more_is_better=False))
        for pair in (*pairs, apart):
            pair.await_equal()
    return lines


def part_sync(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """Each answer waits until the replica has the message."""
    lines: list[Line] = []
    with pairs_of(root, size, kinds, "-sync", **SYNC) as pairs:
        sides: dict[str, Side] = {pair.kind: pair for pair in pairs}
        topics = {name: side.new_topic() for name, side in sides.items()}
        for name, side in sides.items():
            await_acknowledged(side, topics[name])
        for depth in size.depths:
            rows = turns(sides, topics, size, depth)
            lines += lines_of(f"sends, sync replication, {depth} in flight", rows, SYNC_GOAL)
        for pair in pairs:
            pair.await_equal()
    return lines


def part_catch_up(root: Path, size: Size, kinds: list[str]) -> list[Line]:
    """A replica that was away while its primary got more; one kind after the other."""
    found: dict[str, tuple[float, float]] = {}
    for kind in kinds:
        pair = Pair(kind, root, dict(size.settings), "-behind")
        with pair.running():
            topic = pair.new_topic()
            drive(pair, "send", topic, depth=1, seconds=0.1, warm=0.0)
            with pair.copied():
                began = log_end(pair.replica.address)
            while log_end(pair.address) - began < size.behind_bytes:
                drive(pair, "send", topic, depth=16, batch=16, seconds=size.fill, warm=0.0)
            found[kind] = _caught_up(pair, began)
        rate, cpu = found[kind]
        say(f"  {kind:5} {rate:8,.1f} MB/s, {cpu:.2f} CPU s a GB of both brokers")
    rates, cpus = ({kind: row[at] for kind, row in found.items()} for at in (0, 1))
    what = "catch-up, CPU s a GB"
    return [
        Line("catch-up", rates["ours"], rates.get("java"), "MB/s", goal=CATCH_UP_GOAL),
        Line(what, cpus["ours"], cpus.get("java"), "s", more_is_better=False),
    ]


def _caught_up(pair: Pair, began: int) -> tuple[float, float]:
    """Start the replica; return MB a second from when it has more until it has everything, and CPU s a GB."""
    end, until = log_end(pair.address), time.monotonic() + WITHIN_S
    pair.replica.start()
    try:
        at = log_end(pair.replica.address)
        first, started, used = max(at, began), time.perf_counter(), pair.cpu_seconds()
        while at < end:
            if time.monotonic() > until:
                raise SystemExit(f"{pair.kind}: no catching up\n{pair.replica.tail()}")
            time.sleep(0.005)
            at = log_end(pair.replica.address)
            if at == first:
                started, used = time.perf_counter(), pair.cpu_seconds()
        took, used = time.perf_counter() - started, pair.cpu_seconds() - used
    finally:
        pair.replica.kill()
    if end == first:
        raise SystemExit(f"{pair.kind}: the replica had everything before it was looked at")
    return (end - first) / took / 1e6, used / (end - first) * 1e9


PARTS = {"async": part_async, "sync": part_sync, "catch-up": part_catch_up}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--depths", nargs="+", type=int, help="so many sends in flight")
    parser.add_argument("--without-java", action="store_true", help="our side alone")
    parser.add_argument("--directory", type=Path, help="where the stores are made")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    reason = why_not()
    kinds = ["ours"] if arguments.without_java or reason else ["java", "ours"]
    if reason and not arguments.without_java:
        say(f"without RocketMQ's side: {reason}")
    size = SIZES[arguments.size]
    size = replace(size, depths=tuple(arguments.depths or size.depths))
    lines: list[Line] = []
    print(harness.machine())
    for name in arguments.only:
        say(f"{name}: {PARTS[name].__doc__}")
        with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
            found = PARTS[name](Path(scratch), size, kinds)
        print(harness.table(found), flush=True)  # now: a later part may fail
        lines += found
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(line) for line in lines], indent=1))


if __name__ == "__main__":
    main()
