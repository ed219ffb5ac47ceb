"""Topics in memory, over sockets: clients see what they see of any topic, and the disk sees nothing."""

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.client import (
    Admin,
    Consumer,
    Message,
    Producer,
    PullConsumer,
    ReceivedMessage,
    RetryLater,
)
from orbitmq.errors import OrbitError
from orbitmq.files.state_file import read_state
from orbitmq.format.message_id import MEMORY_LOG_OFFSET, decode_offset_id
from orbitmq.testing import Broker
from store_parts import until
from up_process import up_process

ENABLED = {"memoryTopicEnable": "true"}
MEMORY = {"memory.topic": "true"}

pytestmark = pytest.mark.feature("F104")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=ENABLED | {"messageDelayLevel": "0s 0s"}) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(broker.namesrv) as admin:
        yield admin


def files_of(root: Path) -> dict[str, bytes]:
    """Return what lies in the log, the queues and the index."""
    folders = ("commitlog", "consumequeue", "index", "batchconsumequeue")
    paths = (path for folder in folders for path in sorted((root / folder).rglob("*")))
    return {str(path.relative_to(root)): path.read_bytes() for path in paths if path.is_file()}


def checksums_of(root: Path) -> dict[str, int]:
    """Return `files_of` in short: a difference is shown, and a segment is long."""
    return {name: zlib.crc32(data) for name, data in files_of(root).items()}


def pulled(broker: Broker, topic: str, tags: str = "*") -> list[bytes]:
    with PullConsumer(broker.namesrv, "pulls", auto_commit=False) as consumer:
        consumer.assign(consumer.topic_queues(topic), tags)
        consumer.seek_to_begin()
        return [message.body for message in consumer.poll(timeout=20)]


@pytest.fixture
def lone_broker() -> Iterator[Broker]:
    """A broker on whose disk no other test writes."""
    with Broker(settings=ENABLED) as broker:
        yield broker


def test_every_kind_of_send_and_read_works_and_the_disk_stays_as_it_was(lone_broker: Broker):
    broker = lone_broker
    with Admin(broker.namesrv) as admin:
        tour(broker, admin)


def tour(broker: Broker, admin: Admin) -> None:
    admin.create_topic("Tour", queues=2, attributes=MEMORY)
    before = checksums_of(broker.store_path)
    with Producer(broker.namesrv, "tour") as producer:
        one = producer.send(Message("Tour", b"one", tag="TagA", keys=["k1", "k2"]))
        assert producer.send_async(Message("Tour", b"two", tag="TagB")).result(10).queue_offset >= 0
        producer.send_oneway(Message("Tour", b"three"))
        batch = producer.send_batch([Message("Tour", f"batch {n}".encode()) for n in range(3)])
        steps = [producer.send(Message("Tour", f"step {n}".encode()), key=17) for n in (1, 2, 3)]
    bodies = sorted(
        ["one", "two", "three", *(f"batch {n}" for n in range(3)), "step 1", "step 2", "step 3"]
    )

    pushed = []
    with Consumer(broker.namesrv, "tour-push", "Tour", start_from="first") as consumer:
        for message in consumer:
            pushed.append(message.body.decode())
            if len(pushed) == len(bodies):
                message.ack()
                break

    assert sorted(pushed) == bodies
    assert len(batch) == 3
    assert [result.queue_offset - steps[0].queue_offset for result in steps] == [0, 1, 2]
    assert pulled(broker, "Tour", "TagA") == [b"one"]
    assert admin.progress("tour-push", "Tour").lag == 0
    assert [found.body for found in admin.messages_by_key("Tour", "k2")] == [b"one"]
    assert decode_offset_id(one.offset_id)[1] >= MEMORY_LOG_OFFSET
    assert sum(queue.message_count for queue in admin.topic_stats("Tour")) == len(bodies)
    assert checksums_of(broker.store_path) == before


def test_a_consumer_waits_for_the_next_message_as_on_any_topic(broker: Broker, admin: Admin):
    admin.create_topic("Waits", queues=1, attributes=MEMORY)
    got: list[bytes] = []

    def take(message: ReceivedMessage) -> None:
        got.append(message.body)

    with (
        Consumer(broker.namesrv, "waits", "Waits", take, start_from="first"),
        Producer(broker.namesrv, "waits") as producer,
    ):
        for number in range(20):
            producer.send(Message("Waits", b"%d" % number))
            until(lambda: len(got) > number)  # noqa: B023 - called before the next round

    assert got == [b"%d" % number for number in range(20)]


def test_what_a_consumer_gives_back_is_found_in_memory_and_retried_from_disk(
    broker: Broker, admin: Admin
):
    admin.create_topic("Fails", queues=1, attributes=MEMORY)
    with Producer(broker.namesrv, "fails") as producer:
        producer.send(Message("Fails", b"poison", keys=["p"]))
    assert not any(b"poison" in data for data in files_of(broker.store_path).values())
    tries: list[tuple[int, bytes, str]] = []

    def fail_once(message: ReceivedMessage) -> None:
        tries.append((message.reconsume_times, message.body, message.topic))
        if len(tries) == 1:
            raise RetryLater(level=1)

    with Consumer(broker.namesrv, "fails", "Fails", fail_once, start_from="first"):
        until(lambda: len(tries) == 2)
    broker.wait_dispatched()

    assert tries == [(0, b"poison", "Fails"), (1, b"poison", "Fails")]
    assert len(pulled(broker, "%RETRY%fails")) == 1
    assert any(b"poison" in data for data in files_of(broker.store_path).values())


def test_a_deleted_topic_is_gone_and_its_name_can_be_used_for_a_topic_on_disk(
    broker: Broker, admin: Admin
):
    admin.create_topic("Again", queues=1, attributes=MEMORY)
    with Producer(broker.namesrv, "again") as producer:
        producer.send(Message("Again", b"in memory"))
        admin.delete_topic("Again")
        admin.create_topic("Again", queues=1)
        result = producer.send(Message("Again", b"on disk"))
    broker.wait_dispatched()

    assert decode_offset_id(result.offset_id)[1] < MEMORY_LOG_OFFSET
    assert pulled(broker, "Again") == [b"on disk"]


@pytest.mark.parametrize(
    ("name", "attributes", "why"),
    [
        ("%RETRY%g", MEMORY, "retries and dead letters lie on disk"),
        ("Batches", {**MEMORY, "queue.type": "BatchCQ"}, "no batch queues"),
        ("Compact", {**MEMORY, "cleanup.policy": "COMPACTION"}, "not compacted"),
        ("Odd", {"memory.topic": "perhaps"}, "value is not in set"),
    ],
)
def test_a_topic_that_cannot_be_in_memory_is_refused_with_the_reason(
    admin: Admin, name: str, attributes: dict[str, str], why: str
):
    with pytest.raises(OrbitError, match=why):
        admin.create_topic(name, queues=1, attributes=attributes)


def test_where_a_topic_is_kept_is_decided_when_it_is_created(admin: Admin):
    admin.create_topic("Disk", queues=1)
    admin.create_topic("Memory", queues=1, attributes=MEMORY)

    for name, value in (("Disk", "true"), ("Memory", "false"), ("Memory", "true")):
        with pytest.raises(OrbitError, match="delete the topic first"):
            admin.create_topic(name, queues=1, attributes={"memory.topic": value})
    admin.create_topic("Memory", queues=2)  # all else may change

    assert [admin.topic(name).kept_in for name in ("Disk", "Memory")] == ["disk", "memory"]


def test_delayed_messages_are_refused_with_the_reason(broker: Broker, admin: Admin):
    admin.create_topic("Delays", queues=1, attributes=MEMORY)
    with (
        Producer(broker.namesrv, "delays") as producer,
        pytest.raises(OrbitError, match="kept in memory"),
    ):
        producer.send(Message("Delays", b"later", delay_level=3))


def test_a_message_id_finds_the_message_in_memory_and_then_says_that_it_is_gone(
    broker: Broker, admin: Admin
):
    admin.create_topic("Ids", queues=1, attributes=MEMORY)
    with Producer(broker.namesrv, "ids") as producer:
        result = producer.send(Message("Ids", b"found"))

    found = admin.message(result.offset_id)
    admin.delete_topic("Ids")
    gone = admin.message(result.offset_id)

    assert found is not None
    assert found.body == b"found"
    assert gone is None


def test_above_the_limit_a_slow_group_is_told_and_goes_on():
    settings = {**ENABLED, "memoryTopicBytesMax": "100000"}
    with Broker(settings=settings) as broker, Admin(broker.namesrv) as admin:
        admin.create_topic("Much", queues=1, attributes=MEMORY)
        with Producer(broker.namesrv, "much") as producer:
            for number in range(20):
                producer.send(Message("Much", b"%03d" % number + bytes(997)))
            with Consumer(broker.namesrv, "slow", "Much", start_from="first") as consumer:
                message = next(iter(consumer))
                first = int(message.body[:3])
                message.ack()
            for number in range(20, 200):
                producer.send(Message("Much", b"%03d" % number + bytes(997)))
        low = admin.topic_stats("Much")[0].min_offset
        seen: list[int] = []
        with Consumer(broker.namesrv, "slow", "Much") as consumer:
            for message in consumer:
                seen.append(int(message.body[:3]))
                message.ack()
                if seen[-1] == 199:
                    break

    assert first == 0
    assert 20 < low < 200
    assert seen == list(range(low, 200))


def test_with_the_feature_off_nothing_is_written_to_disk_in_its_place(tmp_path: Path):
    with Broker(tmp_path, settings=ENABLED) as broker, Admin(broker.namesrv) as admin:
        admin.create_topic("Was", queues=1, attributes=MEMORY)
    with Broker(tmp_path) as broker, Admin(broker.namesrv) as admin:
        before = files_of(tmp_path)
        with (
            Producer(broker.namesrv, "was") as producer,
            pytest.raises(OrbitError, match="memoryTopicEnable=false"),
        ):
            producer.send(Message("Was", b"where to?"))
        with pytest.raises(OrbitError, match="Set it to true"):
            admin.create_topic("New", queues=1, attributes=MEMORY)
        after = files_of(tmp_path)

    assert after == before


@pytest.mark.crash
def test_after_a_kill_offsets_do_not_go_back_and_groups_go_on(tmp_path: Path):
    options = ("--set", "memoryTopicEnable=true", "--set", "flushConsumerOffsetInterval=100")
    with up_process(tmp_path, *options) as up, Admin(up.namesrv) as admin:
        admin.create_topic("Kept", queues=1, attributes=MEMORY)
        with Producer(up.namesrv, "kept") as producer:
            old = [producer.send(Message("Kept", b"old %d" % n)) for n in range(10)]
        with Consumer(up.namesrv, "kept", "Kept", lambda _: None, start_from="first"):
            until(lambda: admin.progress("kept", "Kept").lag == 0)
        offsets = tmp_path / "up-store" / "config" / "consumerOffset.json"
        until(lambda: "Kept@kept" in read_state(offsets).get("offsetTable", {}))
        up.process.kill()
        up.process.wait()

    got: list[bytes] = []
    with up_process(tmp_path, *options) as up, Admin(up.namesrv) as admin:
        (queue,) = admin.topic_stats("Kept")
        gone = admin.messages_by_unique_id("Kept", old[0].message_id)
        with (
            Consumer(up.namesrv, "kept", "Kept", lambda message: got.append(message.body)),
            Producer(up.namesrv, "kept") as producer,
        ):
            new = producer.send(Message("Kept", b"new"))
            until(lambda: bool(got))
            until(lambda: admin.progress("kept", "Kept").lag == 0)
        assert up.stop() == 0

    assert queue.min_offset == queue.max_offset > old[-1].queue_offset
    assert new.queue_offset >= queue.max_offset
    assert got == [b"new"]
    assert gone == []
