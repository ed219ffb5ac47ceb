"""Consume queues against a plain model: a dict of lists."""

import logging
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import NoSpaceError
from orbitmq.format.cq_unit import PADDING, UNIT_BYTES, CqUnit, decode_units
from orbitmq.store.queues import consume_queue
from orbitmq.testing.fake_disk import FaultyDisk
from orbitmq.units import PAGE_BYTES
from queue_world import SegmentsLog, World, make_world, packed, small_layout


def _world(root: Path, disk: FaultyDisk | None = None, **sizes: int) -> World:
    return make_world(small_layout(root, **sizes), SegmentsLog([], 0), disk=disk)


def _units(world: World, number: int) -> list[CqUnit]:
    queues, found = world.queues, []
    position = queues.min_offset(number)
    while position < queues.next_offset(number):
        block = decode_units(queues.read_units(number, position, 1000))
        assert block
        found += block
        position += len(block)
    return found


def _unit(log_offset: int, size: int) -> CqUnit:
    return CqUnit(log_offset, size, log_offset + 1)


@pytest.mark.feature("F11", "F12", "F13")
def test_unit_n_lies_at_byte_20n_in_files_of_fixed_size_named_by_their_first_byte(
    tmp_path: Path,
) -> None:
    world = _world(tmp_path)
    number = world.queues.add("T", 3)

    world.queues.apply(packed([(number, n, n * 100, 50) for n in range(25)]))
    world.queues.write_out(thorough=True)

    directory = tmp_path / "consumequeue" / "T" / "3"
    files = sorted(directory.iterdir())
    assert [file.name for file in files] == [f"{base:020d}" for base in (0, 200, 400)]
    assert {file.stat().st_size for file in files} == {200}
    joined = b"".join(file.read_bytes() for file in files)
    assert decode_units(joined[: 25 * UNIT_BYTES]) == [_unit(n * 100, 50) for n in range(25)]
    assert joined[25 * UNIT_BYTES :] == bytes(5 * UNIT_BYTES)


def test_units_are_readable_before_and_after_they_are_written_and_up_to_the_end_of_one_file(
    tmp_path: Path,
) -> None:
    queues = _world(tmp_path).queues
    number = queues.add("T", 0)
    queues.apply(packed([(number, n, n * 100, 50) for n in range(4)]))
    queues.write_out(thorough=True)
    queues.apply(packed([(number, n, n * 100, 50) for n in range(4, 14)]))

    assert decode_units(queues.read_units(number, 2, 5)) == [
        _unit(n * 100, 50) for n in range(2, 7)
    ]
    assert len(decode_units(queues.read_units(number, 2, 100))) == 8
    assert len(decode_units(queues.read_units(number, 10, 100))) == 4
    assert queues.read_units(number, 14, 1) == b""


@pytest.mark.feature("F17")
def test_units_of_records_that_were_handed_over_before_are_left_out(tmp_path: Path) -> None:
    queues = _world(tmp_path).queues
    number = queues.add("T", 0)
    queues.apply(packed([(number, n, n * 100, 50) for n in range(4)]))

    queues.apply(packed([(number, n, n * 100, 50) for n in range(2, 6)]))
    queues.apply(packed([(number, n, n * 100, 50) for n in range(6)]))

    assert queues.next_offset(number) == 6
    assert queues.end_log_offset(number) == 550
    assert queues.counts.conflicts == 0


@pytest.mark.feature("F18")
def test_a_queue_that_starts_at_a_later_offset_is_padded_from_the_start_of_its_file(
    tmp_path: Path,
) -> None:
    queues = _world(tmp_path).queues
    number = queues.add("T", 0)

    queues.apply(packed([(number, 7, 1000, 50), (number, 8, 1100, 50)]))
    queues.write_out(thorough=True)

    data = (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").read_bytes()
    assert data[: 7 * UNIT_BYTES] == PADDING * 7
    assert queues.min_offset(number) == 7
    assert queues.next_offset(number) == 9
    assert queues.read_units(number, 6, 1) == b""


def test_a_queue_that_starts_far_behind_begins_with_the_file_of_its_first_unit(
    tmp_path: Path,
) -> None:
    queues = _world(tmp_path).queues
    number = queues.add("T", 0)

    queues.apply(packed([(number, 1_000_000_003, 1000, 50)]))
    queues.write_out(thorough=True)

    (file,) = (tmp_path / "consumequeue" / "T" / "0").iterdir()
    assert int(file.name) == 1_000_000_000 * UNIT_BYTES
    assert file.read_bytes()[: 3 * UNIT_BYTES] == PADDING * 3


@pytest.mark.feature("F19")
def test_a_gap_in_the_queue_offsets_is_reported_and_later_units_keep_their_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queues = _world(tmp_path).queues
    number = queues.add("T", 0)

    with caplog.at_level(logging.WARNING):
        queues.apply(packed([(number, 0, 0, 50), (number, 3, 300, 50)]))

    assert "T/0" in caplog.text
    assert "1 to 2 are missing" in caplog.text
    assert decode_units(queues.read_units(number, 3, 1)) == [_unit(300, 50)]
    assert all(unit.is_padding for unit in decode_units(queues.read_units(number, 1, 2)))
    assert queues.counts.gaps == 2


def test_a_queue_offset_that_is_taken_keeps_its_first_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queues = _world(tmp_path).queues
    number = queues.add("T", 0)
    queues.apply(packed([(number, 0, 0, 50), (number, 1, 100, 50)]))

    with caplog.at_level(logging.ERROR):
        queues.apply(packed([(number, 0, 200, 50), (number, 1, 300, 50), (number, 2, 400, 50)]))

    assert [unit.log_offset for unit in _units_of(queues, number)] == [0, 100, 400]
    assert queues.counts.conflicts == 2
    assert "that another record has" in caplog.text


def _units_of(queues: consume_queue.ConsumeQueues, number: int) -> list[CqUnit]:
    return decode_units(queues.read_units(number, 0, 1000))


def test_an_absurd_queue_offset_is_left_out_instead_of_filling_the_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queues = _world(tmp_path).queues
    number = queues.add("T", 0)
    queues.apply(packed([(number, 0, 0, 50)]))

    with caplog.at_level(logging.ERROR):
        queues.apply(packed([(number, 2**60, 100, 50)]))
        queues.apply(packed([(number, 1, 200, 50)]))

    assert queues.next_offset(number) == 2
    assert queues.counts.refused == 1


def test_little_of_many_queues_stays_in_memory_and_much_of_one_is_written(tmp_path: Path) -> None:
    queues = _world(tmp_path, cq_file_bytes=20_000).queues
    numbers = [queues.add("T", queue_id) for queue_id in range(50)]
    queues.apply(packed([(number, 0, number * 100, 50) for number in numbers]))
    queues.spill()
    assert not (tmp_path / "consumequeue").exists()

    busy = numbers[7]
    queues.apply(packed([(busy, n, 10_000 + n * 100, 50) for n in range(1, 300)]))
    queues.spill()

    written = [
        path.parent.name for path in (tmp_path / "consumequeue").rglob("0*") if path.is_file()
    ]
    assert written == ["7"]
    assert queues._pending_bytes == 49 * UNIT_BYTES


def test_everything_is_written_when_all_queues_together_have_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_queue, "PENDING_BYTES_ALL", 500)
    queues = _world(tmp_path).queues
    numbers = [queues.add("T", queue_id) for queue_id in range(30)]

    queues.apply(packed([(number, 0, number * 100, 50) for number in numbers]))
    queues.spill()

    assert queues._pending_bytes == 0


def test_after_a_failed_write_nothing_is_lost_and_the_next_try_goes_on(tmp_path: Path) -> None:
    disk = FaultyDisk()
    queues = _world(tmp_path, disk).queues
    numbers = [queues.add("T", queue_id) for queue_id in range(3)]
    queues.apply(packed([(no, n, no * 10_000 + n * 100, 50) for no in numbers for n in range(12)]))
    import errno

    disk.fail("write_at", "*/T/1/*", errno.ENOSPC)
    with pytest.raises(NoSpaceError):
        queues.write_out(thorough=True)

    assert all(len(queues.read_units(number, 0, 12)) == 10 * UNIT_BYTES for number in numbers)
    queues.write_out(thorough=True)
    assert queues._pending_bytes == 0
    for number in numbers:
        expected = [_unit(number * 10_000 + n * 100, 50) for n in range(12)]
        files = sorted((tmp_path / "consumequeue" / "T" / str(number)).iterdir())
        assert decode_units(b"".join(f.read_bytes() for f in files))[:12] == expected


@pytest.mark.feature("F32")
def test_a_queue_is_flushed_when_two_pages_are_dirty_or_its_file_is_full(tmp_path: Path) -> None:
    queues = _world(tmp_path, cq_file_bytes=20_000).queues
    slow, quick, full = (queues.add("T", queue_id) for queue_id in range(3))
    per_page = PAGE_BYTES // UNIT_BYTES + 1

    def grow(number: int, count: int) -> None:
        first = queues.next_offset(number)
        queues.apply(packed([(number, n, n * 100, 50) for n in range(first, first + count)]))

    grow(slow, per_page)  # crosses into the second page: one page more than flushed
    grow(quick, 2 * per_page)
    grow(full, 1001)
    assert queues.flush(2) == 2
    assert [int(queues.state.flushed[no]) for no in (slow, quick, full)] == [0, 2 * per_page, 1000]

    assert queues.flush(2) == 0
    grow(slow, per_page)
    assert queues.flush(2) == 1
    assert queues.state.flushed[slow] == 2 * per_page

    queues.flush(0)
    assert [int(queues.state.flushed[no]) for no in (slow, quick, full)] == [410, 410, 1001]


def test_other_kernels_keep_the_numbers_of_the_queues(tmp_path: Path) -> None:
    from orbitmq.format import kernels

    world = _world(tmp_path)
    numbers = [world.queues.add(f"T{queue_id % 3}", queue_id) for queue_id in range(10)]

    world.dispatcher.use(kernels.compiled())

    assert [world.queues.names.table.find(f"T{n % 3}".encode(), n) for n in range(10)] == numbers
    assert world.queues.add("T9", 1) == 10


@st.composite
def _operations(draw: st.DrawFn) -> list[tuple[str, object]]:
    steps: list[tuple[str, object]] = []
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["apply", "apply", "again", "write", "spill"]))
        batch = [
            (draw(st.integers(0, 4)), draw(st.integers(1, 9)))
            for _ in range(draw(st.integers(1, 6)))
        ]
        steps.append((kind, batch))
    return steps


@settings(max_examples=60, deadline=None)
@given(steps=_operations(), start=st.integers(0, 25))
def test_queues_behave_like_a_dict_of_lists(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, object]], start: int
) -> None:
    world = _world(tmp_path_factory.mktemp("queues"))
    model: dict[int, list[tuple[int, int]]] = {}
    done: list[tuple[int, int, int, int]] = []
    end = 0

    for kind, batch in steps:
        units: list[tuple[int, int, int, int]] = []
        if kind in ("apply", "again"):
            assert isinstance(batch, list)
            for queue_id, count in batch:
                number = world.queues.add("T", queue_id)
                units_of = model.setdefault(number, [])
                for _ in range(count):
                    units.append((number, start + len(units_of), end, 10))
                    units_of.append((end, 10))
                    end += 10
            world.queues.apply(packed([*done[-20:], *units] if kind == "again" else units))
            done += units
        elif kind == "write":
            world.queues.write_out(thorough=True)
        else:
            world.queues.spill()

    for number, expected in model.items():
        assert world.queues.min_offset(number) == (start if expected else 0)
        assert world.queues.next_offset(number) == start + len(expected)
        assert [(unit.log_offset, unit.size) for unit in _units(world, number)] == expected


def test_a_topic_that_is_no_file_name_gets_no_queue(tmp_path: Path) -> None:
    names = _world(tmp_path).queues.names

    number = names.add_raw(b"../../etc", 0)
    other = names.add_raw(b"\xff\xfe", 0)

    assert names.find("../../etc", 0) == -1
    assert names.kind(number) == names.kind(other) == 2
    assert not names.all_simple


def test_min_and_next_are_zero_for_a_queue_without_units(tmp_path: Path) -> None:
    queues = _world(tmp_path).queues
    number = queues.add("T", 0)

    assert (queues.min_offset(number), queues.next_offset(number)) == (0, 0)
    assert np.array_equal(queues.capture().next, [0])
