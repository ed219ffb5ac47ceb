"""How late timer messages are, with many others waiting: a program of the broker benchmark.

    python bench/timer_lateness.py NAMESRV ADDRESS TOPIC WAITING COUNT SECONDS AHEAD

Sends WAITING messages for an hour from now on, then COUNT that are due at moments spread over SECONDS, and
reads when each of these was stored in its topic. All are sent, by the light client of `raw_driver.py`, AHEAD
seconds before the first is due. Prints one row of JSON.
"""

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Iterable

from frames import FIRST_OPAQUE
from orbitmq.client import PullConsumer
from raw_driver import Link, Sender, send_frame

HOUR_MS = 3_600_000
DEPTH, CONNECTIONS = 256, 4
TIME = 10**12  # stands in the frames, to be replaced; a time of now has as many digits
PATIENCE_S = 60


class TimerSender(Sender):
    """Sends one message for each of these times."""

    def __init__(self, address: str, topic: str, times: Iterable[int]) -> None:
        given = {"address": address, "topic": topic, "depth": DEPTH, "connections": CONNECTIONS}
        super().__init__(argparse.Namespace(**given, batch=1))
        self._times = iter(times)
        more = f"TIMER_DELIVER_MS\x01{TIME}\x02"
        self._frames = {}
        for number, queue in enumerate(self.links):
            before, behind = send_frame(topic, number, 1, more)
            self._frames[queue] = *before.rsplit(str(TIME).encode(), 1), behind

    def send_all(self) -> float:
        """Send all; return how many a second were taken."""
        start = time.perf_counter()
        waiting = sum(self._send_next(link, link.depth) for link in self.links.values())
        while waiting:
            for link in self._ready(waiting):
                answered = self._receive(link)
                waiting += self._send_next(link, answered) - answered
        if self.errors:
            raise SystemExit(f"{self.errors} sends were refused")
        return self._next / (time.perf_counter() - start)

    def _send_next(self, link: Link, count: int) -> int:
        before, between, behind = self._frames[link.sock.fileno()]
        parts: list[bytes] = []
        for due_ms in itertools.islice(self._times, count):
            number = b"%d" % (FIRST_OPAQUE + self._next)
            parts += (before, b"%d" % due_ms, between, number, behind)
            self._next += 1
        if parts:
            link.sock.sendall(b"".join(parts))
        return len(parts) // 5


def late_ms(namesrv: str, topic: str, count: int) -> list[int]:
    """Return how long after its time each message was stored, when all have come."""
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    with PullConsumer(namesrv, "bench-timer", auto_commit=False) as consumer:
        consumer.assign(consumer.topic_queues(topic))
        consumer.seek_to_begin()
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.poll(timeout=1):
                found.append(message.store_ms - int(message.properties["TIMER_DELIVER_MS"]))
    if len(found) != count:
        raise SystemExit(f"{len(found)} of {count} messages came")
    return sorted(found)


def main(
    namesrv: str, address: str, topic: str, waiting: int, count: int, seconds: float, ahead: float
) -> None:
    chance = random.Random(7)
    now_ms = time.time_ns() // 1_000_000
    later = (now_ms + HOUR_MS + chance.randrange(HOUR_MS) for _ in range(waiting))
    rate = TimerSender(address, topic, later).send_all()
    start_ms = time.time_ns() // 1_000_000 + int((ahead + 2 * count / rate) * 1000)
    span_ms = max(1, int(seconds * 1000))
    soon = (start_ms + chance.randrange(span_ms) for _ in range(count))
    TimerSender(address, topic, soon).send_all()
    if time.time_ns() // 1_000_000 > start_ms:
        raise SystemExit("the first was due before the last was sent")
    time.sleep(max(0.0, (start_ms + span_ms) / 1000 - time.time()))
    late = late_ms(namesrv, topic, count)
    row = {
        "messages": count,
        "rate": rate,
        "early": sum(value < 0 for value in late),
        "p50_ms": late[len(late) // 2],
        "p99_ms": late[min(len(late) - 1, len(late) * 99 // 100)],
        "max_ms": late[-1],
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:6]), *map(float, sys.argv[6:8]))
