"""A replay that is killed and run again: each message is there once, and in order.

ORBITMQ_REPLAY_KILLS says how often the command is killed (0: its start takes long, and the other tests die
without it), ORBITMQ_CRASH_SEED when.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from command import ORBITMQ
from orbitmq.client import Admin, Message, Producer
from orbitmq.errors import JobFailedError, UnreachableError
from orbitmq.spark.jobs.replay.messages import FROM
from orbitmq.spark.jobs.replay.sender import Pace, Sender, look_again
from orbitmq.spark.jobs.replay.state import ReplayState, StateFile
from orbitmq.testing.broker import Broker

KILLS = int(os.environ.get("ORBITMQ_REPLAY_KILLS", "0"))
SEED = int(os.environ.get("ORBITMQ_CRASH_SEED", random.randrange(2**31)))
COUNT = 400
QUEUES = 3
SECONDS = 120.0

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600 + 120 * KILLS)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        fill(running)
        yield running


def fill(broker: Broker) -> None:
    """Send what is to be replayed."""
    with Admin(broker.namesrv) as admin, Producer(broker.namesrv, "before") as producer:
        admin.create_topic("Orders", queues=5)
        for number in range(COUNT):
            producer.send(Message("Orders", b"order %d" % number), key=number % 5)
    broker.wait_dispatched()


def rows() -> list[Any]:
    """Return rows as the driver gets them from Spark."""
    return [
        SimpleNamespace(
            target="",
            topic="Orders",
            queue_id=number % 5,
            queue_offset=number // 5,
            store_host="10.0.0.1:10911",
            size=100,
            id=f"ID{number}",
            born_ms=1,
            store_ms=2,
            tags=None,
            keys=[],
            properties={"TAGS": "x", "own": "y"},
            flag=0,
            sys_flag=0,
            body=b"order %d" % number,
        )
        for number in range(COUNT)
    ]


def target(broker: Broker, name: str) -> str:
    with Admin(broker.namesrv) as admin:
        admin.create_topic(name, queues=QUEUES)
    return name


def require_each_once(broker: Broker, topic: str, why: str) -> None:
    """Each original is there once, and those of a queue are in their order."""
    broker.wait_dispatched()
    found: Counter[bytes] = Counter()
    with Admin(broker.namesrv) as admin:
        for stats in admin.topic_stats(topic):
            last: dict[str, int] = {}
            for message in admin.browse(stats.queue, stats.min_offset, stats.max_offset):
                found[message.body] += 1
                host, queue, offset = message.properties[FROM].split()
                assert last.get(host + queue, -1) < int(offset), why
                last[host + queue] = int(offset)
    assert found == Counter(b"order %d" % number for number in range(COUNT)), why


class KilledError(BaseException):
    """Stands for the end of the process."""


class DyingProducer:
    """Ends the process at one of its sends: before it, or before its answer is read."""

    def __init__(self, inner: Producer, sends: int, *, after: bool) -> None:
        self._inner, self._left, self._after = inner, sends, after
        self.queues = inner.queues

    def send(self, message: Message, **options: Any) -> Any:
        return self._step(lambda: self._inner.send(message, **options))

    def send_batch(self, messages: Any, **options: Any) -> Any:
        return self._step(lambda: self._inner.send_batch(messages, **options))

    def _step(self, send: Any) -> Any:
        self._left -= 1
        if self._left < 0 and not self._after:
            raise KilledError
        result = send()
        if self._left < 0:
            raise KilledError
        return result


class ForgottenFile(StateFile):
    """A state that is saved now and then only, as it is on the disk when the process is gone."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        super().__init__(path)
        self._chance = chance

    def save(self, state: ReplayState) -> None:
        if not self.path.exists() or self._chance.random() < 0.3:
            super().save(state)


@pytest.mark.feature("P13")
def test_a_replay_that_dies_between_a_send_and_its_answer_leaves_no_duplicate(
    broker: Broker, tmp_path: Path
) -> None:
    chance, topic = random.Random(SEED), target(broker, "Killed")
    given = rows()
    for row in given:
        row.target = topic
    file = ForgottenFile(tmp_path / "state.json", chance)
    deaths = 0
    with Producer(broker.namesrv, "replay") as producer, Admin(broker.namesrv) as admin:
        while True:
            state = file.load("test") or ReplayState("test")
            broker.wait_dispatched()
            look_again(admin, state, [topic])
            file.save(state)
            dying = DyingProducer(producer, chance.randrange(20), after=chance.random() < 0.7)
            sender = Sender(dying, state, file, Pace(None), batch_messages=3)  # type: ignore[arg-type]
            try:
                sender.send_all(given)
                break
            except KilledError:
                deaths += 1

    assert deaths > 5
    require_each_once(broker, topic, f"ORBITMQ_CRASH_SEED={SEED}")
    assert state.sent == COUNT
    assert state.finished


@pytest.mark.feature("P13")
def test_a_send_without_an_answer_ends_the_replay_and_another_run_looks(
    broker: Broker, tmp_path: Path
) -> None:
    topic, file = target(broker, "Unanswered"), StateFile(tmp_path / "state.json")
    given = rows()
    for row in given:
        row.target = topic

    class Deaf(DyingProducer):
        def _step(self, send: Any) -> Any:
            send()
            raise UnreachableError("broker", "the connection broke", "")

    with Producer(broker.namesrv, "replay") as producer, Admin(broker.namesrv) as admin:
        state = ReplayState("test")
        look_again(admin, state, [topic])
        deaf: Any = Deaf(producer, 0, after=True)
        with pytest.raises(JobFailedError, match="Run the same command again"):
            Sender(deaf, state, file, Pace(None)).send_all(given)
        broker.wait_dispatched()
        again = file.load("test")
        assert again is not None
        look_again(admin, again, [topic])
        sender = Sender(producer, again, file, Pace(None))
        sender.send_all(given)
        assert sender.skipped > 0
        with pytest.raises(JobFailedError, match="comes behind a later one"):
            Sender(producer, ReplayState("new"), file, Pace(None)).send_all([given[5], given[0]])

    require_each_once(broker, topic, "")


@pytest.mark.feature("P13")
def test_the_command_sends_each_message_once_however_often_it_was_killed(
    broker: Broker, tmp_path: Path
) -> None:
    chance, topic = random.Random(SEED), target(broker, "Commanded")
    words = [
        *(str(ORBITMQ), "spark", "replay", "--from-namesrv", broker.namesrv, "--topic", "Orders"),
        *("--namesrv", broker.namesrv, "--to-topic", topic, "--output", "json"),
        *("--master", "local[2]", "--conf", "spark.driver.memory=512m"),
    ]
    for _ in range(KILLS):
        wanted = chance.randrange(1, max(COUNT // KILLS, 2))
        slow = [*words, "--rate", "100"]
        with subprocess.Popen(slow, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
            _wait_for(broker, topic, wanted, process)
            process.send_signal(signal.SIGKILL)

    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["selected"], told["sent"] + told["sent_before"]) == (COUNT, COUNT)
    assert (told["sent_before"] > 0) == (KILLS > 0)
    require_each_once(broker, topic, f"ORBITMQ_CRASH_SEED={SEED}")


def _wait_for(broker: Broker, topic: str, count: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until so many messages are there, of this run and those before."""
    deadline = time.monotonic() + SECONDS
    with Admin(broker.namesrv) as admin:
        before = sum(stats.message_count for stats in admin.topic_stats(topic))
        while sum(s.message_count for s in admin.topic_stats(topic)) < min(before + count, COUNT):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
