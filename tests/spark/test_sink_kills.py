"""Writes that break off at any moment and are begun again: each row is there once, and in order.

ORBITMQ_SINK_KILLS says how often a process is killed (1; the full run is 20), ORBITMQ_SINK_SEED when.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from orbitmq.client import Admin, Message, Producer
from orbitmq.client.producer.producer import AsyncProducer
from orbitmq.errors import JobFailedError, RequestTimeoutError, ResponseError, UnreachableError
from orbitmq.files.disk import Disk
from orbitmq.spark import targets
from orbitmq.spark.sink import deliver, state
from orbitmq.spark.sink.options import GROUP
from orbitmq.spark.sink.state import SinkState
from orbitmq.spark.source.source import OrbitmqSource
from orbitmq.testing import Broker
from orbitmq.wire.codes import ResponseCode
from spark.sink_query import start
from spark.sink_world import (
    Write,
    fresh_topic,
    messages_of,
    require_each_once,
    row,
    rows,
    schema_of,
)
from spark.stream_query import RUNNING
from spark.stream_world import wait_until
from spark.test_stream_kills import _kill, _members

KILLS = int(os.environ.get("ORBITMQ_SINK_KILLS", "1"))
SEED = int(os.environ.get("ORBITMQ_SINK_SEED", str(random.randrange(2**31))))
WHY = f"ORBITMQ_SINK_SEED={SEED}"
COUNT = 600
SECONDS = 240.0
HERE = Path(__file__).parent

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600 + 120 * KILLS)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker of ours has stored what it read: nothing waits for a thread there."""
    monkeypatch.setattr(targets, "QUEUED_SECONDS", 0.0)


def count_of(broker: Broker, topic: str) -> int:
    with Admin(broker.namesrv) as admin:
        return sum(stats.message_count for stats in admin.topic_stats(topic))


# --- sends that go wrong ---


class Faults:
    """What happens to each send; stands between the sink and its producer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fault: Callable[[], str]) -> None:
        self.seen: list[str] = []
        faults = self

        class Faulty(AsyncProducer):
            async def send_request(self, *arguments: Any) -> Any:
                kind = fault()
                faults.seen.append(kind)
                if kind == "busy":
                    raise ResponseError(ResponseCode.SYSTEM_BUSY, "too many", "broker")
                if kind == "too large":
                    raise ResponseError(ResponseCode.MESSAGE_ILLEGAL, "too large", "broker")
                if kind == "lost":
                    raise UnreachableError("broker", "no connection", "")
                result = await super().send_request(*arguments)
                if kind == "unanswered":
                    raise RequestTimeoutError("broker", "no answer")
                return result

        monkeypatch.setattr(deliver, "AsyncProducer", Faulty)


@pytest.mark.feature("P9")
def test_sends_that_are_refused_lost_or_not_answered_leave_each_row_once(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, given, chance = fresh_topic(broker, "Faults"), rows(COUNT, "Faults"), random.Random(SEED)
    kinds = ["ok"] * 26 + ["busy", "lost", "unanswered", "unanswered"]
    faults = Faults(monkeypatch, lambda: chance.choice(kinds))

    Write(broker.namesrv, stagingPath=str(tmp_path), batchRows="5").tasks(given, 3).commit()

    broker.wait_dispatched()
    require_each_once(broker.namesrv, topic, given, WHY)
    assert {"busy", "unanswered"} <= set(faults.seen) or len(faults.seen) < 100, WHY


@pytest.mark.feature("P9")
def test_a_delayed_row_whose_send_was_not_answered_is_found_where_it_waits(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh_topic(broker, "Delayed", queues=1)
    answers = iter(["unanswered", "ok", "unanswered"])
    Faults(monkeypatch, lambda: next(answers, "ok"))
    options = {"namesrv": broker.namesrv, "topic": topic, "stagingPath": str(tmp_path)}
    schema = schema_of("body string, delay_level int, delay_ms int")
    writer: Any = OrbitmqSource(options=options).writer(schema, False)
    columns = {"body": ["c", "a", "b"], "delay_level": [0, 1, 0], "delay_ms": [0, 0, 1000]}

    writer.commit([writer.write(iter([pa.record_batch(columns)]))])

    wait_until(lambda: count_of(broker, topic) >= 3)
    broker.wait_dispatched()
    assert sorted(m.body for m in messages_of(broker.namesrv, topic)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("busy", r"Refused: the broker was busy for 300 ms \(partition 0, .*retryMs"),
        ("too large", r"partition 0, \d+ messages from row \d+ on: .*too large"),
        ("lost", r"no broker took the rows for 300 ms: .*no connection.*Run it again"),
    ],
)
def test_a_broker_that_does_not_take_the_rows_is_one_sentence(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, sentence: str
) -> None:
    topic, given = fresh_topic(broker, "Refused"), rows(10, "Refused")
    before = count_of(broker, topic)
    write = Write(broker.namesrv, stagingPath=str(tmp_path), writeId=f"w-{kind[0]}", retryMs="300")
    write.tasks(given)
    with monkeypatch.context() as patched:
        Faults(patched, lambda: kind)
        with pytest.raises(JobFailedError, match=sentence) as caught:
            write.commit()
    assert "\n" not in str(caught.value)
    write.writer.abort(write.parts)

    again = Write(broker.namesrv, stagingPath=str(tmp_path), writeId=f"w-{kind[0]}", retryMs="300")
    again.tasks(rows(10, "Refused", start=100)).commit()  # the rows that were written down count

    broker.wait_dispatched()
    found = messages_of(broker.namesrv, topic)
    assert len(found) == before + 10
    assert {m.body for m in found} == {one.body for one in given}


@pytest.mark.feature("P9")
def test_two_processes_do_not_send_the_same_rows(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, given = fresh_topic(broker, "Two"), rows(10, "Two")
    write = Write(broker.namesrv, stagingPath=str(tmp_path), writeId="w").tasks(given)
    staging: Any = write.writer._staging()  # type: ignore[attr-defined]
    monkeypatch.setattr(state, "LOCK_SECONDS", 0.1)
    with staging.held(), pytest.raises(JobFailedError, match="another process is sending the rows"):
        write.commit()

    monkeypatch.setattr(targets, "GONE_SECONDS", 0.2)
    with Producer(broker.namesrv, GROUP) as still_there:
        still_there.send(Message("Elsewhere", b"so that the broker knows it"))
        files = [part.path for part in write.parts]  # type: ignore[union-attr]
        staging.save(SinkState(0, files, client_id=still_there.client_id))
        wait_until(lambda: _is_known(broker, topic, still_there.client_id))
        with pytest.raises(JobFailedError, match="still connected to the brokers"):
            write.commit()
    write.commit()

    broker.wait_dispatched()
    require_each_once(broker.namesrv, topic, given)


def _is_known(broker: Broker, topic: str, client_id: str) -> bool:
    with Admin(broker.namesrv) as admin:
        return client_id in {client.client_id for client in admin.producers(GROUP, topic)}


@pytest.mark.feature("P9")
def test_before_the_first_send_rows_and_state_are_on_the_disk_and_the_broker_knows_who_sends(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, synced, known = fresh_topic(broker, "Noted"), [], []
    real = Disk.sync_data, Disk.sync_directory

    def sync_data(disk: Disk, path: Any, fd: int, *more: int) -> None:
        synced.append(str(path))
        real[0](disk, path, fd, *more)

    def sync_directory(disk: Disk, path: Any) -> None:
        synced.append(str(path))
        real[1](disk, path)

    monkeypatch.setattr(Disk, "sync_data", sync_data)
    monkeypatch.setattr(Disk, "sync_directory", sync_directory)
    write = Write(broker.namesrv, stagingPath=str(tmp_path), writeId="w")
    write.tasks(rows(6, topic), 1)
    assert synced[-2:] == [write.parts[0].path, str(tmp_path / "attempts")]  # type: ignore[union-attr]

    def fault() -> str:
        noted = json.loads((tmp_path / "w.json").read_bytes())
        known.append(_is_known(broker, topic, noted["client_id"]))
        return "ok"

    Faults(monkeypatch, fault)
    write.commit()

    assert known
    assert all(known)
    assert str(tmp_path / "w.json.tmp") in synced


def test_a_look_waits_until_the_queues_have_what_the_log_has() -> None:
    told = iter([(1000, 300), (1400, 500), (1500, 500), (9000, 1)])

    class Runtime:
        def broker_runtime(self, broker: str) -> dict[str, str]:
            end, behind = next(told)
            return {"commitLogMaxOffset": str(end), "dispatchBehindBytes": str(behind)}

    admin: Any = Runtime()
    targets._wait_dispatched(admin, "broker-a", time.monotonic() + 60)

    assert list(told) == [(9000, 1)]


def test_rows_that_wait_and_are_gone_or_not_whole_are_one_sentence(
    broker: Broker, tmp_path: Path
) -> None:
    fresh_topic(broker, "Gone")
    write = Write(broker.namesrv, stagingPath=str(tmp_path), writeId="w").tasks(rows(4, "Gone"), 1)
    path = Path(write.parts[0].path)  # type: ignore[union-attr]
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    with pytest.raises(JobFailedError, match="is not whole"):
        write.commit()
    path.unlink()
    with pytest.raises(JobFailedError, match="cannot be read"):
        write.commit()
    path.write_bytes(data)
    write.commit()
    assert not path.exists()


# --- processes that are killed ---


@pytest.mark.feature("P9")
def test_a_batch_write_that_is_killed_and_repeated_sends_each_row_once(
    broker: Broker, tmp_path: Path
) -> None:
    print(WHY)  # noqa: T201
    topic, chance = fresh_topic(broker, "Killed"), random.Random(SEED)
    options = {"stagingPath": str(tmp_path), "writeId": "w", "batchRows": "1"}
    kills = 0
    for number in range(KILLS + 2):
        process = _write_process(broker, topic, options, tasks=chance.randint(1, 4))
        if number < KILLS + 1:
            _wait_for(broker, topic, chance.randint(1, COUNT // (KILLS + 1)), process)
            kills += process.poll() is None
            process.send_signal(signal.SIGKILL)
        else:
            assert process.wait(SECONDS) == 0
        process.wait(SECONDS)

    broker.wait_dispatched()
    require_each_once(broker.namesrv, topic, rows(COUNT, topic), WHY)
    assert kills > 0


def _write_process(
    broker: Broker, topic: str, options: dict[str, str], tasks: int
) -> subprocess.Popen[bytes]:
    settings = {
        "namesrv": broker.namesrv,
        "options": options,
        "topic": topic,
        "count": COUNT,
        "tasks": tasks,
    }
    return _script("sink_process.py", settings)


def _script(name: str, settings: dict[str, Any], **more: Any) -> subprocess.Popen[Any]:
    command = [sys.executable, str(HERE / name), json.dumps(settings)]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    return subprocess.Popen(command, env=environment, start_new_session=True, **more)


def _wait_for(broker: Broker, topic: str, more: int, process: subprocess.Popen[Any]) -> None:
    """Wait until so many messages more are there, or the process has ended."""
    wanted = min(count_of(broker, topic) + more, COUNT)
    deadline = time.monotonic() + SECONDS
    with Admin(broker.namesrv) as admin:
        while sum(s.message_count for s in admin.topic_stats(topic)) < wanted:
            if process.poll() is not None:
                return
            assert time.monotonic() < deadline, WHY
            time.sleep(0.002)


@pytest.mark.feature("P9")
def test_a_stream_whose_driver_or_workers_are_killed_sends_each_row_once(
    broker: Broker, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    print(WHY)  # noqa: T201
    chance, given = random.Random(SEED), [row(number, "In") for number in range(COUNT)]
    topic = fresh_topic(broker, "StreamOut")
    fresh_topic(broker, "In", queues=3)
    send_source(broker, given)
    settings = {
        "source": {"namesrv": broker.namesrv, "topics": "In", "maxRowsPerTrigger": "150"},
        "sink": {
            "namesrv": broker.namesrv,
            "topic": topic,
            "checkpointLocation": str(tmp_path / "checkpoint"),
            "batchRows": "2",
        },
        "now": True,
    }
    with (tmp_path / "query.log").open("ab") as log:
        for number in range(KILLS):
            query = _script("sink_query.py", settings, stdout=subprocess.PIPE, stderr=log)
            try:
                _wait_running(query)
                _wait_for(broker, topic, chance.randint(1, COUNT // KILLS), query)
                if number % 3 == 2:
                    _kill_worker(query, chance)
                    _wait_for(broker, topic, chance.randint(1, 50), query)
            finally:
                _kill_session(query)
    # The tests' own session has the last word: it knows nothing but the checkpoint.
    assert start(request.getfixturevalue("spark"), settings).awaitTermination(SECONDS)

    broker.wait_dispatched()
    require_each_once(broker.namesrv, topic, given, WHY)


def send_source(broker: Broker, given: list[Any]) -> None:
    """Send rows to the topic that a query reads, so that it can make them again."""
    with Producer(broker.namesrv, "in") as producer:
        for one in given:
            own = {k: v for k, v in (one.properties or {}).items() if v}
            message = Message("In", one.body, one.tags or "", one.keys or (), own, one.flag or 0)
            if one.sharding_key is not None:
                message.properties["shard"] = one.sharding_key
            producer.send(message, key=one.sharding_key or one.body.decode())
    for one in given:
        if one.sharding_key is not None:
            object.__setattr__(
                one, "properties", {**(one.properties or {}), "shard": one.sharding_key}
            )
    broker.wait_dispatched()


def _wait_running(query: subprocess.Popen[Any]) -> None:
    assert query.stdout is not None
    assert query.stdout.readline().strip().decode() == RUNNING, "see query.log"


def _kill_worker(query: subprocess.Popen[Any], chance: random.Random) -> None:
    """Kill one of the Python processes that Spark started: of a task, or of the commit."""
    workers = [
        pid for pid in _members(query.pid) if pid != query.pid and b"java" not in _command(pid)
    ]
    if workers:
        _kill(chance.choice(workers))


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b"java"  # it ended meanwhile


def _kill_session(query: subprocess.Popen[Any]) -> None:
    """Kill every process of the query at once, as a machine does that loses its power."""
    deadline = time.monotonic() + SECONDS
    while members := list(_members(query.pid)):
        assert time.monotonic() < deadline, f"{members} cannot be killed"
        for pid in members:
            _kill(pid)
        time.sleep(0.02)  # sleep: until the kernel has ended them
    query.wait()
    assert query.stdout is not None
    query.stdout.close()
