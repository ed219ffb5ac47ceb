"""Members of a group that note each rebalance, here and in other processes; and the command that watches."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from command import ORBITMQ
from orbitmq.client import Consumer, RebalanceReport

LONG_MS = 600_000
BY_NOTICE: dict[str, Any] = {"rebalance_interval_ms": LONG_MS, "route_interval_ms": LONG_MS}
"""Settings of members for whom the interval never comes: only a notice can wake them."""
BY_INTERVAL: dict[str, Any] = {"rebalance_interval_ms": 100, "route_interval_ms": 100}

MEMBER = """
import os, sys, threading
from orbitmq.client import Consumer

namesrv, group, topic, name, work = sys.argv[1:]

def handle(message):
    os.write(1, b"%d\\n" % message.queue_id)
    if work == "hang":
        threading.Event().wait()

settings = dict(start_from="first", handover_wait_ms=0, persist_interval_ms=50)
with Consumer(namesrv, group, topic, handle, instance_name=name, **settings):
    os.write(1, b"ready\\n")
    threading.Event().wait()
"""


def wait_until(condition: Callable[[], Any], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)


class Member:
    """A consumer of a fixed instance name, and what it was told of its rebalances."""

    def __init__(
        self, namesrv: str, group: str, topic: str, name: str, handle: Any = None, **given: Any
    ) -> None:
        self.name, self.topic = name, topic
        self.reports: list[RebalanceReport] = []
        settings = {"start_from": "first", "handover_wait_ms": 0, "rebalance_again_ms": 50} | given
        self.consumer = Consumer(
            namesrv,
            group,
            topic,
            handle or (lambda message: None),
            on_rebalance=self.reports.append,
            instance_name=name,
            **settings,
        )

    def __enter__(self) -> "Member":
        self.consumer.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close()

    @property
    def queues(self) -> list[int]:
        return [queue.queue_id for queue in self.consumer.queues if queue.topic == self.topic]

    @property
    def has_retry_queue(self) -> bool:
        return any(queue.topic.startswith("%RETRY%") for queue in self.consumer.queues)

    def reasons(self) -> set[str]:
        """Return why it rebalanced since the last call, as far as its queues of the topic changed."""
        reports = [one for one in self.reports if self._is_of_topic(one)]
        self.reports.clear()
        return {reason for one in reports for reason in one.reasons}

    def _is_of_topic(self, report: RebalanceReport) -> bool:
        changes = [one.queue for one in (*report.gained, *report.lost)]
        return any(queue.topic == self.topic for queue in changes)


def wait_shares(*shares: tuple[Member, list[int]]) -> None:
    """Wait until each member has these queues of its topic, and was told so."""
    wait_until(lambda: all(member.queues == queues for member, queues in shares))
    wait_until(lambda: all(not queues or member.reports for member, queues in shares))


@contextmanager
def member_process(
    namesrv: str, group: str, topic: str, name: str, work: str = ""
) -> Iterator["subprocess.Popen[str]"]:
    """Run a member in a process of its own; it is in the group when this returns."""
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER, namesrv, group, topic, name, work],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        while line and line != "ready\n":
            line = process.stdout.readline()
        assert line == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# --- `orbitmq group watch` ---


class Watch:
    """The command as a process, which prints JSON."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.start = self.next()

    def next(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the command ended: {self._process.communicate()[1]}"
        return json.loads(line)

    def next_move(self) -> dict[str, Any]:
        """Return what was told until queues moved, as one: a busy machine makes two rebalances of one."""
        one = self.next()
        while not one["moved"]:
            later = self.next()
            one = later | {name: one[name] + later[name] for name in ("joined", "left")}
        return one

    def next_note(self, start: str) -> str:
        """Return the next line said beside the output that begins like this."""
        assert self._process.stderr is not None
        lines = []
        for line in self._process.stderr:
            lines.append(line)
            if line.startswith(f"orbitmq: {start}"):
                return line
        raise AssertionError(f"the command ended: {lines}")

    def interrupt(self) -> tuple[int, str]:
        """Press Ctrl-C; return the exit code and what was said beside."""
        self._process.send_signal(signal.SIGINT)
        _, errors = self._process.communicate(timeout=20)
        return self._process.returncode, errors


@contextmanager
def watching(namesrv: str, group: str, *, interval: float = 0.05) -> Iterator[Watch]:
    every = ["--interval", str(interval), "--for", "150"]
    words = ["group", "watch", group, *every, "--output", "json"]
    process = subprocess.Popen(
        [str(ORBITMQ), *words, "--namesrv", namesrv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    try:
        yield Watch(process)
    finally:
        process.kill()
        process.communicate()


def moves(rebalance: dict[str, Any], topic: str = "Orders") -> list[tuple[int, str, str]]:
    """Return queue, old and new member of what moved, with members by their instance names."""
    found = [one for one in rebalance["moved"] if one["topic"] == topic]
    return sorted((one["queue_id"], instance(one["from"]), instance(one["to"])) for one in found)


def instance(client_id: str | None) -> str:
    return (client_id or "").rpartition("@")[2]
