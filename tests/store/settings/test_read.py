"""How much a read returns and looks at, as a broker.conf says."""

import pytest

from conf_store import ConfStore, request_of, wires
from message_replay import MessageWorld, pull_command, records_of
from orbitmq.message import AppendRequest
from orbitmq.store.reads import limits
from orbitmq.testing.builders import make_request
from orbitmq.wire.bodies.topic_config import TopicConfig

KiB = 1024
LARGE = {"mappedFileSizeCommitLog": 16 << 20, "mappedFileSizeConsumeQueue": 6_000_000}


def memory_for(recent_bytes: int, ratio: int = 40) -> int:
    """Return how much memory a machine has whose share at `ratio` per cent is exactly this."""
    memory_bytes = -(-recent_bytes * 100 // ratio)
    assert memory_bytes * ratio // 100 == recent_bytes
    return memory_bytes


@wires("accessMessageInMemoryMaxRatio")
@pytest.mark.feature("F25")
@pytest.mark.parametrize(("given", "ratio"), [({}, 40), ({"accessMessageInMemoryMaxRatio": 5}, 5)])
@pytest.mark.parametrize(("nearer", "count", "replica"), [(0, 32, False), (1, 8, True)])
def test_what_is_older_than_a_share_of_the_memory_is_read_as_from_disk(
    tmp_path, monkeypatch, given, ratio, nearer, count, replica
):
    requests = [request_of(200) for _ in range(60)]
    # The ninth record lies exactly at the border, or one byte beyond it: there a read from disk ends.
    recent_bytes = 200 * (60 - 8) - nearer
    monkeypatch.setattr(limits, "physical_memory", lambda: memory_for(recent_bytes, ratio))
    with ConfStore(tmp_path, {**LARGE, **given}) as case:
        case.append(*requests)

        found = case.store.get("T", 0, 0, 100)

        assert len(found.records) == count
        assert found.suggest_replica is replica
        assert case.store.is_in_memory(200 * 8) is (not replica)


@pytest.mark.feature("F25")
@pytest.mark.parametrize(("nearer", "count"), [(0, 32), (1, 8)])
def test_a_pull_has_the_same_border(tmp_path, monkeypatch, nearer, count):
    recent_bytes = 200 * (60 - 8) - nearer
    monkeypatch.setattr(limits, "physical_memory", lambda: memory_for(recent_bytes))
    with MessageWorld(tmp_path) as world:
        world.context.topics.put(TopicConfig(topic_name="Orders"))
        world.append("Orders", *[bytes(200 - 91 - len("Orders"))] * 60)

        answer = world.ask(world.connect(), pull_command(maxMsgNums=100))

        assert len(list(records_of(answer.body))) == count


@wires(
    "maxTransferCountOnMessageInMemory",
    "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInDisk",
    "maxTransferBytesOnMessageInDisk",
)
@pytest.mark.feature("F25")
@pytest.mark.parametrize(
    ("given", "memory_bytes", "size", "count"),
    [
        ({}, 1 << 30, 200, 32),
        ({}, 1 << 30, 32 * KiB, 8),  # 256 KiB are exactly eight
        ({}, 1 << 30, 32 * KiB + 1, 7),
        ({}, 0, 200, 8),
        ({}, 0, 16 * KiB, 4),  # 64 KiB are exactly four
        ({}, 0, 16 * KiB + 1, 3),
        ({"maxTransferCountOnMessageInMemory": 5}, 1 << 30, 200, 5),
        ({"maxTransferBytesOnMessageInMemory": 1000}, 1 << 30, 200, 5),
        ({"maxTransferCountOnMessageInDisk": 5}, 0, 200, 5),
        ({"maxTransferBytesOnMessageInDisk": 1000}, 0, 200, 5),
    ],
)
def test_a_read_ends_at_its_limits_of_count_and_bytes(
    tmp_path, monkeypatch, given, memory_bytes, size, count
):
    monkeypatch.setattr(limits, "physical_memory", lambda: memory_bytes)
    with ConfStore(tmp_path, {**LARGE, **given}) as case:
        case.append(*[request_of(size)] * 40)

        found = case.store.get("T", 0, 0, 100)

        assert (len(found.records), found.next_offset) == (count, count)


@wires("maxFilterMessageSize")
@pytest.mark.parametrize(("given", "units"), [({}, 800), ({"maxFilterMessageSize": 2000}, 100)])
def test_a_filter_that_finds_nothing_looks_at_so_many_units(tmp_path, given, units):
    with ConfStore(tmp_path, {**LARGE, **given}) as case:
        case.append(*[request_of(120)] * 900)

        assert case.store.get("T", 0, 0, subscription="none").next_offset == units


@wires("travelCqFileNumWhenGetMessage")
@pytest.mark.parametrize(("given", "files"), [({}, 1), ({"travelCqFileNumWhenGetMessage": 3}, 3)])
def test_a_filter_that_finds_nothing_goes_through_so_many_files(tmp_path, given, files):
    with ConfStore(tmp_path, given) as case:
        case.append(*[request_of(120)] * 100)  # 20 units in a file

        assert case.store.get("T", 0, 0, subscription="none").next_offset == 20 * files


@wires("maxMsgsNumBatch")
@pytest.mark.parametrize(("given", "count"), [({}, 64), ({"maxMsgsNumBatch": 5}, 5)])
def test_a_query_by_key_returns_so_many_at_most(tmp_path, given, count):
    with ConfStore(tmp_path, given) as case:
        case.append(*[make_request(n, keys="same", body_bytes=10) for n in range(70)])

        assert len(case.store.query("TopicTest", "same", 100)) == count


@wires("readUnCommitted")
@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({"flushDiskType": "SYNC_FLUSH"}, 0),
        ({"flushDiskType": "SYNC_FLUSH", "readUnCommitted": True}, 1),
        ({}, 1),
    ],
)
def test_with_sync_flush_only_what_is_on_disk_is_read_unless_that_is_switched_off(
    tmp_path, given, seen
):
    with ConfStore(tmp_path, given) as case:
        case.store.append_nowait(AppendRequest("T", 0, b"x"))
        case.store.wait_dispatched()

        assert case.store.max_offset("T", 0) == seen
        case.store.flush_log()
        case.store.wait_dispatched()
        assert case.store.max_offset("T", 0) == 1
