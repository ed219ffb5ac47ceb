"""Our client beside RocketMQ's Java client, on the same broker (ours), by turns.

    python bench/bench_client.py [--size full|smoke] [--rounds N] [--only send consume] [--without-java]
                                 [--directory DIR] [--json FILE]

Three producers, each a process of its own that stays warm: ours for any thread, ours for asyncio, and
Java's. In each round they send by turns, bodies of 1 KiB, so that all see the same machine. The median of
the rounds counts. With several in flight ours sends from one thread (`send_async`, waiting for the oldest) or
from so many tasks (`await send`); Java does both of what it can, one thread with callbacks and so many
threads, and the better one counts.

Every figure is checked: each send has to succeed, and the topic has to have all messages in the end.
"""

import argparse
import asyncio
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import harness
from broker_drive import Row, drive, java_client, say
from broker_sides import SERVERS, Side, java, require_count
from client_consume import GOALS, SCENARIOS
from compat.java_store import why_not
from compat.maven import classpath
from harness import Line
from orbitmq.client import AsyncProducer, Message, Producer
from orbitmq.net.loop import run

JAVA_MAIN = "orbitmq.javaclient.SendBench"
BODY = bytes(1024)


@dataclass(frozen=True)
class Size:
    """How long a run takes."""

    depths: tuple[int, ...]
    seconds: float
    warm: float
    rounds: int
    backlog: int  # messages for consumers, at least
    settings: tuple[tuple[str, str], ...] = ()


SIZES = {
    "full": Size((1, 16, 64), 3, 4, 5, 200_000),
    "smoke": Size((1, 4), 0.2, 0.1, 1, 1000, (("mappedFileSizeCommitLog", str(64 << 20)),)),
}
GOAL = 1.0


# --- a producer of ours, in a process of its own ---


def message(topic: str) -> Message:
    return Message(topic, BODY, tag="TagA", keys="key")


def require(result: Any) -> None:
    if not result.is_ok:
        raise SystemExit(f"a send failed: {result}")


def send_from_thread(producer: Producer, topic: str, depth: int, end: float) -> int:
    sent = 0
    if depth == 1:
        while time.perf_counter() < end:
            require(producer.send(message(topic)))
            sent += 1
        return sent
    on_their_way: deque[Any] = deque()
    while time.perf_counter() < end:
        while len(on_their_way) < depth:
            on_their_way.append(producer.send_async(message(topic)))
        require(on_their_way.popleft().result())
        sent += 1
    for future in on_their_way:
        require(future.result())
    return sent + len(on_their_way)


async def send_from_tasks(producer: AsyncProducer, topic: str, depth: int, end: float) -> int:
    async def send() -> int:
        sent = 0
        while time.perf_counter() < end:
            require(await producer.send(message(topic)))
            sent += 1
        return sent

    return sum(await asyncio.gather(*(send() for _ in range(depth))))


def orders() -> Iterator[tuple[int, float]]:
    for line in sys.stdin:
        _, depth, seconds = line.split()
        yield int(depth), float(seconds)


def tell(sent: int, started: float) -> None:
    rate = sent / (time.perf_counter() - started)
    print(json.dumps({"rate": rate, "messages": sent}), flush=True)


def serve_sync(namesrv: str, topic: str) -> None:
    with Producer(namesrv, "OurSendBench") as producer:
        for depth, seconds in orders():
            started = time.perf_counter()
            tell(send_from_thread(producer, topic, depth, started + seconds), started)


async def serve_asyncio(namesrv: str, topic: str) -> None:
    async with AsyncProducer(namesrv, "OurAsyncSendBench") as producer:
        for depth, seconds in orders():  # nothing else has to go on while it waits
            started = time.perf_counter()
            tell(await send_from_tasks(producer, topic, depth, started + seconds), started)


# --- the other side of that: peers, rounds, the table ---


class Peer:
    """A producer in a process of its own."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name, self.messages = name, 0
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, mode: str, depth: int, seconds: float) -> float:
        """Have it send so long; return its rate."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{mode} {depth} {seconds}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):  # a log may write between
                row: Row = json.loads(line)
                self.messages += row["messages"]
                return float(row["rate"])
        raise SystemExit(f"{self.name} ended: exit code {self._process.wait()}")

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def peers(side: Side, topic: str, *, with_java: bool) -> Iterator[dict[str, Peer]]:
    ours = [sys.executable, __file__, "--peer"]
    commands = {
        "sync": [*ours, "sync", side.namesrv, topic],
        "asyncio": [*ours, "asyncio", side.namesrv, topic],
    }
    if with_java:
        command = java(side.root / "java-client", "512m", JAVA_MAIN, side.namesrv, topic)
        command[command.index("-cp") + 1] = classpath("clients/java", SERVERS)
        commands["java"] = command
    started = {name: Peer(name, command) for name, command in commands.items()}
    try:
        yield started
    finally:
        for peer in started.values():
            peer.end()


def part_send(root: Path, size: Size, rounds: int, *, with_java: bool) -> list[Line]:
    """One message after the other, and several in flight."""
    side = Side("ours", root, dict(size.settings))
    with side.running():
        topic = side.new_topic()
        with peers(side, topic, with_java=with_java) as started:
            for peer, depth in itertools.product(started.values(), size.depths):
                for mode in modes(peer.name, depth):
                    peer.send(mode, depth, size.warm)
            lines = [
                line for depth in size.depths for line in compare(started, depth, size, rounds)
            ]
        require_count(side, topic, sum(peer.messages for peer in started.values()))
    return lines


def modes(name: str, depth: int) -> list[str]:
    """Return the ways in which a peer sends at this depth."""
    if name != "java":
        return [name]
    return ["threads"] if depth == 1 else ["async", "threads"]


def compare(started: dict[str, Peer], depth: int, size: Size, rounds: int) -> Iterator[Line]:
    """Measure all peers by turns; yield the lines of our two."""
    turns = [(peer, mode) for peer in started.values() for mode in modes(peer.name, depth)]
    rates: dict[str, list[float]] = {mode: [] for _, mode in turns}
    for number in range(rounds):
        for peer, mode in turns:
            rates[mode].append(peer.send(mode, depth, size.seconds))
        shown = ", ".join(f"{mode} {found[-1]:,.0f}/s" for mode, found in rates.items())
        say(f"  {depth} in flight, round {number + 1}: {shown}")
    middle = {mode: statistics.median(found) for mode, found in rates.items()}
    beside = max((middle[mode] for mode in modes("java", depth) if mode in middle), default=None)
    for kind in ("sync", "asyncio"):
        yield Line(f"{kind} sends, {depth} in flight", middle[kind], beside, goal=GOAL)


def consume(*work: str) -> Row:
    """Run one scenario of client_consume in a process of its own."""
    command = [sys.executable, __file__, "--peer", *work]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return harness.last_row(ended.stdout)


def part_consume(root: Path, size: Size, rounds: int, *, with_java: bool) -> list[Line]:
    """A backlog of 1 KiB messages in 8 queues; Java's push consumer beside ours."""
    side = Side("ours", root, dict(size.settings))
    rates: dict[str, list[float]] = {}
    with side.running():
        topic, count = side.new_topic(), 0
        while count < size.backlog:
            options = {"depth": 16, "batch": 16, "seconds": size.seconds / 3, "warm": 0.1}
            count += int(drive(side, "send", topic, **options)["messages"])
        require_count(side, topic, count)
        for number in range(rounds):
            for name in SCENARIOS:
                work = (side.namesrv, topic, str(count), f"G{number}-{name}")
                row = consume(name, *work)
                rates.setdefault(name, []).append(row["rate"])
            if with_java:
                row = java_client(side, "push", topic, 20, count)
                rates.setdefault("java", []).append(row["rate"])
            shown = ", ".join(f"{name} {found[-1]:,.0f}/s" for name, found in rates.items())
            say(f"  {count} messages, round {number + 1}: {shown}")
    middle = {name: statistics.median(found) for name, found in rates.items()}
    java = middle.pop("java", None)
    return [
        Line(f"consumer: {name}", rate, java, "/s", GOALS.get(name), goal_unit="unit")
        for name, rate in middle.items()
    ]


PARTS: dict[str, Callable[..., list[Line]]] = {"send": part_send, "consume": part_consume}


def main() -> None:
    if sys.argv[1:2] == ["--peer"]:
        kind, namesrv, topic, *more = sys.argv[2:]
        if kind == "sync":
            serve_sync(namesrv, topic)
        elif kind in SCENARIOS:
            print(json.dumps(SCENARIOS[kind](namesrv, topic, int(more[0]), more[1])))
        else:
            run(serve_asyncio(namesrv, topic))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--rounds", type=int, help="how often each is measured")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--without-java", action="store_true", help="our side alone")
    parser.add_argument("--directory", type=Path, help="where the store is made")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    reason = why_not()
    if reason and not arguments.without_java:
        say(f"without the Java client: {reason}")
    with_java = not (reason or arguments.without_java)
    size = SIZES[arguments.size]
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
        for name in arguments.only:
            say(f"{name}: {PARTS[name].__doc__}")
            rounds = arguments.rounds or size.rounds
            lines += PARTS[name](Path(scratch) / name, size, rounds, with_java=with_java)
    print(harness.machine())
    print(harness.table(lines, "Java client"))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(line) for line in lines], indent=1))


if __name__ == "__main__":
    main()
