"""The end of a log that grows: found again and again, whole records only, by reading only what is new."""

import os
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_builder import FIRST_MS, LogBuilder
from orbitmq.errors import NotAStoreError
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import compiled
from orbitmq.format.segment_name import segment_name
from orbitmq.log_read import Gap, LogTail, missing, plan_log
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import make_request

SEGMENT = 4096
SETTINGS = {"mappedFileSizeCommitLog": str(SEGMENT)}
MANY = 2**62


class CountingKernels:
    """The compiled kernels; counts the bytes that scans were allowed to look at."""

    def __init__(self) -> None:
        self.scans: list[int] = []

    def __getattr__(self, name):
        return getattr(compiled(), name)

    def scan(self, buffer, start, end, base_offset, options: ScanOptions):
        found = compiled().scan(buffer, start, end, base_offset, options)
        self.scans.append(found.stop_at - start)
        return found


def write_segments(root: Path, builder: LogBuilder, cut: int) -> None:
    """Make the files as they are when the writer has come to this byte of the log."""
    folder = root / "commitlog"
    folder.mkdir(parents=True, exist_ok=True)
    for number, segment in enumerate(builder.segments):
        base = builder.base_offset + number * builder.segment_bytes
        if base <= cut:
            shown = bytes(segment[: max(0, cut - base)])
            path = folder / segment_name(base)
            # In place: a tail that has the file open must see it.
            with path.open("r+b" if path.exists() else "w+b") as file:
                file.write(shown.ljust(builder.segment_bytes, b"\0"))


def built(count: int, seed: int = 0, segment_bytes: int = SEGMENT) -> LogBuilder:
    builder, chance = LogBuilder(segment_bytes=segment_bytes), random.Random(seed)
    for number in range(count):
        body = chance.randbytes(chance.choice((1, 40, 300, 900)))
        builder.append(body=body, KEYS=f"k{number}", UNIQ_KEY=f"{number:032X}")
    return builder


def test_directory_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match="nowhere"):
        LogTail(tmp_path / "nowhere").look()


def test_look_follows_a_live_store_over_many_segments(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "store", segment_bytes=SEGMENT)
    tail = LogTail(tmp_path / "store", SETTINGS)
    with MessageStore.open(config) as store:
        ends = []
        for number in range(60):
            store.append(make_request(number, body_bytes=number * 10))
            ends.append((tail.look().end, store.max_log_offset))

    assert [seen for seen, _ in ends] == [real for _, real in ends]
    assert tail.relist().files == plan_log(tmp_path / "store", SETTINGS).files
    assert len(tail.look().files) > 3


def test_look_at_a_log_in_which_nothing_is_new_scans_nothing(tmp_path: Path) -> None:
    kernels = CountingKernels()
    config = StoreConfig(root=tmp_path / "store", segment_bytes=1 << 20)
    with MessageStore.open(config) as store:
        store.append_many([make_request(number) for number in range(500)])
        tail = LogTail(
            tmp_path / "store", {"mappedFileSizeCommitLog": str(1 << 20)}, kernels=kernels
        )
        first = tail.look()
        kernels.scans.clear()
        assert tail.look() is first
        assert kernels.scans == []
        result = store.append(make_request(500))
        assert tail.look().end == result.log_offset + result.size

    assert sum(kernels.scans) == result.size


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_end_is_that_of_the_last_whole_record_wherever_the_writer_is(
    data, tmp_path_factory
) -> None:
    builder = built(14, seed=data.draw(st.integers(0, 3)))
    root = tmp_path_factory.mktemp("tail")
    total = len(builder.segments) * SEGMENT
    cuts = sorted(data.draw(st.lists(st.integers(0, total), min_size=1, max_size=12)))
    write_segments(root, builder, 0)
    tail = LogTail(root, SETTINGS)
    tail.look()
    # The end of a segment counts when its blank record is there; it is the same place in the log.
    ends = {0: 0} | {record.start: record.start for record in builder.records}
    for record in builder.records:
        ends[record.end] = record.end

    for cut in cuts:
        write_segments(root, builder, cut)
        end = tail.look().end
        whole = max((record.end for record in builder.records if record.end <= cut), default=0)
        assert end >= whole
        assert end in ends
        assert not any(whole <= record.start < end for record in builder.records)


def test_bytes_behind_the_end_that_are_no_record_are_looked_at_once(tmp_path: Path) -> None:
    builder = built(3, segment_bytes=1 << 16)
    last = builder.records[-1]
    builder.segments[0][last.end : last.end + 200] = os.urandom(200)
    write_segments(tmp_path, builder, 1 << 16)
    kernels = CountingKernels()
    tail = LogTail(tmp_path, {"mappedFileSizeCommitLog": str(1 << 16)}, kernels=kernels)
    assert tail.look().end == last.end
    assert tail.look().end == last.end
    kernels.scans.clear()

    assert tail.look().end == last.end

    assert sum(kernels.scans) == 0
    # The broker is started, drops them and goes on.
    builder.position = last.end
    builder.segments[0][last.end : last.end + 200] = bytes(200)
    following = builder.append()
    write_segments(tmp_path, builder, 1 << 16)
    assert tail.look().end == following.end


def test_reader_beside_a_writing_thread_never_sees_half_a_record(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "store", segment_bytes=1 << 16)
    tail = LogTail(tmp_path / "store", {"mappedFileSizeCommitLog": str(1 << 16)})
    ends, boundaries = set(), {0}
    with MessageStore.open(config) as store:
        first = store.append(make_request(0))
        boundaries.add(first.log_offset + first.size)
        done = threading.Event()

        def append() -> None:
            for number in range(2_000):
                result = store.append(make_request(number, body_bytes=number % 700))
                boundaries.add(result.log_offset)
                boundaries.add(result.log_offset + result.size)
            done.set()

        writer = threading.Thread(target=append)
        writer.start()
        while not done.is_set():
            ends.add(tail.look().end)
        writer.join()
        ends.add(tail.look().end)
        final = store.max_log_offset

    whole_segments = {end for end in ends if end % (1 << 16) == 0}
    assert ends - whole_segments <= boundaries
    assert max(ends) == final


# --- limits and times ---


@pytest.fixture
def closed_log(tmp_path: Path) -> tuple[LogTail, LogBuilder]:
    builder = built(40)
    write_segments(tmp_path, builder, len(builder.segments) * SEGMENT)
    tail = LogTail(tmp_path, SETTINGS)
    tail.look()
    return tail, builder


@pytest.mark.parametrize("rows", [1, 2, 7, 39, 40, 41])
def test_limit_by_rows_ends_before_the_record_that_is_too_much(closed_log, rows: int) -> None:
    tail, builder = closed_log
    starts = [record.start for record in builder.records]

    end = tail.limited(starts[0], tail.look().end, rows, MANY)

    assert sum(starts[0] <= start < end for start in starts) == min(rows, 40)


@given(limit=st.integers(1, 6_000), number=st.integers(0, 39))
def test_limit_by_bytes_takes_whole_records_and_at_least_one(limit: int, number: int) -> None:
    tail, builder = _shared_log()
    start = builder.records[number].start

    end = tail.limited(start, tail.look().end, MANY, limit)

    taken = [record for record in builder.records if start <= record.start < end]
    assert taken
    assert len(taken) == 1 or taken[-1].end - start <= limit
    following = [record for record in builder.records if record.start >= end]
    assert not following or following[0].end - start > limit


_log: list[tuple[LogTail, LogBuilder]] = []


def _shared_log() -> tuple[LogTail, LogBuilder]:
    assert _log, "made by the fixture below"
    return _log[0]


@pytest.fixture(autouse=True, scope="module")
def _make_shared_log(tmp_path_factory) -> None:
    root = tmp_path_factory.mktemp("shared")
    builder = built(40)
    write_segments(root, builder, len(builder.segments) * SEGMENT)
    tail = LogTail(root, SETTINGS)
    tail.look()
    _log.append((tail, builder))


@pytest.mark.parametrize("number", [0, 1, 13, 39])
def test_offset_at_a_time_is_the_first_record_stored_then_or_later(closed_log, number: int) -> None:
    tail, builder = closed_log

    assert tail.offset_at(FIRST_MS + number) == builder.records[number].start


def test_offset_at_a_time_after_the_last_record_is_the_end(closed_log) -> None:
    tail, _ = closed_log

    assert tail.offset_at(FIRST_MS + 1_000) == tail.look().end
    assert tail.offset_at(0) == 0


def test_deleted_segments_are_noticed_and_said_to_be_missing(closed_log) -> None:
    tail, _ = closed_log
    first, second, *_ = tail.look().files
    first.path.unlink()

    plan = tail.relist()

    assert plan.start == second.base_offset
    assert missing(plan, 100, plan.end) == [Gap(str(second.path), 100, SEGMENT)]
    assert missing(plan, SEGMENT, plan.end) == []
