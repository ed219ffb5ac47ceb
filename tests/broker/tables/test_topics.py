"""The table of topics: what is there from the start, what sends create, what is saved."""

from pathlib import Path

import pytest

from golden_stores import unpack
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.tables.state_files import StateText, plain
from orbitmq.broker.tables.topics import TopicTable
from orbitmq.errors import StateFileError
from orbitmq.files.state_file import parse_state, read_state
from orbitmq.message import AppendRequest, QueueType
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.units import KiB
from orbitmq.wire.bodies.topic_config import TopicConfig

FILE = Path("topics.json")


def table(clock: FakeClock | None = None, **config: object) -> TopicTable:
    given = {"name": "golden-mixed", "host": "127.0.0.1"} | config
    broker = BrokerConfig(store=StoreConfig(root=Path("nowhere")), **given)  # type: ignore[arg-type]
    return TopicTable(broker, clock or FakeClock())


@pytest.mark.parametrize("store", ["mixed", "timer", "crashed", "batchcq"])
def test_a_new_broker_has_the_topics_that_a_java_broker_has(store: str, tmp_path: Path) -> None:
    rows = read_state(unpack(store, tmp_path) / "config" / FILE)["topicConfigTable"]
    ours = plain(table(name=f"golden-{store}", timer_wheel=store == "timer").snapshot())

    for name, row in ours["topicConfigTable"].items():
        assert list(row) == list(rows[name])  # the same members in the same order
        assert row == rows[name], name


def test_a_java_brokers_file_is_taken_over_and_written_back_the_same(tmp_path: Path) -> None:
    path = unpack("mixed", tmp_path) / "config" / FILE
    before = path.read_text("utf-8")
    topics = table(timer_wheel=False)

    topics.load(read_state(path), path)
    after = StateText().text(topics.snapshot())

    assert parse_state(after) == parse_state(before)
    lines = [{line.strip(",") for line in text.splitlines()} for text in (after, before)]
    assert lines[0] == lines[1]
    assert topics.get("GoldTx") == TopicConfig(
        topic_name="GoldTx", read_queue_nums=4, write_queue_nums=4
    )


def test_a_file_that_is_no_table_of_topics_says_so() -> None:
    with pytest.raises(StateFileError, match=r"topics\.json: is no table of topics"):
        table().load({"topicConfigTable": {"a": 3}}, FILE)


def test_a_send_creates_its_topic_after_the_template() -> None:
    topics = table()

    created = topics.create_for_send("Orders", "TBW102", 4)

    assert created == TopicConfig(
        topic_name="Orders", read_queue_nums=4, write_queue_nums=4, perm=6
    )
    assert topics.create_for_send("Orders", "TBW102", 16) is created
    assert topics.create_for_send("Wide", "TBW102", 99).write_queue_nums == 8  # type: ignore[union-attr]
    assert topics.create_for_send("None", "TBW102", -3).write_queue_nums == 0  # type: ignore[union-attr]
    assert topics.create_for_send("Unit", "TBW102", 1, unit_mode=True).topic_sys_flag == 1  # type: ignore[union-attr]


def test_a_send_creates_nothing_without_a_template_that_may_be_inherited() -> None:
    topics = table()
    closed = table(auto_create_topic=False)
    closed.put(TopicConfig(topic_name="TBW102", perm=7))  # from a file of earlier days

    assert topics.create_for_send("Orders", "Nowhere", 4) is None
    assert topics.create_for_send("Orders", "BenchmarkTest", 4) is None
    assert closed.create_for_send("Orders", "TBW102", 4) is None
    assert "TBW102" not in table(auto_create_topic=False)


def test_retry_and_dead_letter_topics_are_made_once() -> None:
    topics = table()

    retry = topics.create_retry("G", 3)
    dead = topics.create_dlq("G")

    assert (retry.topic_name, retry.read_queue_nums, retry.perm) == ("%RETRY%G", 3, 6)
    assert (dead.topic_name, dead.read_queue_nums) == ("%DLQ%G", 1)
    assert topics.create_retry("G", 1) is retry
    assert topics.create_retry("G", 1, order=True).order
    assert topics.create_retry("U", 1, unit_mode=True).topic_sys_flag == 2


def test_each_change_is_a_new_version_and_is_told() -> None:
    clock = FakeClock(1_000)
    topics = table(clock)
    told: list[tuple[str, TopicConfig | None]] = []
    topics.on_change.append(lambda topic, config: told.append((topic, config)))
    clock.advance(5)

    topics.put(TopicConfig(topic_name="A"))
    assert topics.delete("A")
    assert not topics.delete("A")

    assert (topics.version.counter, topics.version.timestamp) == (2, 1_005)
    assert told == [("A", TopicConfig(topic_name="A")), ("A", None)]
    assert topics.changes == 2


def test_names_of_the_system_are_known_whether_they_are_there_or_not() -> None:
    topics = table(cluster="C")

    for name in ("TBW102", "CHECKPOINT_TOPIC", "rmq_sys_anything", "C", "golden-mixed"):
        assert topics.is_system(name), name
    assert not topics.is_system("Orders")
    assert not topics.is_system("%RETRY%G")


def test_the_kind_of_queues_follows_the_attribute() -> None:
    topics = table()
    topics.put(TopicConfig(topic_name="B", attributes={"queue.type": "BatchCQ"}))

    assert topics.queue_type("B") is QueueType.BATCH
    assert topics.queue_type("Unknown") is QueueType.SIMPLE


def test_topics_that_a_name_server_orders_are_marked() -> None:
    topics = table()
    topics.put(TopicConfig(topic_name="A"))

    topics.set_order_topics(["A", "Unknown"])
    topics.set_order_topics(["A"])

    assert topics.is_order("A")
    assert not topics.is_order("Unknown")
    assert topics.changes == 2


def test_a_topic_that_was_not_saved_before_a_kill_comes_back_with_its_messages(
    tmp_path: Path,
) -> None:
    clock = FakeClock(5_000)
    config = StoreConfig(root=tmp_path, segment_bytes=64 * KiB, index_slots=8, index_items=32)
    with MessageStore.open(config, clock=clock, background=False) as store:
        store.append(AppendRequest("Old", 0, b"deleted before the table was saved"))
        clock.advance(10)
        topics = table(clock)  # its version is of now
        clock.advance(10)
        store.append(AppendRequest("New", 2, b"x"))
        store.append(AppendRequest("rmq_sys_thing", 2, b"x"))
        store.wait_dispatched()

        assert topics.adopt(store) == ["New"]

    assert topics.get("New") == TopicConfig(topic_name="New", read_queue_nums=3, write_queue_nums=3)
    assert "Old" not in topics
