"""Look-ups through index files and consume queues give the rows of a scan, and read far less than one."""

import random
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import golden_stores
from orbitmq.client import Admin, Message, Producer
from orbitmq.format.index_file import key_hash, slot_position
from orbitmq.spark.source.lookup import index as lookup_index
from orbitmq.spark.source.lookup import lookup
from orbitmq.spark.source.lookup import times as lookup_times
from orbitmq.spark.source.lookup import units as lookup_units
from orbitmq.spark.source.lookup.index import find_keys
from orbitmq.spark.source.metrics import ReadMetrics, read_metrics
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing import Broker
from orbitmq.testing.broker import SMALL_STORE
from orbitmq.testing.builders import make_request
from spark.table_world import Row, table_rows

DAMAGED = [name for name in golden_stores.torn_variants() if name.startswith(("index", "cq"))]
SELECTIONS = 12

BY_CHAINS, WHOLE = 0, 1 << 30
"""So many bytes of entries are read in full."""


class World:
    """A store, its rows, and the table with and without look-ups."""

    def __init__(self, root: Path, config: Path) -> None:
        self._given: dict[str, object] = {"path": root, "config": config}
        self.answers = 0

    @cached_property
    def rows(self) -> list[Row]:
        """All of them."""
        return self.scanned()

    def scanned(self, **options: str) -> list[Row]:
        """Return what a scan of the whole log finds."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lookup, "scan_ranges", lambda plan, options, **_: None)
            return table_rows(**self._given, **options)

    def looked_up(self, index_bytes_max: int = WHOLE, **options: str) -> list[Row]:
        """Return what is found with look-ups where they help, though the store is small."""
        real = lookup.scan_ranges

        def counting(*arguments: Any, **named: Any) -> Any:
            found = real(*arguments, **named)
            self.answers += found is not None
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lookup, "scan_ranges", counting)
            # Golden stores are small and their messages minutes apart: no margins, small steps.
            patch.setattr(lookup_times, "CLOCK_MARGIN_MS", 0)
            patch.setattr(lookup_times, "STEP_BYTES", 4096)
            patch.setattr(lookup_index, "WHOLE_BYTES_MAX", index_bytes_max)
            patch.setattr(lookup_units, "SINGLE_BYTES", 0)
            return table_rows(**self._given, **options)


def random_options(
    rng: random.Random, rows: list[Row], *, with_tags: bool = True
) -> dict[str, str]:
    """Return options that select at least one of the rows, in one of many ways."""
    row = rng.choice(rows)
    options: dict[str, str] = {}
    if rng.random() < 0.6:
        options["topics"] = row["topic"]
    if with_tags and row["tags"] and rng.random() < 0.3:
        options["tags"] = row["tags"]
    options |= _random_word(rng, row)
    if rng.random() < 0.3:
        now = int(row["store_time"].timestamp() * 1000)
        options["startTime"] = str(now - rng.randrange(1000))
        options["endTime"] = str(now + rng.randrange(1, 1000))
    if rng.random() < 0.2:
        options["queueId"] = str(row["queue_id"])
    if rng.random() < 0.2:
        options["startOffset"] = str(max(0, row["log_offset"] - rng.randrange(100_000)))
    return options


def _random_word(rng: random.Random, row: Row) -> dict[str, str]:
    choice = rng.random()
    if choice < 0.25 and row["keys"] and "," not in row["keys"][0]:
        return {"keys": row["keys"][0]}
    if choice < 0.4 and row["message_id"]:
        return {"ids": row["message_id"]}
    if choice < 0.5:
        return {"ids": row["offset_id"]}
    if choice < 0.75:
        first = row["queue_offset"]
        end = first + rng.randrange(1, 6)
        return {"startQueueOffset": str(first), "endQueueOffset": str(end)}
    return {}


@pytest.mark.feature("P3.options")
@pytest.mark.parametrize("name", golden_stores.STORES)
def test_look_ups_in_a_store_that_java_wrote_give_the_rows_of_a_scan(
    name: str, tmp_path: Path
) -> None:
    root = golden_stores.unpack(name, tmp_path)
    world = World(root, golden_stores.GOLDEN / f"{name}.conf")
    rng = random.Random(name)

    for _ in range(SELECTIONS):
        options = random_options(rng, world.rows)
        found = world.looked_up(rng.choice([BY_CHAINS, WHOLE]), **options)
        assert found == world.scanned(**options), options

    assert world.answers > SELECTIONS // 2


@pytest.mark.feature("P3.options")
@pytest.mark.parametrize("variant", DAMAGED)
def test_look_ups_through_damaged_files_give_the_rows_of_a_scan(
    variant: str, tmp_path: Path
) -> None:
    root = golden_stores.damage(golden_stores.unpack("crashed", tmp_path), variant)
    world = World(root, golden_stores.GOLDEN / "crashed.conf")
    rng = random.Random(variant)
    # What a unit says of its tag is believed, as every broker does.
    with_tags = "tag" not in variant

    for _ in range(SELECTIONS // 2):
        options = random_options(rng, world.rows, with_tags=with_tags)
        assert world.looked_up(**options) == world.scanned(**options), options


DAMAGED_INDEX = [
    (name, index_bytes_max)
    for name in DAMAGED
    if name.startswith("index-")
    for index_bytes_max in (BY_CHAINS, WHOLE)
    # By chains alone, one that ends early cannot be told from one that ends.
    if index_bytes_max or name != "index-chain-zero"
]


def damaged_key(variant: str) -> dict[str, str]:
    topic, message_id = golden_stores.torn_variant(variant)["query"].split("|")
    return {"topics": topic, "ids": message_id}


@pytest.mark.feature("P3.options")
@pytest.mark.parametrize(("variant", "index_bytes_max"), DAMAGED_INDEX)
def test_the_key_whose_chain_is_damaged_is_found(
    variant: str, index_bytes_max: int, tmp_path: Path
) -> None:
    root = golden_stores.damage(golden_stores.unpack("crashed", tmp_path), variant)
    world = World(root, golden_stores.GOLDEN / "crashed.conf")
    options = damaged_key(variant)

    found = world.looked_up(index_bytes_max, **options)

    assert found == world.scanned(**options) != []
    assert world.answers == 1


# --- stores of our own ---

MESSAGES = 6_000
BODY = bytes(1000)


@pytest.fixture(scope="module")
def busy_broker() -> Iterator[Broker]:
    """A broker that has taken messages of four topics; the fourth one is rare."""
    with Broker() as broker, Producer(broker.namesrv, "lookup") as producer:
        messages = [
            Message(f"Look{number % 3}", BODY, keys=f"key{number}", tag=f"tag{number % 4}")
            for number in range(MESSAGES)
        ]
        messages[MESSAGES // 2 : MESSAGES // 2] = [
            Message("Rare", b"rare %d" % number, keys="rare") for number in range(20)
        ]
        for message in messages[:3]:
            producer.send(message)  # makes the topic
        for message in messages[3:-1]:
            producer.send_oneway(message)
        producer.send(messages[-1])
        broker.restart()  # writes its index files
        producer.send(Message("Look0", b"last", keys="last"))
        broker.wait_dispatched()
        yield broker


def config_of(directory: Path) -> Path:
    """Return a file with the sizes of a test broker's files."""
    lines = [f"{name}={value}\n" for name, value in SMALL_STORE.items()]
    path = directory / "broker.conf"
    path.write_text("".join(lines))
    return path


def metrics_of(broker: Broker, directory: Path, **options: object) -> tuple[list[Row], ReadMetrics]:
    directory.mkdir(exist_ok=True)
    config, figures = config_of(directory), directory / "figures"
    rows = table_rows(path=broker.store_path, config=config, metricsPath=figures, **options)
    return rows, read_metrics(figures)


@pytest.mark.feature("P3.options")
@pytest.mark.parametrize(
    "options",
    [
        {"topics": "Look1", "keys": "key4000"},
        {"topics": "Rare", "keys": "rare"},
        {"topics": "Look0", "keys": "last"},
        {"topics": "Look0", "keys": "no such key"},
        {"topics": "Rare"},
        {"topics": "Look2", "queueId": 1, "startQueueOffset": 7, "endQueueOffset": 11},
        {"topics": "Rare", "startTime": "now-2h"},
    ],
    ids=lambda options: " ".join(f"{name}={value}" for name, value in options.items()),
)
def test_a_look_up_beside_a_running_broker_reads_a_small_part_of_the_log(
    busy_broker: Broker,
    options: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, read = metrics_of(busy_broker, tmp_path / "looked-up", **options)
    monkeypatch.setattr(lookup, "scan_ranges", lambda plan, options, **_: None)
    expected, scanned = metrics_of(busy_broker, tmp_path / "scan", **options)

    assert rows == expected
    assert scanned.records > MESSAGES
    # Index entries are 40 bytes for a message, units 20.
    assert read.lookup_bytes < 100 * MESSAGES
    assert read.records < scanned.records / 20
    assert read.log_bytes < scanned.log_bytes / 20


@pytest.mark.feature("P3.options")
def test_a_key_of_any_topic_is_looked_up_too(busy_broker: Broker, tmp_path: Path) -> None:
    rows, read = metrics_of(busy_broker, tmp_path, keys="key17,rare")

    assert sorted(row["topic"] for row in rows) == ["Look2", *["Rare"] * 20]
    assert read.records < MESSAGES / 20


@pytest.mark.feature("P3.options")
def test_ids_are_looked_up(busy_broker: Broker, tmp_path: Path) -> None:
    rows = table_rows(path=busy_broker.store_path, topics="Rare")
    by_message_id, read = metrics_of(
        busy_broker, tmp_path / "1", topics="Rare", ids=rows[3]["message_id"]
    )
    by_place, _ = metrics_of(busy_broker, tmp_path / "2", ids=rows[5]["offset_id"].lower())

    assert by_message_id == [rows[3]]
    assert by_place == [rows[5]]
    assert read.records < MESSAGES / 20


@pytest.mark.feature("P3.options")
def test_records_that_are_in_no_index_yet_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"messageIndexEnable": "false"}
    store = tmp_path / "store"
    with Broker(store) as broker, Producer(broker.namesrv, "first") as producer:
        for number in range(50):
            producer.send(Message("Late", b"with index", keys=f"k{number % 5}"))
        broker.wait_dispatched()
    with Broker(store, settings=settings) as broker, Producer(broker.namesrv, "then") as producer:
        for number in range(50):
            producer.send(Message("Late", b"without", keys=f"k{number % 5}"))
        broker.wait_dispatched()

        options = {"path": store, "config": config_of(tmp_path), "topics": "Late", "keys": "k3"}

        rows = table_rows(**options)
        monkeypatch.setattr(lookup, "scan_ranges", lambda plan, options, **_: None)

        assert len(rows) == 20
        assert rows == table_rows(**options)


def test_the_first_and_the_last_record_of_an_index_are_not_covered_by_it(tmp_path: Path) -> None:
    sizes = {"index_slots": 100, "index_items": 400}
    config = StoreConfig(root=tmp_path / "store", segment_bytes=1 << 20, **sizes)
    with MessageStore.open(config, background=False) as store:
        offsets = [
            store.append(make_request(number, keys=f"k{number} l{number}")).log_offset
            for number in range(10)
        ]

    found = find_keys(config.layout(), frozenset([key_hash("TopicTest", "k4")]), lambda _: None)

    # Other keys of these two may stand elsewhere, or nowhere.
    assert found == ([offsets[4]], [(offsets[0] + 1, offsets[-1])])


@pytest.mark.feature("P3.options")
def test_a_large_index_is_walked_and_its_newest_entries_are_looked_at(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "store", index_slots=50, index_items=1000)
    with MessageStore.open(config, background=False) as store:
        for number in range(400):
            store.append(make_request(number, "T", keys=f"key{number}", unique=False))
    conf = tmp_path / "broker.conf"
    conf.write_text("maxHashSlotNum=50\nmaxIndexNum=1000\n")
    (file,) = (config.root / "index").iterdir()
    with file.open(
        "r+b"
    ) as opened:  # a broker that is about to write the slots of its newest entries
        opened.seek(slot_position(key_hash("T", "key395"), 50))
        opened.write(bytes(4))
    world = World(config.root, conf)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookup_index, "NEWEST_ENTRIES", 20)
        newest = world.looked_up(BY_CHAINS, topics="T", keys="key395")
        old = world.looked_up(
            BY_CHAINS, topics="T", keys="key7", metricsPath=str(tmp_path / "figures")
        )

    assert [row["keys"] for row in newest + old] == [["key395"], ["key7"]]
    assert 20 * 20 < read_metrics(tmp_path / "figures").lookup_bytes < 200 * 20


@pytest.mark.feature("P3.options")
def test_a_message_of_a_deleted_topic_is_found_by_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    with Broker(store) as broker, Producer(broker.namesrv, "pg") as producer:
        for number in range(400):
            topic = "Gone" if number % 100 == 50 else "Stays"
            producer.send(Message(topic, b"x" * 3000, keys=f"k{number % 50}"))
        broker.wait_dispatched()
        with Admin(broker.namesrv) as admin:
            admin.delete_topic("Gone")
    assert not (store / "consumequeue" / "Gone").exists()
    options = {"path": store, "config": config_of(tmp_path), "keys": "k0"}
    figures = tmp_path / "figures"

    rows = table_rows(**options, metricsPath=figures)
    monkeypatch.setattr(lookup, "scan_ranges", lambda plan, options, **_: None)

    assert read_metrics(figures).records < 100  # looked up, not scanned
    assert sum(row["topic"] == "Gone" for row in rows) == 4
    assert rows == table_rows(**options)
