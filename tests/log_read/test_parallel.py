"""Reading a log in order with many threads gives what reading it with one gives."""

from pathlib import Path

import numpy as np
import pytest

from golden_stores import rows, settings, unpack
from log_builder import LogBuilder
from orbitmq.files.disk import Disk
from orbitmq.files.layout import guess_layout
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import Kernels, compiled, plain
from orbitmq.log_read import Chunk, LogStop, LogView, ReadState, open_log, replay
from orbitmq.log_read.parallel import worker_count

CRC = ScanOptions(check_crc=True)


def offsets(
    log: LogView,
    start: int = 0,
    end: int | None = None,
    *,
    kernels: Kernels | None = None,
    state: ReadState | None = None,
    options: ScanOptions = CRC,
) -> list[int]:
    chunks = replay(
        log, start, end, kernels=kernels or compiled(), options=options, workers=3, state=state
    )
    return [offset for chunk in chunks for offset in chunk.rows["log_offset"].tolist()]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.log_read.parallel.BLOCK_BYTES", 700)


@pytest.mark.parametrize("kernels", [plain(), compiled()], ids=["plain", "compiled"])
def test_a_real_store_is_read_record_for_record(kernels: Kernels, tmp_path: Path) -> None:
    layout = guess_layout(unpack("mixed", tmp_path), settings("mixed"))
    state = ReadState(0)

    with open_log(layout, Disk()) as log:
        found = offsets(log, kernels=kernels, state=state)

    assert found == [row["phyOffset"] for row in rows("mixed", "record")]
    assert (state.at, state.stop) == (3929746, LogStop.BAD)


def built(count: int = 200, *, body: bytes = b"b" * 60) -> LogBuilder:
    builder = LogBuilder(segment_bytes=8192)
    for number in range(count):
        builder.append("T", number % 3, body)
    return builder


def test_a_replay_may_start_and_end_at_any_record() -> None:
    builder = built()
    places = [record.start for record in builder.records]

    for first, last in ((0, 5), (17, 123), (50, 51), (199, 200)):
        end = places[last] if last < len(places) else builder.written
        state = ReadState(0)
        found = offsets(builder.view(), places[first], end, state=state)
        assert found == places[first:last]
        assert state.stop is LogStop.END


def test_a_replay_of_nothing_ends_where_it_starts() -> None:
    state = ReadState(0)

    assert offsets(LogView([], 4096), state=state) == []
    assert offsets(built(5).view(), 100, 100, state=state) == []
    assert state.at == 100


def test_a_record_larger_than_a_block_is_read() -> None:
    builder = built(3)
    large = builder.append(body=b"x" * 3000)
    builder.append()

    assert large.start in offsets(builder.view())
    assert len(offsets(builder.view())) == 5


def test_a_copy_of_a_log_inside_a_body_does_not_lead_astray() -> None:
    inner = LogBuilder(segment_bytes=8192)
    builder = LogBuilder(segment_bytes=8192)
    # Records that name exactly the places at which they lie, but inside a body.
    inner.position = 88
    inner.segments.append(bytearray(8192))
    for _ in range(12):
        inner.append(body=b"i" * 50)
    builder.append(body=bytes(inner.segments[0][88 : inner.position]))
    after = builder.append()

    assert offsets(builder.view()) == [0, after.start]


def test_it_stops_at_the_first_bad_record_and_says_where() -> None:
    builder = built()
    bad = builder.records[77]
    builder.flip(bad.start + 100)
    state = ReadState(0)

    found = offsets(builder.view(), state=state)

    assert found == [record.start for record in builder.records[:77]]
    assert (state.at, state.stop) == (bad.start, LogStop.BAD)


def test_without_a_crc_check_the_same_record_passes() -> None:
    builder = built()
    builder.flip(builder.records[77].start + 100)

    assert len(offsets(builder.view(), options=ScanOptions())) == 200


def test_a_blank_without_a_next_segment_ends_the_log() -> None:
    builder = built()
    view = builder.view()
    view.segments.pop()
    state = ReadState(0)

    offsets(view, state=state)

    assert state.stop is LogStop.BLANK
    assert state.at == max(r.end for r in builder.records if r.start < view.max_offset)


def test_many_rows_come_in_several_chunks() -> None:
    builder = built()
    options = ScanOptions(check_crc=True, max_rows=2)

    chunks = list(replay(builder.view(), 0, kernels=compiled(), options=options, workers=2))

    assert max(len(chunk.rows) for chunk in chunks) == 2
    assert sum(len(chunk.rows) for chunk in chunks) == 200


def test_progress_grows_to_the_end() -> None:
    seen: list[tuple[int, int]] = []
    builder = built()

    list(
        replay(
            builder.view(),
            0,
            kernels=compiled(),
            options=CRC,
            progress=lambda done, total: seen.append((done, total)),
        )
    )

    done = [part for part, _ in seen]
    assert done == sorted(done)
    assert {total for _, total in seen} == {builder.view().max_offset}


def test_work_that_needs_no_order_is_done_ahead() -> None:
    builder = built()

    def prepare(chunk: Chunk) -> Chunk:
        return Chunk(chunk.buffer, chunk.rows, np.zeros(len(chunk.rows)))

    chunks = list(
        replay(builder.view(), 0, kernels=compiled(), options=CRC, workers=2, prepare=prepare)
    )

    assert all(chunk.items is not None for chunk in chunks)


def test_leaving_early_leaves_no_threads_behind() -> None:
    chunks = replay(built().view(), 0, kernels=compiled(), options=CRC, workers=2)

    next(chunks)
    chunks.close()  # type: ignore[attr-defined]

    assert list(chunks) == []


def test_plain_kernels_get_one_thread_for_they_hold_the_interpreter() -> None:
    assert worker_count(plain(), 8) == 1
    assert worker_count(compiled(), 8) == 8
