"""The files of a store are those that RocketMQ makes for the same messages with the same settings."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from golden_stores import settings, unpack
from orbitmq.client import Message, Producer
from orbitmq.files.layout import StoreLayout
from orbitmq.format.record import BLANK, BLANK_MAGIC, Record, decode_record
from orbitmq.message import AppendRequest, AppendStatus
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.broker import Broker

NOT_OF_A_STORE = ("config", "compaction", "timerlog", "timerwheel", "abort.bak")
"""State of a broker, its parts that are not here, and a copy of `abort` that was made by hand."""

OURS = {"orbitmq.snapshot"}
NOT_HERE = {"consumerFilter.json"}
"""State of parts of a RocketMQ broker that are not here."""
NOT_THERE = {"messageRequestMode.json", "timermetrics"}
"""State that a RocketMQ broker writes under these names, but the one of the golden store did not."""


def records_in(layout: StoreLayout) -> Iterator[Record]:
    for segment in layout.list_segments():
        data, at = segment.path.read_bytes(), 0
        while at + BLANK.size <= len(data):
            size, magic = BLANK.unpack_from(data, at)
            if size == 0 or magic == BLANK_MAGIC:
                break
            yield decode_record(data, at)
            at += size


def request_for(record: Record) -> AppendRequest:
    """Return the message that such a record is made of; what was to be rewritten is already."""
    return AppendRequest(
        record.topic,
        record.queue_id,
        record.body,
        properties=record.properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_ms=record.born_ms,
        born_host=record.born_host,
        reconsume_times=record.reconsume_times,
        prepared_offset=record.prepared_offset,
        due=True,
    )


def tree(root: Path) -> tuple[dict[str, int], Counter[tuple[int, int]]]:
    """Return all files with their lengths; those of the index, named by time, by length only."""
    files: dict[str, int] = {}
    index: Counter[tuple[int, int]] = Counter()
    for path in root.rglob("*"):
        name, length = path.relative_to(root), path.stat().st_size
        if path.is_dir() or name.parts[0] in NOT_OF_A_STORE:
            continue
        if name.parts[0] == "index":
            index[len(path.name), length] += 1
        else:
            files[str(name)] = length
    return files, index


@pytest.mark.feature("F80")
@pytest.mark.parametrize("name", ["mixed", "batchcq", "propcrc", "timer", "indexroll"])
def test_the_same_messages_make_the_same_tree_as_in_rocketmq(name, tmp_path):
    theirs = unpack(name, tmp_path / "theirs")
    ours = tmp_path / "ours"
    (ours / "config").mkdir(parents=True)
    shutil.copy(theirs / "config" / "topics.json", ours / "config")  # tells BatchCQ topics
    config = StoreConfig.from_settings(ours, settings(name))

    with MessageStore.open(config, background=False) as store:
        for record in records_in(StoreConfig.from_settings(theirs, settings(name)).layout()):
            assert store.append(request_for(record)).status is AppendStatus.PUT_OK
        assert store.wait_dispatched()

    expected, expected_index = tree(theirs)
    found, found_index = tree(ours)
    assert found.pop("orbitmq.snapshot") > 0
    assert found == expected
    assert found_index == expected_index


@pytest.mark.feature("F80")
def test_the_state_of_a_broker_lies_where_rocketmqs_does(tmp_path):
    theirs = {path.name for path in (unpack("mixed", tmp_path) / "config").iterdir()}
    root = tmp_path / "ours"

    with Broker(root) as broker, Producer(broker.namesrv, "Pid") as producer:
        producer.send(Message("T", b"x"))

    ours = {path.name for path in (root / "config").iterdir()}
    expected = {name for name in theirs if name.removesuffix(".bak") not in NOT_HERE}
    assert ours <= expected | NOT_THERE
    missing = expected - ours
    assert {name for name in missing if not name.endswith(".bak")} == set()  # saved only once
