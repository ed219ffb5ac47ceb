"""The broker's part of the demo: up, produce, consume, tail, kill -9 under load, recover, stop.

A message's body begins with its number and its number within its queue, so that whatever comes back can be
checked. Messages take turns over the queues.
"""

import contextlib
import itertools
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.cli.demo.load import BODY_BYTES, KILL_AFTER_SECONDS, key
from orbitmq.cli.demo.report import Report, Timer
from orbitmq.errors import OrbitError

if TYPE_CHECKING:
    from orbitmq.client import Message, Producer, SendResult

TOPIC = "Orders"
QUEUES = 4
CONSUME_SECONDS_MAX = 60.0
ORBITMQ = [sys.executable, "-c", "from orbitmq.cli import main; main()"]


def body(n: int) -> bytes:
    return f"message {n} is number {n // QUEUES} of its queue".encode().ljust(BODY_BYTES, b".")


class LiveDemo:
    """The steps. `sent` counts the messages that were sent, `stored` are those found at the end."""

    def __init__(self, report: Report, root: Path, messages: int) -> None:
        self.report, self.line = report, report.line
        self.root, self.messages = root, messages
        self.acknowledged: set[int] = set()
        self.sent = 0
        self.stored: list[int] = []
        self._random = random.Random(20_240_301)

    def run(self) -> None:
        self.root.mkdir()
        self.report.console.print()
        self.report.heading("A broker on this machine, one topic with 4 queues, real sockets.")
        with self.up("a name server and a broker are ready") as (process, namesrv):
            self.create_topic(namesrv)
            self.produce(namesrv)
            self.consume(namesrv)
            self.tail(namesrv)
            self.kill(namesrv, process)
        with self.up("again, on the same store") as (process, namesrv):
            self.read_all(namesrv)
            self.report.doctor("doctor", namesrv)
            self.stop(process)
        self.check()

    @contextmanager
    def up(self, text: str) -> "Iterator[tuple[subprocess.Popen[str], str]]":
        command = [*ORBITMQ, "up", "--store", str(self.root / "store"), "--output", "json"]
        command += ["--namesrv-port", "0", "--broker-port", "0"]
        command += ["--set", f"mappedFileSizeCommitLog={16 << 20}"]
        with (self.root / "errors.txt").open("a") as errors, Timer() as timer:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            assert process.stdout is not None
            ready = process.stdout.readline()
        try:
            self.line("up", text, timer, ok=bool(ready))
            if not ready:
                raise RuntimeError((self.root / "errors.txt").read_text())
            yield process, json.loads(ready)["namesrv"]
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def create_topic(self, namesrv: str) -> None:
        from orbitmq.client import Admin

        with Admin(namesrv) as admin:
            admin.create_topic(TOPIC, queues=QUEUES)

    def produce(self, namesrv: str) -> None:
        from orbitmq.client import Producer

        with Producer(namesrv, "demo") as producer, Timer() as timer:
            results = [future.result() for future in self._send(producer, self.messages)]
        self.acknowledged.update(range(self.messages))
        ok = all(
            (result.queue.queue_id, result.queue_offset) == (n % QUEUES, n // QUEUES)
            for n, result in enumerate(results)
        )
        self.line("produce", f"{len(results):,} messages", timer, len(results), ok=ok)

    def _send(self, producer: "Producer", count: int) -> "list[Future[SendResult]]":
        queues = producer.queues(TOPIC)
        futures: list[Future[SendResult]] = []
        for n in range(self.sent, self.sent + count):
            futures.append(producer.send_async(_message(n), queue=queues[n % QUEUES]))
            if n == self.sent:
                # It opens the connection; those that wait for that could be overtaken by the next.
                futures[0].exception()
        self.sent += count
        return futures

    def consume(self, namesrv: str) -> None:
        from orbitmq.client import Consumer, ReceivedMessage

        seen: Counter[bytes] = Counter()
        everything = threading.Event()

        def handle(messages: list[ReceivedMessage]) -> None:
            seen.update(message.body for message in messages)
            if len(seen) >= self.messages:
                everything.set()

        with (
            Timer() as timer,
            Consumer(
                *(namesrv, "demo-readers", TOPIC, handle),
                start_from="first",
                batch_size=32,
                workers=1,  # the counter belongs to one thread
            ),
        ):
            everything.wait(CONSUME_SECONDS_MAX)
            timer.stop()
        once = seen == Counter(body(n) for n in range(self.messages))
        text = f"{seen.total():,} messages, each exactly once"
        self.line("consume", text, timer, seen.total(), ok=once)

    def tail(self, namesrv: str) -> None:
        """Let a `tail` watch; what is sent then must be shown at once."""
        from orbitmq.client import Producer

        command = [*ORBITMQ, "message", "tail", TOPIC, "--namesrv", namesrv]
        command += ["--count", "1", "--output", "json"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
            process.stderr.readline()  # it watches from here on
            with Producer(namesrv, "demo") as producer, Timer() as timer:
                number = self.sent
                (future,) = self._send(producer, 1)
                shown = json.loads(process.stdout.readline() or "{}")
            future.result()
        self.acknowledged.add(number)
        ok = shown.get("body", "").encode() == body(number)
        text = f"one message, shown {timer.seconds * 1000:.0f} ms after its send"
        self.line("tail", text, ok=ok)

    def kill(self, namesrv: str, process: "subprocess.Popen[str]") -> None:
        """Kill the broker while messages are on their way; note what it had acknowledged."""
        from orbitmq.client import Producer

        kill_after = self._random.uniform(*KILL_AFTER_SECONDS)
        killer = threading.Timer(kill_after, process.kill)
        before = len(self.acknowledged)
        # Without retries a message is in its queue once or not at all, and the order can be checked.
        with Producer(namesrv, "demo", async_retries=0, send_timeout_ms=2_000) as producer:
            killer.start()
            self._send_until_it_breaks(producer, process)
        killer.join()
        more = len(self.acknowledged) - before
        killed = process.wait() == -signal.SIGKILL
        self.line("kill", f"the broker; {more:,} more acknowledged", ok=killed and more > 0)

    def _send_until_it_breaks(self, producer: "Producer", process: "subprocess.Popen[str]") -> None:
        waiting: list[tuple[int, Future[SendResult]]] = []
        with contextlib.suppress(OrbitError):
            while process.poll() is None:
                first = self.sent
                waiting += zip(
                    itertools.count(first), self._send(producer, QUEUES * 64), strict=False
                )
                while waiting and waiting[0][1].done():
                    self._note(*waiting.pop(0))
        for number, future in waiting:
            self._note(number, future)

    def _note(self, number: int, future: "Future[SendResult]") -> None:
        with contextlib.suppress(OrbitError):
            future.result()
            self.acknowledged.add(number)

    def read_all(self, namesrv: str) -> None:
        """Read every queue from its first message; nothing acknowledged may be missing or out of order."""
        from orbitmq.client import PullConsumer

        queues: dict[int, list[int]] = {queue_id: [] for queue_id in range(QUEUES)}
        whole = True
        with PullConsumer(namesrv, "demo-audit", auto_commit=False) as consumer, Timer() as timer:
            consumer.assign(consumer.topic_queues(TOPIC))
            consumer.seek_to_begin()
            while messages := consumer.poll(timeout=1.0, count=1_000):
                last = time.perf_counter()
                for message in messages:
                    number = int(message.body.split()[1])
                    queues[message.queue_id].append(number)
                    whole &= message.body == body(number)
            timer.stop()
            timer.seconds -= time.perf_counter() - last  # the last poll only made sure
        self.stored = read = [number for numbers in queues.values() for number in numbers]
        lost = len(self.acknowledged.difference(read))
        in_order = all(numbers == sorted(set(numbers)) for numbers in queues.values())
        text = f"{len(read):,} messages, {lost} acknowledged lost"
        self.line("recover", text, timer, len(read), ok=lost == 0)
        self.line("", "each queue in order, every body whole", ok=in_order and whole)

    def stop(self, process: "subprocess.Popen[str]") -> None:
        with Timer() as timer:
            process.send_signal(signal.SIGTERM)
            code = process.wait()
        self.line("stop", f"exit code {code}", timer, ok=code == 0)

    def check(self) -> None:
        from orbitmq.store.verify.check import check_store

        self.report.findings("check", lambda: check_store(self.root / "store", {}).findings)


def _message(n: int) -> "Message":
    from orbitmq.client import Message

    return Message(TOPIC, body(n), keys=key(n))
