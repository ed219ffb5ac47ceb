"""What the log promises, seen through a store that was opened from a broker.conf."""

import itertools
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from conf_store import ConfStore, request_of
from message_replay import MessageWorld, send_command
from orbitmq.files.disk import Disk, FilePath
from orbitmq.format.client_batch import ClientMessage, encode_client_batch
from orbitmq.format.record import BLANK, BLANK_MAGIC, Record, decode_record
from orbitmq.message import AppendRequest, AppendResult, AppendStatus, QueueType, SysFlag
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import HOST_V4, make_request
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.units import GiB, MiB
from orbitmq.wire.fast import kernels as send_kernels
from orbitmq.wire.frame import encode_command

SECONDS_MAX = 60


def records_of(store: MessageStore) -> Iterator[Record]:
    """Yield every record of the log, found by nothing but where the one before it ends."""
    offset = store.min_log_offset
    while offset < store.max_log_offset:
        size, magic = BLANK.unpack(store._log.read(offset, 8))
        assert size > 0
        if magic != BLANK_MAGIC:
            record = decode_record(store._log.read(offset, size))
            assert record.log_offset == offset
            yield record
        offset += size


# Segments


class NeverSyncs(Disk):
    """A disk that does not sync: a gibibyte would take its time, and nobody cuts the power here."""

    def sync_data(self, path: FilePath, fd: int, position: int = 0, length: int = 0) -> None:
        pass

    def sync_file_system(self, path: FilePath) -> None:
        pass


@pytest.mark.feature("F2", "F7")
def test_a_store_with_default_settings_goes_on_in_a_second_file_after_a_gibibyte(tmp_path):
    body = bytes(4 * MiB)  # the largest that the default settings take
    request = AppendRequest("T", 0, body, born_host=HOST_V4)
    with ConfStore(tmp_path, small=False, inner_disk=NeverSyncs()) as case:
        store = case.store
        results = [store.append(request) for _ in range(257)]
        store.wait_dispatched()

        size = results[0].size
        fitting = (GiB - 8) // size
        assert [r.log_offset for r in results[:fitting]] == [n * size for n in range(fitting)]
        assert [r.log_offset for r in results[fitting:]] == [
            GiB + n * size for n in range(257 - fitting)
        ]
        assert case.files("commitlog") == {
            "commitlog/00000000000000000000": GiB,
            "commitlog/00000000001073741824": GiB,
        }
        blank = store._log.read(fitting * size, 8)
        assert BLANK.unpack(blank) == (GiB - fitting * size, BLANK_MAGIC)
        assert store.max_offset("T", 0) == 257

    with ConfStore(tmp_path, small=False, inner_disk=NeverSyncs()) as case:
        units = case.store.units("T", 0, 0, 257)
        assert [unit.log_offset for unit in units] == [r.log_offset for r in results]
        for number in (0, fitting - 1, fitting, 256):
            assert len(case.store.record_at(results[number].log_offset).body) == len(body)
        one_more = case.store.append(request)
        assert one_more.log_offset == results[-1].log_offset + size


SHOW_START = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    sys.stdout.buffer.write(mapping[:int(sys.argv[2])])
"""


def seen_by_another_process(path: Path, length: int) -> bytes:
    command = [sys.executable, "-c", SHOW_START, str(path), str(length)]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout


@pytest.mark.feature("F55")
def test_another_process_that_maps_a_segment_sees_a_record_before_it_is_flushed(tmp_path):
    with ConfStore(tmp_path) as case:
        (stored,) = case.append(make_request(0))
        segment = case.store._log.segments.first

        seen = seen_by_another_process(segment.path, stored.size)

        assert seen == bytes(case.store.record_bytes(stored.log_offset))
        assert case.store.flushed_offset == 0


@pytest.mark.feature("F55", "F60")
def test_what_lies_in_private_memory_is_seen_by_nobody_until_it_is_committed(tmp_path):
    with ConfStore(tmp_path, {"transientStorePoolEnable": True}) as case:
        stored = case.store.append(make_request(0))
        segment = case.store._log.segments.first
        assert seen_by_another_process(segment.path, stored.size) == bytes(stored.size)
        assert case.store.record_at(stored.log_offset) is None

        case.clock.advance(200)
        case.store.tick()

        record = decode_record(seen_by_another_process(segment.path, stored.size))
        assert record.body == make_request(0).body


# Order


class RestlessClock(FakeClock):
    """A wall clock that is set forward and back all the time, by up to two seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._chance = random.Random(9)

    def now_ms(self) -> int:
        return super().now_ms() + self._chance.randrange(2000)


def client_batch(queue_id: int, *bodies: bytes) -> AppendRequest:
    messages = encode_client_batch([ClientMessage(body, b"", 0) for body in bodies])
    return AppendRequest("Batches", queue_id, messages, born_host=HOST_V4)


@pytest.mark.feature("F9")
def test_eight_writers_leave_no_gap_no_overlap_and_no_time_that_falls_under_a_restless_clock(
    tmp_path,
):
    clock = RestlessClock()
    with ConfStore(tmp_path, clock=clock) as case:
        store = case.store
        results: list[list[AppendResult]] = [[] for _ in range(8)]

        def write(writer: int) -> None:
            for number in range(150):
                request = make_request(number, f"T{writer % 3}", writer, body_bytes=50 + writer)
                match number % 10:
                    case 0:
                        results[writer] += store.append_many([request, request])
                    case 1:
                        results[writer] += store.append_client_batch(
                            client_batch(writer, b"one", b"two", b"three")
                        )
                    case 2:
                        results[writer].append(store.append_nowait(request))
                    case _:
                        results[writer].append(store.append(request))

        threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS_MAX)

        placed = sorted(itertools.chain(*results), key=lambda result: result.log_offset)
        records = list(records_of(store))
        assert len(placed) == 8 * (15 * 2 + 15 * 3 + 120)
        assert {result.status for result in placed} == {AppendStatus.PUT_OK}
        assert [(r.log_offset, r.size, r.store_ms) for r in records] == [
            (r.log_offset, r.size, r.store_ms) for r in placed
        ]
        times = [record.store_ms for record in records]
        assert times == sorted(times)
        assert len(set(times)) > 3
        segment_bytes = case.config.segment_bytes
        for before, after in itertools.pairwise(records):
            end = before.log_offset + before.size
            starts = {end, (end // segment_bytes + 1) * segment_bytes}
            assert after.log_offset in starts


@pytest.mark.feature("F9")
@pytest.mark.parametrize(
    "way", ["append", "append_many", "append_client_batch", "first of a topic"]
)
def test_no_way_of_appending_stores_a_time_before_the_last_one(tmp_path, way):
    appends = {
        "append": lambda store: store.append(make_request(1, "T", 0)),
        "append_many": lambda store: store.append_many([make_request(1, "T", 0)])[0],
        "append_client_batch": lambda store: store.append_client_batch(client_batch(0, b"x"))[0],
        "first of a topic": lambda store: store.append(make_request(1, "New", 0)),
    }
    with ConfStore(tmp_path) as case:
        append, store, clock = appends[way], case.store, case.clock
        store.append(make_request(0, "T", 0))  # from now on T takes the fast path
        before = append(store).store_ms
        now_ms = clock.now_ms()

        clock.set_now_ms(now_ms - 5_000)
        back = append(store)
        clock.set_now_ms(now_ms + 3)
        forward = append(store)

        assert back.store_ms == before == now_ms
        assert forward.store_ms == now_ms + 3
        assert store.record_at(back.log_offset).store_ms == before

    with ConfStore(tmp_path, clock=FakeClock(now_ms - 60_000)) as case:
        assert case.store.append(make_request(2, "T", 0)).store_ms == now_ms + 3


@pytest.mark.feature("F9")
def test_sends_that_go_by_kernels_store_no_time_before_the_last_one_either(tmp_path):
    with MessageWorld(tmp_path) as world:
        world.sends.fast_way.use(send_kernels.compiled())
        client, frame = world.connect(), encode_command(send_command())
        world.tell(client, send_command())  # from now on its topic is known
        now_ms = world.clock.now_ms()

        for moved_ms in (-5_000, 3):
            world.clock.set_now_ms(now_ms + moved_ms)
            assert world.sends.take(client, frame) == len(frame)

        times = [record.store_ms for record in world.records("Orders")]
        assert times == [now_ms, now_ms, now_ms + 3]


# Queue offsets

PREPARED = int(SysFlag.PREPARED)


@pytest.mark.feature("F10")
def test_queue_offsets_count_from_zero_and_are_the_numbers_of_the_units(tmp_path):
    chance = random.Random(10)
    placed: dict[tuple[str, int], list[AppendResult]] = {}
    clock = FakeClock()
    for _ in range(3):  # a store that is opened again goes on counting
        with ConfStore(tmp_path, clock=clock) as case:
            store = case.store
            for number in range(120):
                topic, queue_id = f"T{chance.randrange(2)}", chance.randrange(3)
                request = make_request(number, topic, queue_id, body_bytes=10)
                match chance.randrange(4):
                    case 0:
                        results = store.append_many([request] * chance.randrange(1, 4))
                    case 1:
                        request.body = encode_client_batch([ClientMessage(b"b", b"", 0)] * 3)
                        results = store.append_client_batch(request)
                    case 2:
                        store.append(make_request(number, topic, queue_id, sys_flag=PREPARED))
                        results = [store.append(request)]
                    case _:
                        results = [store.append(request)]
                placed.setdefault((topic, queue_id), []).extend(results)
            store.wait_dispatched()

            for queue, results in placed.items():
                assert [r.queue_offset for r in results] == list(range(len(results)))
                assert store.max_offset(*queue) == len(results) == store.next_queue_offset(*queue)
                for result in results:
                    (unit,) = store.units(*queue, result.queue_offset, 1)
                    assert (unit.log_offset, unit.size) == (result.log_offset, result.size)
                    record = store.record_at(result.log_offset)
                    assert (record.topic, record.queue_id) == queue
                    assert record.queue_offset == result.queue_offset


@pytest.mark.feature("F10")
def test_an_inner_batch_takes_as_many_queue_offsets_as_it_has_messages(tmp_path):
    types = {"Batch": QueueType.BATCH}
    flags = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
    batch = make_request(0, "Batch", 0, properties={"INNER_NUM": "5"}, sys_flag=flags)
    with ConfStore(tmp_path, topic_types=types) as case:
        results = case.append(batch, make_request(1, "Batch", 0), batch)

        assert [result.queue_offset for result in results] == [0, 5, 6]
        assert case.store.max_offset("Batch", 0) == 11
        for offset, result in ((0, 0), (4, 0), (5, 1), (6, 2), (10, 2)):
            (unit, *_) = case.store.units("Batch", 0, offset, 1)
            assert unit.log_offset == results[result].log_offset


# Units


@pytest.mark.feature("F13")
@pytest.mark.parametrize("units", [10, 200, 30_000])
def test_a_unit_is_found_by_one_read_however_long_its_queue_is(tmp_path, units):
    file_units = 5000
    given = {"mappedFileSizeConsumeQueue": 20 * file_units, "mappedFileSizeCommitLog": 16 * MiB}
    clock = FakeClock()
    with ConfStore(tmp_path, given, clock=clock) as case:
        results = case.store.append_many([request_of(120)] * units)
    with ConfStore(tmp_path, given, clock=clock) as case:
        for offset in np.unique(np.linspace(0, units - 1, 7, dtype=int)).tolist():
            base, inside = divmod(offset, file_units)
            case.disk.forget()

            (unit,) = case.store.units("T", 0, offset, 1)
            found = case.store.get("T", 0, offset, 1)

            assert unit.log_offset == results[offset].log_offset == found.log_offsets[0]
            reads = case.disk.seen("read_at")
            assert [(call.position, call.length) for call in reads] == [(20 * inside, 20)] * 2
            assert {call.path for call in reads} == {
                f"consumequeue/T/0/{base * 20 * file_units:020}"
            }
