"""How fast our consumers read a backlog; a part of bench_client.py, which runs each scenario in a process.

Scenarios: `for message in consumer`, a handler that takes lists, `async for`. Each counts from the first
message to the last; a message too few ends the run.
"""

import threading
import time

from orbitmq.client import AsyncConsumer, Consumer
from orbitmq.net.loop import run as run_loop

LIST_SIZE = 1024


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
    count = _Count(wanted)
    with Consumer(namesrv, group, topic, start_from="first") as consumer:
        for message in consumer:
            if count.note(1, len(message.body)):
                message.ack()
                break
    return count.row()


def list_handler(namesrv: str, topic: str, wanted: int, group: str) -> dict[str, float]:
    """A handler that gets lists."""
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
    count = _Count(wanted)

    async def main() -> None:
        async with AsyncConsumer(namesrv, group, topic, start_from="first") as consumer:
            async for message in consumer:
                if count.note(1, len(message.body)):
                    message.ack()
                    break

    run_loop(main())
    return count.row()


SCENARIOS = {"loop": loop, "list-handler": list_handler, "asyncio-loop": async_loop}
GOALS = {"loop": 60_000, "list-handler": 100_000}  # messages a second
