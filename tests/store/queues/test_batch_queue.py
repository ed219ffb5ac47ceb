"""Queues of BatchCQ topics."""

from pathlib import Path

import pytest

from orbitmq.format.batch_unit import UNIT_BYTES, BatchUnit
from orbitmq.message import Boundary, GetStatus, Property, QueueType, SysFlag
from orbitmq.store.queues.time_search import batch_offset_by_time
from orbitmq.store.snapshot import capture, encode_capture
from orbitmq.testing.builders import make_request
from queue_world import LogBuilder, World, make_world, small_layout, verify_all

COUNTS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7]


def _log(counts: list[int] = COUNTS) -> LogBuilder:
    builder, base = LogBuilder(2048), 0
    for number, count in enumerate(counts):
        inner = {Property.INNER_NUM: str(count), Property.INNER_BASE: str(base)}
        flag = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
        request = make_request(
            number,
            "B",
            0,
            body_bytes=20,
            properties=inner if count > 1 else None,
            sys_flag=flag if count > 1 else 0,
        )
        builder.add(request)
        base += count
    return builder


def _world(root: Path, builder: LogBuilder, *, dispatch: bool = True) -> World:
    layout = small_layout(root, segment_bytes=2048)
    world = make_world(layout, builder.log(), topic_type=lambda _: QueueType.BATCH)
    if dispatch:
        world.service.dispatch_now()
    return world


@pytest.mark.feature("F31")
def test_a_batch_topic_has_46_byte_units_and_offsets_inside_a_batch_resolve(tmp_path: Path) -> None:
    builder = _log()
    world = _world(tmp_path, builder)
    number = world.batch_queues.find("B", 0)
    starts = [sum(COUNTS[:n]) for n in range(len(COUNTS))]

    for offset in range(sum(COUNTS)):
        (unit,) = world.batch_queues.read_units(number, offset, 1)
        assert unit.base_offset <= offset < unit.end_offset
        assert unit.base_offset in starts
        assert unit.log_offset == builder.records[starts.index(unit.base_offset)][0]
    world.write_all()

    files = sorted((tmp_path / "batchconsumequeue" / "B" / "0").iterdir())
    assert [int(file.name) for file in files] == [0, 5 * UNIT_BYTES, 10 * UNIT_BYTES]
    assert {file.stat().st_size for file in files} == {5 * UNIT_BYTES}
    assert not (tmp_path / "consumequeue").exists()
    assert world.batch_queues.min_offset(number) == 0
    assert world.batch_queues.next_offset(number) == sum(COUNTS)
    assert world.batch_queues.end_log_offset(number) == builder.records[-1][0]


def test_a_read_counts_inner_messages_and_returns_whole_batches(tmp_path: Path) -> None:
    builder = _log()
    world = _world(tmp_path, builder)

    result = world.reader.get("B", 0, 2, 6)

    assert result.status is GetStatus.FOUND
    assert result.queue_offsets == [0, 3]
    assert result.message_count == 4
    assert result.next_offset == 4


def test_a_record_that_was_handed_over_before_is_left_out(tmp_path: Path) -> None:
    world = _world(tmp_path, _log())
    number = world.batch_queues.find("B", 0)

    world.batch_queues.put(number, BatchUnit(0, 50, 0, 0, 0, 3))

    assert world.batch_queues.unit_range(number) == (0, len(COUNTS))


def test_queues_load_from_files_up_to_the_first_garbage(tmp_path: Path) -> None:
    builder = _log()
    world = _world(tmp_path, builder)
    world.write_all()
    path = tmp_path / "batchconsumequeue" / "B" / "0" / f"{10 * UNIT_BYTES:020d}"
    path.write_bytes(path.read_bytes()[: 4 * UNIT_BYTES] + b"\xff" * UNIT_BYTES)

    again = _world(tmp_path, builder, dispatch=False)
    again.batch_queues.load_files()

    number = again.batch_queues.find("B", 0)
    assert again.batch_queues.unit_range(number) == (0, len(COUNTS))
    assert again.batch_queues.next_offset(number) == sum(COUNTS)


def test_a_snapshot_brings_them_back(tmp_path: Path) -> None:
    from orbitmq.format.snapshot import decode

    builder = _log()
    world = _world(tmp_path, builder)
    world.write_all()
    data = encode_capture(capture(world.dispatcher, builder.end), world.queues.names, 1)

    again = _world(tmp_path, builder, dispatch=False)
    again.batch_queues.load_states(decode(data).queues)

    number = again.batch_queues.find("B", 0)
    assert again.batch_queues.check_states() == []
    assert again.batch_queues.unit_range(number) == (0, len(COUNTS))
    again.service.dispatch_now()
    assert again.batch_queues.unit_range(number) == (0, len(COUNTS))


def test_they_are_cut_at_the_start_of_the_log(tmp_path: Path) -> None:
    builder = _log()
    world = _world(tmp_path, builder)
    world.write_all()
    queues, number = world.batch_queues, world.batch_queues.find("B", 0)

    assert queues.delete_before(builder.records[6][0]) == 1

    assert queues.min_offset(number) == sum(COUNTS[:6])
    assert queues.unit_range(number) == (5, len(COUNTS))
    assert queues.read_units(number, 1, 1) == []
    (unit,) = queues.read_units(number, sum(COUNTS[:6]) + 1, 1)
    assert unit.log_offset == builder.records[6][0]


@pytest.mark.parametrize("damage", ["none", "missing file", "wrong unit", "beyond", "everything"])
def test_they_are_adopted_and_put_right(tmp_path: Path, damage: str) -> None:
    builder = _log()
    world = _world(tmp_path, builder)
    world.write_all()
    directory = tmp_path / "batchconsumequeue" / "B" / "0"
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    middle = directory / f"{5 * UNIT_BYTES:020d}"
    last = directory / f"{10 * UNIT_BYTES:020d}"
    ghost = BatchUnit(1 << 30, 10, 0, 5, 900, 1).encode()
    match damage:
        case "missing file":
            middle.unlink()
        case "wrong unit":
            middle.write_bytes(ghost + middle.read_bytes()[UNIT_BYTES:])
        case "beyond":
            last.write_bytes(last.read_bytes()[: 4 * UNIT_BYTES] + ghost)
        case "everything":
            for path in directory.iterdir():
                path.unlink()

    again = _world(tmp_path, builder, dispatch=False)
    report = verify_all(again)
    again.write_all()

    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert bool(report.batch_queues) == (damage != "none")
    number = again.batch_queues.find("B", 0)
    assert again.batch_queues.unit_range(number) == (0, len(COUNTS))
    assert again.batch_queues.min_offset(number) == 0


def test_units_of_expired_records_stay_when_adopted(tmp_path: Path) -> None:
    builder = _log()
    _world(tmp_path, builder).write_all()
    log = builder.log()
    log.drop_first()

    layout = small_layout(tmp_path, segment_bytes=2048)
    again = make_world(layout, log, topic_type=lambda _: QueueType.BATCH)
    report = verify_all(again)

    live = next(n for n, record in enumerate(builder.records) if record[0] >= 2048)
    number = again.batch_queues.find("B", 0)
    assert not report.batch_queues
    assert again.batch_queues.min_offset(number) == sum(COUNTS[:live])
    assert again.batch_queues.next_offset(number) == sum(COUNTS)


def test_a_search_by_time_finds_exact_hits(tmp_path: Path) -> None:
    world = _world(tmp_path, _log())
    number = world.batch_queues.find("B", 0)
    first_ms = 1_700_000_000_000

    for index in range(len(COUNTS)):
        for boundary in Boundary:
            found = batch_offset_by_time(world.batch_queues, number, first_ms + index, boundary)
            assert found == sum(COUNTS[:index])
    assert batch_offset_by_time(world.batch_queues, number, 0, Boundary.LOWER) == 0


def test_a_deleted_topic_starts_again(tmp_path: Path) -> None:
    from orbitmq.files.disk import Disk

    world = _world(tmp_path, _log())
    world.write_all()

    world.dispatcher.delete_topic("B", Disk())

    assert world.batch_queues.next_offset(world.batch_queues.find("B", 0)) == 0
    assert not (tmp_path / "batchconsumequeue" / "B" / "0").exists()
