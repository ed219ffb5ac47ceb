"""`orbitmq spark replay`: only what is selected is sent again, with ids, times and topics kept, and once."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from command import call
from orbitmq.client import Admin, Message, Producer, ReceivedMessage
from orbitmq.errors import ConfigError, JobFailedError, OrbitError, StateFileError
from orbitmq.spark import ReplayOptions, replay, targets
from orbitmq.spark.jobs.replay.job import GROUP, batch_messages
from orbitmq.spark.jobs.replay.messages import BORN, FROM, ID, REPLAY, STORED, TOPIC
from orbitmq.spark.jobs.replay.sender import Pace, Sender
from orbitmq.spark.jobs.replay.state import StateFile
from orbitmq.testing.broker import Broker

pytestmark = pytest.mark.spark

QUEUES = 4


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with 40 messages of the topic Orders, and 3 of Stock."""
    with Broker() as running, Admin(running.namesrv) as admin:
        for topic in ("Orders", "Stock", "Two"):
            admin.create_topic(topic, queues=QUEUES)
        with Producer(running.namesrv, "before") as producer:
            for number in range(40):
                producer.send(order(number), key=number)
            for number in range(3):
                producer.send(Message("Stock", b"stock %d" % number))
        running.wait_dispatched()
        yield running


def order(number: int) -> Message:
    tag, size = "TagA" if number % 2 else "TagB", {"n": str(number)}
    return Message("Orders", b"order %d" % number, tag, [f"k{number}"], size, flag=number)


def read(spark: SparkSession, broker: Broker, **options: str) -> DataFrame:
    given = {"namesrv": broker.namesrv, **options}
    return spark.read.format("orbitmq").options(**given).load()


def fresh_topic(broker: Broker, name: str) -> str:
    with Admin(broker.namesrv) as admin:
        admin.create_topic(name, queues=QUEUES)
    return name


def messages_of(broker: Broker, topic: str) -> list[ReceivedMessage]:
    broker.wait_dispatched()
    with Admin(broker.namesrv) as admin:
        return [
            message
            for stats in admin.topic_stats(topic)
            for message in admin.browse(stats.queue, stats.min_offset, stats.max_offset)
        ]


@pytest.mark.feature("P13")
def test_only_the_selected_messages_are_sent_again_and_tell_of_their_originals(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    to = fresh_topic(broker, "Again")
    chosen = read(spark, broker, topics="Orders,Stock", tags="TagA", sql92="n > 10")
    frame = chosen.orderBy(chosen.log_offset.desc())  # it is sorted anyway
    options = ReplayOptions(broker.namesrv, tmp_path / "state.json", to)

    report = replay(frame, options)

    originals = {one.body: one for one in messages_of(broker, "Orders")}
    found = messages_of(broker, to)
    wanted = [b"order %d" % n for n in range(11, 40, 2)]
    assert sorted(one.body for one in found) == sorted(wanted)
    assert (report.selected, report.sent, report.sent_before) == (len(wanted), len(wanted), 0)
    assert report.topics == {"Orders": {to: len(wanted)}}
    for one in found:
        original = originals[one.body]
        assert (one.tag, one.keys, one.flag) == (original.tag, original.keys, original.flag)
        assert one.queue_id == original.queue_id
        kept = {name: one.properties[name] for name in ("n", REPLAY, TOPIC, ID, BORN, STORED, FROM)}
        assert kept == {
            "n": original.properties["n"],
            REPLAY: report.replay,
            TOPIC: "Orders",
            ID: original.message_id,
            BORN: str(original.born_ms),
            STORED: str(original.store_ms),
            FROM: f"{original.store_host} {original.queue_id} {original.queue_offset}",
        }
        assert one.message_id != original.message_id
    for queue_id in range(QUEUES):
        offsets = [int(m.properties[FROM].split()[2]) for m in found if m.queue_id == queue_id]
        assert offsets == sorted(offsets)


@pytest.mark.feature("P13")
def test_a_dry_run_counts_and_sends_nothing(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    to = fresh_topic(broker, "Dry")
    state = tmp_path / "state.json"

    report = replay(
        read(spark, broker, topics="Orders"), ReplayOptions(broker.namesrv, state, to, dry_run=True)
    )

    originals = messages_of(broker, "Orders")
    assert (report.selected, report.sent) == (40, 0)
    assert report.selected_bytes == sum(one.stored_bytes for one in originals)
    assert report.first_stored_ms == min(one.store_ms for one in originals)
    assert report.last_stored_ms == max(one.store_ms for one in originals)
    assert report.topics == {"Orders": {to: 40}}
    assert messages_of(broker, to) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.feature("P13")
def test_dead_letters_go_back_to_their_topics_once(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    names = ("Dead1", "Dead2")
    for name in (*names, "%DLQ%readers"):
        fresh_topic(broker, name)
    with Producer(broker.namesrv, "dead") as producer:
        for number in range(6):
            # As a broker writes them: RocketMQ 4 and 5 name the topic in different properties.
            name = "DLQ_ORIGIN_TOPIC" if number % 2 else "RETRY_TOPIC"
            reserved = {name: names[number % 2]}
            dead = Message("%DLQ%readers", b"dead %d" % number, reserved=reserved)
            producer.send(dead)
    options = ReplayOptions(broker.namesrv, tmp_path / "state.json")

    first = replay(read(spark, broker, topics="%DLQ%readers"), options)
    second = replay(read(spark, broker, topics="%DLQ%readers"), options)

    assert first.topics == {"%DLQ%readers": {"Dead1": 3, "Dead2": 3}}
    assert (first.sent, second.sent, second.sent_before) == (6, 0, 6)
    assert first.replay == second.replay
    for number, name in enumerate(names):
        bodies = sorted(one.body for one in messages_of(broker, name))
        assert bodies == [b"dead %d" % dead for dead in range(number, 6, 2)]
    with pytest.raises(ConfigError, match="3 messages do not say"):
        replay(read(spark, broker, topics="Stock"), options)


@pytest.mark.feature("P13")
def test_a_store_directory_is_replayed_without_its_system_topics(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    to = fresh_topic(broker, "FromFiles")
    with Producer(broker.namesrv, "delayed") as producer:
        producer.send(Message("Stock", b"later", delay_level=18))
    broker.wait_dispatched()
    frame = spark.read.format("orbitmq").load(str(broker.store_path))
    options = ReplayOptions(broker.namesrv, tmp_path / "state.json", to, order_by=("log_offset",))

    report = replay(frame.where("topic NOT LIKE '%DLQ%'"), options)

    found = messages_of(broker, to)
    assert len(found) == report.sent
    assert {one.properties[TOPIC] for one in found} >= {"Orders", "Stock"}
    assert "SCHEDULE_TOPIC_XXXX" not in report.topics
    by_queue: dict[Any, list[int]] = {}
    for one in found:
        place = one.properties[FROM].split()
        by_queue.setdefault((one.properties[TOPIC], place[1]), []).append(int(place[2]))
    assert all(offsets == sorted(set(offsets)) for offsets in by_queue.values())


@pytest.mark.feature("P13", "P16")
def test_what_cannot_be_is_said_in_one_sentence_before_spark_starts(tmp_path: Path) -> None:
    here, to = ("--namesrv", "127.0.0.1:1"), ("--to-topic", "T")
    cases = (
        ((*here, *to), "--from"),
        ((*here, *to, "--from", tmp_path, "--from-namesrv", "127.0.0.1:1"), "one of them"),
        ((*here, "--from", tmp_path), "--to-topic"),
        ((*here, "--from", tmp_path, "--dead-letters", "g", "--topic", "T"), "--topic"),
        ((*here, *to, "--from", tmp_path, "--since", "yesterday"), "startTime"),
        ((*here, *to, "--from", tmp_path, "--sql92", "a >"), "sql92"),
    )
    for arguments, words in cases:
        done = call("spark", "replay", *arguments)
        assert done.returncode == 2, done
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.feature("P13", "P16")
def test_a_replay_that_cannot_be_is_refused(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    frame, state = read(spark, broker, topics="Stock"), tmp_path / "state.json"
    broken, other = tmp_path / "broken.json", tmp_path / "other.json"
    broken.write_text("{}")
    replay(frame, ReplayOptions(broker.namesrv, other, "Two", what="something else"))
    cases: tuple[tuple[DataFrame, ReplayOptions, type[OrbitError], str], ...] = (
        (frame.drop("keys"), ReplayOptions(broker.namesrv, state, "Two"), ConfigError, "keys"),
        (frame, ReplayOptions(broker.namesrv, state, "Two", rate=0), ConfigError, "--rate"),
        (frame, ReplayOptions(broker.namesrv, None, "Two"), ConfigError, "--state"),
        (frame, ReplayOptions(broker.namesrv, state, "a b"), OrbitError, "a b"),
        (frame, ReplayOptions("nowhere:x", state, "Two"), ConfigError, "namesrv"),
        (frame, ReplayOptions(broker.namesrv, state, "Nowhere"), OrbitError, "Nowhere"),
        (frame, ReplayOptions(broker.namesrv, broken, "Two"), StateFileError, "no state"),
        (frame, ReplayOptions(broker.namesrv, other, "Two"), ConfigError, "another replay"),
    )
    for table, options, error, words in cases:
        with pytest.raises(error, match=words) as raised:
            replay(table, options)
        assert "\n" not in str(raised.value)
    assert not state.exists()


class KilledError(BaseException):
    """Stands for the end of the process."""


@pytest.mark.feature("P13")
def test_the_state_is_on_the_disk_before_the_first_message_is_sent(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr(Sender, "send_all", die)
    file = StateFile(tmp_path / "state.json")
    options = ReplayOptions(broker.namesrv, file.path, "Two", what="all of Stock")

    with pytest.raises(KilledError):
        replay(read(spark, broker, topics="Stock"), options)

    state = file.load(f"all of Stock to Two at {broker.namesrv}")
    assert state is not None
    assert sum(state.ends.values()) == len(messages_of(broker, "Two"))
    assert (state.sent, state.marks) == (0, {})


@pytest.mark.feature("P13")
def test_who_goes_on_waits_until_the_brokers_know_the_last_sender_no_more(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, file = fresh_topic(broker, "Held"), tmp_path / "state.json"
    frame, options = read(spark, broker, topics="Stock"), ReplayOptions(broker.namesrv, file, topic)
    monkeypatch.setattr(targets, "GONE_SECONDS", 0.2)

    def refused(*_: object) -> None:
        with Admin(broker.namesrv) as admin:
            known = {client.client_id for client in admin.producers(GROUP, topic)}
        assert known == {json.loads(file.read_bytes())["client_id"]}
        with pytest.raises(JobFailedError, match="still connected to the brokers"):
            replay(frame, options)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(Sender, "send_all", refused)
        with pytest.raises(KilledError):
            replay(frame, options)
    replay(frame, options)

    assert len(messages_of(broker, topic)) == 3


@pytest.mark.feature("P13")
def test_a_low_rate_has_small_batches() -> None:
    assert [batch_messages(rate) for rate in (None, 10_000, 200, 0.5)] == [64, 64, 20, 1]


@pytest.mark.feature("P13")
def test_messages_go_at_the_rate_that_was_asked_for() -> None:
    now, waits = [100.0], []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    pace = Pace(20, lambda: now[0], sleep)
    for _ in range(5):
        pace.wait(2)
    assert waits == pytest.approx([0.1] * 4)
    now[0] += 60.0  # a pause is not made up for
    pace.wait(2)
    pace.wait(2)
    assert waits == pytest.approx([0.1] * 5)
    Pace(None, time.monotonic, sleep).wait(10**6)
    assert len(waits) == 5


@pytest.mark.feature("P13")
def test_the_report_is_text_or_json(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    from dataclasses import asdict

    from orbitmq.cli.spark.replay import replay_text

    options = ReplayOptions(broker.namesrv, tmp_path / "state.json", "Two", dry_run=True)
    report = replay(read(spark, broker, topics="Stock"), options)

    assert json.loads(json.dumps(asdict(report)))["selected"] == 3
    assert "Stock -> Two: 3" in replay_text(report)
    assert replay_text(report).endswith("nothing was sent")
