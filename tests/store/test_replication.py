"""A replica's log is its primary's, byte for byte, whatever pieces it comes in; anything else is refused."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from golden_stores import settings, unpack
from orbitmq.errors import FormatError, StoreClosedError, StoreError
from orbitmq.format.record import BLANK, BLANK_MAGIC, MAGIC_V1, encode_blank
from orbitmq.store.config import FlushMode, Role, StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing import FaultyDisk
from orbitmq.testing.builders import mixed_requests

SEGMENT = 64 * 1024


def config(root: Path, **given: object) -> StoreConfig:
    sizes = {"segment_bytes": SEGMENT, "index_slots": 64, "index_items": 1024}
    return StoreConfig(root=root, **{**sizes, **given})  # type: ignore[arg-type]


def replica_config(root: Path, **given: object) -> StoreConfig:
    return config(root, role=Role.REPLICA, **given)


def filled(root: Path, count: int = 700) -> MessageStore:
    store = MessageStore.open(config(root), background=False)
    store.append_many(list(mixed_requests(count)))
    store.tick()
    return store


def pieces(store: MessageStore, start: int, bytes_max: int) -> Iterator[tuple[int, memoryview]]:
    at = start
    while (span := store.replication.read(at, bytes_max)) is not None:
        yield at, span.view
        at += len(span.view)


def copy(primary: MessageStore, replica: MessageStore, bytes_max: int = 1000) -> None:
    start = replica.replication.begin() or primary.min_log_offset
    for at, view in pieces(primary, start, bytes_max):
        replica.replication.take(at, view)
    replica.tick()


def log_bytes(store: MessageStore) -> bytes:
    return b"".join(bytes(view) for _, view in pieces(store, store.min_log_offset, 1 << 30))


def queues(store: MessageStore) -> dict[tuple[str, int], list[object]]:
    found = {}
    for topic, queue_id in store.queues():
        end = store.max_offset(topic, queue_id)
        found[topic, queue_id] = [store.units(topic, queue_id, at, 1) for at in range(end)]
    return found


@pytest.mark.parametrize("bytes_max", [1, 7, 1000, 1 << 20])
def test_log_queues_and_index_are_the_primarys(tmp_path: Path, bytes_max: int) -> None:
    count = 30 if bytes_max < 100 else 700
    with (
        filled(tmp_path / "a", count) as primary,
        MessageStore.open(replica_config(tmp_path / "b"), background=False) as replica,
    ):
        copy(primary, replica, bytes_max)

        assert log_bytes(replica) == log_bytes(primary)
        assert replica.max_log_offset == primary.max_log_offset
        assert queues(replica) == queues(primary)
        assert replica.dispatched_offset == primary.dispatched_offset
        assert bytes_max < 100 or primary.max_log_offset > 2 * SEGMENT


def test_only_whole_records_are_in_the_log(tmp_path: Path) -> None:
    with (
        filled(tmp_path / "a", 20) as primary,
        MessageStore.open(replica_config(tmp_path / "b"), background=False) as replica,
    ):
        ends = {0}
        for topic, queue_id in primary.queues():
            for unit in primary.units(topic, queue_id, 0, 100):
                ends.add(unit.log_offset + unit.size)
        replica.replication.begin()
        for at, view in pieces(primary, 0, 37):
            replica.replication.take(at, view)
            assert replica.max_log_offset == max(end for end in ends if end <= at + len(view))
            assert replica.replication.next_offset == at + len(view)


def test_a_replica_goes_on_after_a_restart_in_the_middle_of_a_record(tmp_path: Path) -> None:
    with filled(tmp_path / "a") as primary:
        whole, rounds = random.Random(7), 0
        while True:
            with MessageStore.open(replica_config(tmp_path / "b"), background=False) as replica:
                start = replica.replication.begin()
                if start == primary.max_log_offset:
                    assert log_bytes(replica) == log_bytes(primary)
                    assert queues(replica) == queues(primary)
                    break
                stop = start + whole.randrange(5_000, 40_000)
                for at, view in pieces(primary, start, 999):
                    if at > stop:
                        break
                    replica.replication.take(at, view)
            rounds += 1
        assert rounds > 3


def test_a_new_connection_begins_behind_the_last_whole_record(tmp_path: Path) -> None:
    with (
        filled(tmp_path / "a", 10) as primary,
        MessageStore.open(replica_config(tmp_path / "b"), background=False) as replica,
    ):
        log = memoryview(log_bytes(primary))
        size = int.from_bytes(log[:4], "big")
        replica.replication.take(0, log[: size + 50])
        assert replica.replication.begin() == replica.replication.next_offset == size
        replica.replication.take(size, log[size:])
        assert log_bytes(replica) == log


def test_an_empty_replica_begins_where_the_primarys_log_begins(tmp_path: Path) -> None:
    with filled(tmp_path / "a") as primary:
        second = SEGMENT
        with MessageStore.open(replica_config(tmp_path / "b"), background=False) as replica:
            assert replica.replication.begin() == 0
            for at, view in pieces(primary, second, 1000):
                replica.replication.take(at, view)
            replica.tick()
            assert replica.min_log_offset == second
            assert log_bytes(replica) == log_bytes(primary)[second:]
        with MessageStore.open(replica_config(tmp_path / "b"), background=False) as replica:
            assert replica.replication.begin() == primary.max_log_offset
            assert log_bytes(replica) == log_bytes(primary)[second:]


@pytest.mark.parametrize("name", ["mixed", "cleaned", "batchcq", "timer", "propcrc"])
def test_every_golden_log_can_be_taken_over(tmp_path: Path, name: str) -> None:
    theirs = StoreConfig.from_settings(unpack(name, tmp_path / "a"), settings(name))
    ours = replace(theirs, root=tmp_path / "b", commit_log_paths=(), role=Role.REPLICA)
    with (
        MessageStore.open(theirs, background=False) as primary,
        MessageStore.open(ours, background=False) as replica,
    ):
        copy(primary, replica, 32 * 1024)
        assert log_bytes(replica) == log_bytes(primary)
        assert primary.max_log_offset > 0


def refused(replica: MessageStore, log_offset: int, data: bytes) -> str:
    before, at = replica.max_log_offset, replica.replication.next_offset
    with pytest.raises(FormatError) as caught:
        replica.replication.take(log_offset, memoryview(data))
    assert (replica.max_log_offset, replica.replication.next_offset) == (before, at)
    return str(caught.value)


def test_bytes_that_cannot_be_what_comes_next_are_refused_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    with (
        filled(tmp_path / "a", 10) as primary,
        MessageStore.open(replica_config(tmp_path / "b"), background=False) as replica,
    ):
        good = log_bytes(primary)
        assert "begin at 100, in the middle of a segment" in refused(replica, 100, good)
        assert "begin at -" in refused(replica, -SEGMENT, good)
        assert replica.replication.is_empty
        size = int.from_bytes(good[:4], "big")
        replica.replication.take(0, memoryview(good[:size]))
        assert f"came where {size} follows" in refused(replica, size + 1, good[size:])
        assert f"came where {size} follows" in refused(replica, 0, good)
        assert "belongs to log offset 0" in refused(replica, size, good[:size])
        assert "magic" in refused(replica, size, bytes(100))
        for wrong in (-1, 0, 90):
            text = refused(replica, size, BLANK.pack(wrong, MAGIC_V1) + bytes(100))
            assert f"cannot have {wrong} bytes" in text
        long = BLANK.pack(SEGMENT - size - 7, MAGIC_V1) + bytes(28)
        assert "mappedFileSizeCommitLog" in refused(replica, size, long)
        blank = encode_blank(SEGMENT // 2 - size)
        assert "mappedFileSizeCommitLog" in refused(replica, size, blank)
        left = SEGMENT - size
        over = BLANK.pack(left, BLANK_MAGIC) + bytes(left - 8) + b"x"
        assert "another segment" in refused(replica, size, over)
        # And the right bytes are still taken.
        replica.replication.take(size, memoryview(good[size:]))
        assert log_bytes(replica) == good


def test_a_record_that_fits_exactly_leaves_room_for_a_blank(tmp_path: Path) -> None:
    with MessageStore.open(replica_config(tmp_path / "b"), background=False) as replica:
        replica.replication.begin()
        head = BLANK.pack(SEGMENT - 8, MAGIC_V1) + bytes(28)
        replica.replication.take(0, memoryview(head))
        assert replica.replication.next_offset == len(head)
        assert replica.max_log_offset == 0


def test_a_full_disk_or_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with filled(tmp_path / "a", 10) as primary:
        data = memoryview(log_bytes(primary))
        replica = MessageStore.open(replica_config(tmp_path / "b"), background=False, disk=disk)
        replica.replication.begin()
        disk.fail("allocate")
        with pytest.raises(StoreError):
            replica.replication.take(0, data)
        assert replica.max_log_offset == 0
        disk.heal()
        replica.replication.take(0, data)
        assert log_bytes(replica) == bytes(data)
        replica.close()
        with pytest.raises(StoreClosedError):
            replica.replication.take(len(data), data)


def test_with_sync_flush_what_is_received_is_on_disk(tmp_path: Path) -> None:
    settings = replica_config(tmp_path / "b", flush_mode=FlushMode.SYNC)
    with (
        filled(tmp_path / "a", 10) as primary,
        MessageStore.open(settings, background=False) as replica,
    ):
        end = primary.max_log_offset
        replica.replication.take(0, memoryview(log_bytes(primary)))
        assert (replica.flushed_offset, replica.max_log_offset) == (0, end)
        assert replica.replication.received_offset(flush=True) == end
        assert replica.flushed_offset == end


def test_a_store_that_failed_says_so_to_its_primary(tmp_path: Path) -> None:
    with filled(tmp_path / "a", 10) as primary:
        replica = MessageStore.open(replica_config(tmp_path / "b"), background=False)
        error = StoreError(tmp_path, "a sync failed", "Restart.")
        replica.flags.fail(error)
        with pytest.raises(StoreError, match="a sync failed"):
            replica.replication.take(0, memoryview(log_bytes(primary)))
        assert replica.max_log_offset == 0
        replica.flags.failure = None
        replica.close()
