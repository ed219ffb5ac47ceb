"""Streams whose whole process is killed again and again while messages are sent: each one exactly once.

ORBITMQ_STREAM_KILLS says how often (1; the full run is 20).
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from orbitmq.client.core.message import Message
from orbitmq.client.sync.admin import Admin
from orbitmq.client.sync.producer import Producer
from orbitmq.testing import Broker
from spark.stream_query import RUNNING, start
from spark.stream_world import wait_until

KILLS = int(os.environ.get("ORBITMQ_STREAM_KILLS", "1"))
SEED = int(os.environ.get("ORBITMQ_STREAM_SEED", str(random.randrange(2**32))))
BATCHES_MAX = 3  # a query may finish so many before it is killed, within some seconds more
KILL_WITHIN_S = 1.5
END_SECONDS = 60.0
START_SECONDS = 240.0
SEND_EVERY_S = 0.02
GROUP = "stream"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.slow,
    pytest.mark.timeout(300 + 180 * KILLS),
]


def settings_of(root: Path, options: dict[str, str], *, now: bool) -> dict[str, Any]:
    places = {name: str(root / name) for name in ("out", "checkpoint")}
    return {"options": options, "now": now, **places}


class QueryProcess:
    """The query with all that belongs to it: its driver, the JVM, the Python workers."""

    def __init__(self, root: Path, options: dict[str, str]) -> None:
        self._log = (root / "query.log").open("ab")
        settings = settings_of(root, options, now=False)
        script = Path(__file__).with_name("stream_query.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), json.dumps(settings)],
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
            text=True,
        )

    def wait_running(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.strip() == RUNNING, "the query did not start: see query.log"

    def kill(self) -> None:
        """Kill every process of the session at once, as a machine does that loses its power."""
        deadline = time.monotonic() + END_SECONDS
        while members := list(_members(self.process.pid)):
            assert time.monotonic() < deadline, f"{members} cannot be killed"
            for pid in members:
                _kill(pid)
            time.sleep(0.02)
        assert self.process.stdout is not None
        self.process.wait()
        self.process.stdout.close()
        self._log.close()


def _members(session: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            if int(fields[3]) == session and fields[0] != "Z":
                yield int(entry.name)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class Sender(threading.Thread):
    """Sends numbered messages until it is told to stop."""

    def __init__(self, namesrv: str) -> None:
        super().__init__(name="sender", daemon=True)
        self._namesrv, self._stopped, self.sent = namesrv, threading.Event(), 0

    def run(self) -> None:
        with Producer(self._namesrv, "producers") as producer:
            while not self._stopped.wait(SEND_EVERY_S):
                producer.send(Message("Orders", b"message %d" % self.sent))
                self.sent += 1

    def stop(self) -> None:
        self._stopped.set()
        self.join()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        with Admin(running.namesrv) as admin:
            admin.create_topic("Orders", queues=4)
        yield running


def kill_again_and_again(
    root: Path, options: dict[str, str], broker: Broker, request: pytest.FixtureRequest
) -> int:
    """Return how many messages were sent; it is printed when the kills came and what they hit.

    The tests' own session has the last word: it knows nothing but the checkpoint.
    """
    chance, states = random.Random(SEED), Counter()
    print(f"ORBITMQ_STREAM_SEED={SEED} repeats the times of the kills")  # noqa: T201
    sender = Sender(broker.namesrv)
    sender.start()
    try:
        for _ in range(KILLS):
            query = QueryProcess(root, options)
            try:
                query.wait_running()
                _wait_batches(root, chance.randint(0, BATCHES_MAX))
                time.sleep(chance.uniform(0, KILL_WITHIN_S))  # sleep: any moment will do
            finally:
                query.kill()
            states[_state(root / "checkpoint")] += 1
    finally:
        sender.stop()
    broker.wait_dispatched()
    # The rest at once: what was planned before the last kill is repeated as it was planned.
    unlimited = {name: value for name, value in options.items() if not name.startswith("max")}
    spark = request.getfixturevalue("spark")
    last = start(spark, settings_of(root, unlimited, now=True))
    assert last.awaitTermination(START_SECONDS)
    print(f"{sender.sent} messages, {KILLS} kills: {dict(states)}")  # noqa: T201
    return sender.sent


def _wait_batches(root: Path, count: int) -> None:
    """Wait until the query has finished so many batches more."""
    commits = root / "checkpoint" / "commits"
    last = max(_batches(commits), default=-1)
    wait_until(lambda: max(_batches(commits), default=-1) >= last + count)


def _state(checkpoint: Path) -> str:
    planned, done = (_batches(checkpoint / name) for name in ("offsets", "commits"))
    if not planned:
        return "before the first batch"
    return "between batches" if max(planned) in done else "in a batch"


def _batches(folder: Path) -> set[int]:
    return {int(entry.name) for entry in folder.glob("*") if entry.name.isdigit()}


def tally(spark: SparkSession, root: Path) -> Counter[str]:
    return Counter(row.body for row in spark.read.parquet(str(root / "out")).collect())


@pytest.mark.feature("P8")
def test_stream_over_a_cluster_counts_each_message_once_and_its_lag_goes_to_zero(
    broker: Broker, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    options = {
        "namesrv": broker.namesrv,
        "topics": "Orders",
        "group": GROUP,
        "maxRowsPerTrigger": "150",
    }

    sent = kill_again_and_again(tmp_path, options, broker, request)

    with Admin(broker.namesrv) as admin:
        wait_until(lambda: admin.progress(GROUP, "Orders").lag == 0, seconds=5)
        assert sum(one.consumer_offset for one in admin.progress(GROUP).queues) == sent
    found = tally(request.getfixturevalue("spark"), tmp_path)
    assert found == Counter(f"message {number}" for number in range(sent))
    assert sent > 100


@pytest.mark.feature("P8")
def test_stream_over_a_store_that_is_written_counts_each_record_once(
    broker: Broker, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with Producer(broker.namesrv, "first") as producer:
        producer.send(Message("Other", b"so that there is a log"))
    options = {"path": str(broker.store_path), "topics": "Orders", "maxBytesPerTrigger": "32k"}

    sent = kill_again_and_again(tmp_path, options, broker, request)

    found = tally(request.getfixturevalue("spark"), tmp_path)
    assert found == Counter(f"message {number}" for number in range(sent))
    assert sent > 100
