"""The store of topics in memory: what is kept, what goes first, and that offsets never go back."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbitmq.errors import StateFileError
from orbitmq.files.disk import Disk
from orbitmq.format import kernels
from orbitmq.format.client_batch import ClientMessage, encode_client_batch
from orbitmq.format.cq_unit import UNIT_BYTES
from orbitmq.format.message_id import MEMORY_LOG_OFFSET
from orbitmq.format.properties import encode_properties
from orbitmq.format.record import decode_record
from orbitmq.message import (
    AppendRequest,
    AppendResult,
    AppendStatus,
    Boundary,
    GetStatus,
    Host,
    SysFlag,
)
from orbitmq.store.config import StoreConfig
from orbitmq.store.memory import reserve, slabs
from orbitmq.store.memory.limit import default_limit
from orbitmq.store.memory.memory_store import MemoryStore
from orbitmq.store.memory.slabs import MemoryLog
from orbitmq.store.reads.tag_filter import TagFilter
from orbitmq.testing import FakeClock
from orbitmq.testing.fake_disk import FaultyDisk
from orbitmq.units import KiB, MiB

pytestmark = pytest.mark.feature("F104")

HOST = Host(b"\x7f\0\0\1", 10911)


def memory_store(
    root: Path,
    bytes_max: int = 1 * MiB,
    *,
    clock: FakeClock | None = None,
    disk: Disk | None = None,
) -> MemoryStore:
    config = StoreConfig(root=root, store_host=HOST)
    return MemoryStore(
        config,
        clock=clock or FakeClock(),
        disk=disk or Disk(),
        kernels=kernels.plain,
        state_file=root / "memoryTopics.json",
        bytes_max=bytes_max,
    )


def killed(store: MemoryStore, root: Path) -> MemoryStore:
    """Return the store of the next start, after one that was not closed."""
    store._reserve._thread.shutdown(wait=True)  # a dead process writes nothing more
    return memory_store(root)


def message(
    topic: str = "T", queue_id: int = 0, body: bytes = b"b", **properties: str
) -> AppendRequest:
    return AppendRequest(topic, queue_id, body, encode_properties(properties), born_host=HOST)


def put(store: MemoryStore, *args: object, **kwargs: object) -> AppendResult:
    result = store.append(message(*args, **kwargs))  # type: ignore[arg-type]
    assert result.status is AppendStatus.PUT_OK, result.reason
    return result


def bodies(store: MemoryStore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    """Return what a queue holds; every record is whole and says where it lies."""
    found, at, end = [], store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    while at < end:
        result = store.get(topic, queue_id, at, 32)
        assert result.status is GetStatus.FOUND
        for raw, offset, log_offset in zip(
            result.records, result.queue_offsets, result.log_offsets, strict=True
        ):
            record = decode_record(raw)
            assert (record.topic, record.queue_id) == (topic, queue_id)
            assert (record.queue_offset, record.log_offset) == (offset, log_offset)
            found.append(record.body)
        at = result.next_offset
    return found


# What is read is what was sent


def test_a_message_is_read_back_as_the_record_that_was_sent(tmp_path: Path):
    store = memory_store(tmp_path)
    put(store, body=b"first", TAGS="A")
    result = put(store, body=b"second", TAGS="B", KEYS="k1 k2")

    found = store.get("T", 0, 1, 32)

    record = decode_record(found.records[0])
    assert (record.body, record.tags, record.keys) == (b"second", "B", ["k1", "k2"])
    assert (found.next_offset, found.min_offset, found.max_offset) == (2, 0, 2)
    assert result.log_offset >= MEMORY_LOG_OFFSET
    assert bytes(store.record_bytes(result.log_offset) or b"") == bytes(found.records[0])


def test_tags_are_filtered_by_their_hash(tmp_path: Path):
    store = memory_store(tmp_path)
    for tag in ("A", "B", "A"):
        put(store, body=tag.encode(), TAGS=tag)

    found = store.get("T", 0, 0, 32, filter=TagFilter.parse("B"))

    assert [decode_record(raw).body for raw in found.records] == [b"B"]
    assert found.next_offset == 3


def test_a_batch_has_one_record_for_each_message_with_its_own_tag(tmp_path: Path):
    store = memory_store(tmp_path)
    inner = [
        ClientMessage(b"m%d" % n, encode_properties({"TAGS": tag})) for n, tag in enumerate("ABA")
    ]
    request = message(body=encode_client_batch(inner))

    results = store.append_client_batch(request)

    assert [result.queue_offset for result in results] == [0, 1, 2]
    assert bodies(store) == [b"m0", b"m1", b"m2"]
    wanted = store.get("T", 0, 0, 32, filter=TagFilter.parse("A"))
    assert [decode_record(raw).body for raw in wanted.records] == [b"m0", b"m2"]


def test_offsets_are_found_by_time_and_records_by_key(tmp_path: Path):
    clock = FakeClock()
    store = memory_store(tmp_path, clock=clock)
    times = []
    for n in range(5):
        times.append(clock.now_ms())
        put(store, body=b"%d" % n, KEYS=f"odd-{n % 2} all", UNIQ_KEY=f"U{n}")
        clock.advance(1_000)

    assert store.offset_by_time("T", 0, times[3], Boundary.LOWER) == 3
    assert store.offset_by_time("T", 0, times[3] + 1, Boundary.LOWER) == 4
    assert store.offset_by_time("T", 0, times[3] + 1, Boundary.UPPER) == 3
    assert store.store_time("T", 0, 2) == times[2]
    by_key = store.query("T", "odd-1", 32, 0, times[4])
    assert [decode_record(raw).body for raw in by_key] == [b"1", b"3"]
    assert [decode_record(raw).body for raw in store.query("T", "all", 2, 0, times[4])] == [
        b"3",
        b"4",
    ]
    assert [decode_record(raw).body for raw in store.query("T", "U2", 32, 0, times[4])] == [b"2"]
    assert store.query("T", "odd", 32, 0, times[4]) == []
    assert store.query("T", "all", 32, times[4] + 1, times[4] + 2) == []


@pytest.mark.parametrize("delta", [-1, 1, 100])
def test_a_log_offset_at_which_no_record_starts_finds_nothing(tmp_path: Path, delta: int):
    store = memory_store(tmp_path)
    result = put(store, body=bytes(200))

    assert store.record_bytes(result.log_offset + delta) is None


def test_a_record_inside_a_body_is_not_taken_for_one(tmp_path: Path):
    store = memory_store(tmp_path)
    inner = put(store, body=b"inner")
    outer = put(store, body=bytes(store.record_bytes(inner.log_offset) or b""))

    assert store.record_bytes(outer.log_offset + 88) is None


# What is refused


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (message(DELAY="3"), "send it without DELAY"),
        (AppendRequest("T", 0, b"b", sys_flag=SysFlag.PREPARED, born_host=HOST), "transaction"),
        (message(body=bytes(5 * MiB)), "maxMessageSize"),
        (message(body=bytes(65 * KiB)), "memoryTopicBytesMax is 65536"),
        (message(INNER_NUM="2"), "INNER_NUM"),
        (AppendRequest("T", 0, b"b", flag=1 << 40, born_host=HOST), "does not fit its field"),
    ],
)
def test_what_cannot_be_kept_in_memory_is_refused_with_the_reason(
    tmp_path: Path, request_: AppendRequest, why: str
):
    store = memory_store(tmp_path, 64 * KiB)

    result = store.append(request_)

    assert result.status is AppendStatus.MESSAGE_ILLEGAL
    assert why in result.reason
    assert store.max_offset("T", 0) == 0


def test_a_closed_store_takes_nothing(tmp_path: Path):
    store = memory_store(tmp_path)
    store.close()

    assert store.append(message()).status is AppendStatus.SERVICE_NOT_AVAILABLE


# The limit


def test_above_the_limit_the_topics_own_oldest_message_goes(tmp_path: Path):
    store = memory_store(tmp_path, 64 * KiB)
    put(store, "Other", body=b"older than all")
    for n in range(200):
        put(store, body=b"%03d" % n + bytes(1000))

    kept = bodies(store)

    assert 0 < store.min_offset("T", 0) < 200 == store.max_offset("T", 0)
    assert [body[:3] for body in kept] == [b"%03d" % n for n in range(200 - len(kept), 200)]
    assert len(kept) * 1100 > 60_000  # no more goes than has to
    assert bodies(store, "Other") == [b"older than all"]
    assert store.evicted_messages == 200 - len(kept)


def test_at_a_large_limit_one_look_makes_room_for_many_sends(tmp_path: Path):
    store = memory_store(tmp_path, 6 * MiB)
    for _ in range(100):
        put(store, body=bytes(500))
    while store.held_bytes < store.bytes_max - 200 * KiB:
        put(store, body=bytes(90 * KiB))
    while not store.evicted_messages:
        put(store, body=bytes(500))

    evicted = store.evicted_messages
    for _ in range(3):
        put(store, body=bytes(500))

    assert 3 < evicted == store.evicted_messages < 20
    assert store.held_bytes <= store.bytes_max


def test_at_a_large_limit_a_kernel_looks_for_what_goes(tmp_path: Path, monkeypatch):
    kernel, calls = slabs.TopicRecords._drop_together, list[int]()

    def counted(records: slabs.TopicRecords, slab: slabs.Slab, wanted: int, *rest: Any) -> Any:
        calls.append(wanted)
        return kernel(records, slab, wanted, *rest)

    monkeypatch.setattr(slabs.TopicRecords, "_drop_together", counted)
    store = memory_store(tmp_path, 20 * MiB)
    for _ in range(200):
        put(store, body=bytes(500))
    while not store.evicted_messages:
        put(store, body=bytes(90 * KiB))

    assert 0 < len(calls) < store.evicted_messages / 3
    assert 100 < store.evicted_messages <= 200


@settings(max_examples=30)
@given(
    messages=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3000)), min_size=1, max_size=60),
    wanted=st.lists(st.integers(1, 40_000), min_size=1),
)
@example(messages=[(0, 0)] * 60, wanted=[3_000, 3_000])  # units are a fifth of what goes
def test_the_same_messages_go_together_as_would_go_one_by_one(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[tuple[int, int]],
    wanted: list[int],
) -> None:
    left = []
    for together_bytes in (0, 1 << 62):
        store = memory_store(tmp_path_factory.mktemp("store"))
        for queue_id, length in messages:
            put(store, queue_id=queue_id, body=bytes(length))
        records, gone = store._topics["T"], list[object]()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(slabs, "_TOGETHER_BYTES", together_bytes)
            for size in wanted:
                if records.slabs:
                    counts = records.drop(size, kernels.plain())
                    firsts = [(slab.base, slab.first) for slab in records.slabs]
                    gone.append((counts, records.held_bytes, firsts))
        left.append(gone)

    assert left[0] == left[1]


def test_a_topic_that_has_none_pushes_out_the_oldest_of_all(tmp_path: Path):
    clock = FakeClock()
    store = memory_store(tmp_path, 64 * KiB, clock=clock)
    put(store, "Old", body=bytes(20_000))
    clock.advance(1)
    put(store, "Young", body=bytes(40_000))
    clock.advance(1)

    put(store, "New", body=bytes(20_000))

    assert [store.min_offset(topic, 0) for topic in ("Old", "Young", "New")] == [1, 0, 0]
    assert bodies(store, "Old") == []
    assert store.max_offset("Old", 0) == 1


def test_a_reader_below_the_min_offset_is_told_where_to_go_on(tmp_path: Path):
    store = memory_store(tmp_path, 64 * KiB)
    for _ in range(100):
        put(store, body=bytes(1000))

    found = store.get("T", 0, 3, 32)

    assert found.status is GetStatus.OFFSET_TOO_SMALL
    assert found.next_offset == found.min_offset == store.min_offset("T", 0)


def test_what_a_reader_holds_stays_whole_when_it_is_evicted(tmp_path: Path):
    store = memory_store(tmp_path, 64 * KiB)
    put(store, body=b"held")
    held = store.get("T", 0, 0, 1).records[0]
    for _ in range(200):
        put(store, body=bytes(1000))

    assert store.min_offset("T", 0) > 0
    assert decode_record(held).body == b"held"


def test_a_deleted_topic_gives_its_memory_back_and_begins_at_0_again(tmp_path: Path):
    store = memory_store(tmp_path)
    for _ in range(50):
        put(store, body=bytes(1000))

    assert store.delete_topic("T")

    assert (store.held_bytes, store.allocated_bytes) == (0, 0)
    assert put(store, body=b"new").queue_offset == 0
    assert bodies(store) == [b"new"]
    assert not store.delete_topic("nobody")


def test_memory_of_a_slab_that_went_is_used_again_unless_a_reader_holds_a_part_of_it():
    log = MemoryLog(0)
    slab = log.add(1 * MiB)
    address = slab.data.ctypes.data
    log.remove(slab)
    del slab

    slab = log.add(1 * MiB)
    assert slab.data.ctypes.data == address
    assert (slab.first, slab.used, slab.base) == (0, 0, 1 * MiB)

    held = slab.view[10:20]
    log.remove(slab)
    del slab
    assert log.allocated_bytes == 1 * MiB
    assert log.add(1 * MiB).data.ctypes.data != address
    assert len(held) == 10


@pytest.mark.slow
@given(
    sends=st.lists(
        st.tuples(st.sampled_from("ABC"), st.integers(0, 2), st.integers(0, 5000)), max_size=80
    ),
    limit=st.integers(7_000, 60_000),
)
@settings(max_examples=60, deadline=None)
def test_queues_keep_their_newest_messages_below_the_limit_whatever_is_sent(
    tmp_path_factory: pytest.TempPathFactory,
    sends: list[tuple[str, int, int]],
    limit: int,
):
    store = memory_store(tmp_path_factory.mktemp("drawn"), limit)
    sent: dict[tuple[str, int], list[bytes]] = {}
    for number, (topic, queue_id, size) in enumerate(sends):
        before = {key: store.min_offset(*key) for key in sent}
        had_some = any(bodies(store, *key) for key in sent if key[0] == topic)
        body = number.to_bytes(2, "big") + bytes(size)
        put(store, topic, queue_id, body)
        sent.setdefault((topic, queue_id), []).append(body)

        moved = {key[0] for key, low in before.items() if store.min_offset(*key) > low}
        if had_some and moved - {topic}:
            # Others go only when nothing of the topic's own is left to go.
            own = [body for key in sent if key[0] == topic for body in bodies(store, *key)]
            assert own == [body]
        assert store.held_bytes <= limit
    for key, all_bodies in sent.items():
        kept = bodies(store, *key)
        assert kept == all_bodies[len(all_bodies) - len(kept) :]
        assert store.max_offset(*key) == len(all_bodies)
    records = sum(len(body) + UNIT_BYTES + 92 for key in sent for body in bodies(store, *key))
    assert store.held_bytes >= records


def test_many_topics_take_little_more_than_what_they_hold(tmp_path: Path):
    store = memory_store(tmp_path, 4 * MiB)
    for n in range(6000):
        put(store, f"T{n % 3}", n % 2, body=bytes(1000))

    assert store.held_bytes <= 4 * MiB
    assert store.allocated_bytes < 4 * MiB * 1.1
    assert store.allocated_bytes > 4 * MiB * 0.9


def test_memory_that_no_record_fits_into_counts_too(tmp_path: Path):
    store = memory_store(tmp_path, 256 * KiB)
    for _ in range(300):
        put(store, body=bytes(2300))  # one in a slab of 4 KiB

    assert store.held_bytes <= 256 * KiB
    assert store.allocated_bytes < 256 * KiB * 1.1


def test_the_default_limit_is_75_per_cent_of_the_memory_that_is_available():
    with contextlib.suppress(OSError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(int(line.split()[1]) for line in lines if "MemAvailable" in line) * 1024
        assert default_limit() <= available
    assert default_limit() > 0


# Offsets never go back


def test_after_a_clean_stop_offsets_go_on_without_a_gap(tmp_path: Path):
    store = memory_store(tmp_path)
    for _ in range(3):
        put(store)
    store.close()

    again = memory_store(tmp_path)

    assert (again.min_offset("T", 0), again.max_offset("T", 0)) == (3, 3)
    assert again.get("T", 0, 3, 32).status is GetStatus.OFFSET_OVERFLOW_ONE
    assert put(again).queue_offset == 3


def test_after_a_kill_offsets_begin_where_nobody_has_been(tmp_path: Path):
    store = memory_store(tmp_path)
    last = [put(store) for _ in range(3)][-1]

    again = killed(store, tmp_path)
    first = put(again)

    assert again.min_offset("T", 0) >= last.queue_offset + 1
    assert first.queue_offset > last.queue_offset
    assert first.log_offset > last.log_offset
    assert again.record_bytes(last.log_offset) is None
    assert again.get("T", 0, last.queue_offset, 32).status is GetStatus.OFFSET_TOO_SMALL


def test_no_offset_is_given_out_that_is_not_reserved_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reserve, "BLOCK", 10)
    disk = FaultyDisk()
    store = memory_store(tmp_path, disk=disk)
    put(store)
    disk.fail("*", "*memoryTopics*", times=None)

    results = [store.append(message()) for _ in range(30)]
    disk.heal()

    refused = [result for result in results if result.status is not AppendStatus.PUT_OK]
    assert (
        store.max_offset("T", 0) <= 10 + 1
    )  # a block from 0 on, and one from the first message on
    assert refused[-1] is results[-1]
    assert refused[-1].status is AppendStatus.SERVICE_NOT_AVAILABLE
    assert "reserved" in refused[-1].reason
    assert put(store).queue_offset == store.max_offset("T", 0) - 1
    assert killed(store, tmp_path).min_offset("T", 0) >= store.max_offset("T", 0)


def test_offsets_go_on_over_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reserve, "BLOCK", 10)
    store = memory_store(tmp_path)

    offsets = [put(store).queue_offset for _ in range(100)]

    assert offsets == list(range(100))
    assert killed(store, tmp_path).min_offset("T", 0) >= 100


@pytest.mark.parametrize(
    "text",
    [
        '{"nextLogOffset": -1}',
        '{"nextLogOffset": 5, "nextOffsets": []}',
        '{"nextLogOffset": 5, "nextOffsets": {"T": {"0": "x"}}}',
        '{"nextLogOffset": 5, "nextOffsets": {"T": {"0": 9223372036854775808}}}',
        "{",
    ],
)
def test_a_state_file_that_makes_no_sense_is_an_error_and_not_a_start_at_0(
    tmp_path: Path, text: str
):
    (tmp_path / "memoryTopics.json").write_text(text)

    with pytest.raises(StateFileError):
        memory_store(tmp_path)
