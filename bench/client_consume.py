"""How fast our consumers read a backlog, by turns with RocketMQ's Java push consumer, from the same broker.

    python bench/client_consume.py [--rounds 3] [--messages 200000] [--without-java]

One broker of ours beside the clients, 1 KiB messages in 8 queues. Scenarios: `for message in consumer`, a
handler that takes lists, `async for`. Each runs in a process of its own and counts from the first message to
the last; a message too few ends the run. `bench_client.py` takes its part from `run`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

LIST_SIZE = 1024


class Row(NamedTuple):
    """Messages a second; None: there was no Java to compare with."""

    scenario: str
    ours: float
    java: float | None
    ratio: float | None


class _Count:
    """Counts messages from the first to the last that is wanted."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.count, self.bytes = wanted, 0, 0
        self.first = self.last = 0.0

    def note(self, count: int, size: int) -> bool:
        """Count some; return whether that was the last."""
        if not self.count:
            self.first = time.perf_counter()
        self.count += count
        self.bytes += size
        if self.count < self.wanted:
            return False
        self.last = time.perf_counter()
        return True

    def row(self) -> dict[str, float]:
        if self.count != self.wanted or self.bytes != 1024 * self.wanted:
            raise SystemExit(f"{self.count} messages of {self.wanted}, {self.bytes} bytes")
        return {"messages": self.count, "rate": self.count / (self.last - self.first)}


def loop(namesrv: str, topic: str, wanted: int, group: str) -> dict[str, float]:
    """`for message in consumer`."""
    from orbitmq.client import Consumer

    count = _Count(wanted)
    with Consumer(namesrv, group, topic, start_from="first") as consumer:
        for message in consumer:
            if count.note(1, len(message.body)):
                message.ack()
                break
    return count.row()


def list_handler(namesrv: str, topic: str, wanted: int, group: str) -> dict[str, float]:
    """A handler that gets lists."""
    from orbitmq.client import Consumer

    count, lock, done = _Count(wanted), threading.Lock(), threading.Event()

    def handle(messages):  # type: ignore[no-untyped-def]
        size = sum([len(message.body) for message in messages])
        with lock:
            if count.note(len(messages), size):
                done.set()

    settings = {"start_from": "first", "batch_size": LIST_SIZE}
    with Consumer(namesrv, group, topic, handle, **settings):
        done.wait()
    return count.row()


def async_loop(namesrv: str, topic: str, wanted: int, group: str) -> dict[str, float]:
    """`async for message in consumer`."""
    from orbitmq.client import AsyncConsumer
    from orbitmq.net.loop import run as run_loop

    count = _Count(wanted)

    async def main() -> None:
        async with AsyncConsumer(namesrv, group, topic, start_from="first") as consumer:
            async for message in consumer:
                if count.note(1, len(message.body)):
                    message.ack()
                    break

    run_loop(main())
    return count.row()


SCENARIOS = {"loop": loop, "list handler": list_handler, "asyncio loop": async_loop}


def run(
    rounds: int, messages: int = 200_000, *, with_java: bool = True, only: tuple[str, ...] = ()
) -> list[Row]:
    """Measure every scenario so many times, by turns; return and print the medians."""
    from bench_broker import Side, _java_client, _message_count, drive
    from compat.java_store import why_not

    with_java = with_java and why_not() is None
    rates: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as root,
        Side("ours", Path(root), {}).running() as side,
    ):
        topic = side.new_topic()
        while (count := _message_count(side, topic)) < messages:
            drive(side, "send", topic, depth=16, batch=16, seconds=1, warm=0.1)
            time.sleep(1)  # dispatch catches up
        for number in range(rounds):
            for name in only or SCENARIOS:
                row = _ours(name, side.namesrv, topic, count, f"G{number}-{name}")
                rates.setdefault(name, []).append(row["rate"])
            if with_java:
                row = _java_client(side, "push", topic, 20, count)
                rates.setdefault("java", []).append(row["rate"])
    medians = {name: statistics.median(found) for name, found in rates.items()}
    java = medians.pop("java", None)
    rows = [Row(name, rate, java, rate / java if java else None) for name, rate in medians.items()]
    for row in rows:
        beside = f"{row.java:12,.0f}/s  {row.ratio:.2f}x" if row.java and row.ratio else ""
        print(
            f"{row.scenario:14} {row.ours:12,.0f}/s {beside}   {[round(r) for r in rates[row.scenario]]}"
        )
    return rows


def _ours(name: str, namesrv: str, topic: str, count: int, group: str) -> dict[str, float]:
    group = group.replace(" ", "-")
    command = [sys.executable, __file__, "--part", name, namesrv, topic, str(count), group]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if ended.returncode != 0:
        raise SystemExit(f"{name}: {ended.stdout}{ended.stderr}")
    row: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return row


def main() -> None:
    if sys.argv[1:2] == ["--part"]:
        _, _, name, namesrv, topic, count, group = sys.argv
        print(json.dumps(SCENARIOS[name](namesrv, topic, int(count), group)))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--without-java", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    run(given.rounds, given.messages, with_java=not given.without_java, only=tuple(given.only))


if __name__ == "__main__":
    main()
