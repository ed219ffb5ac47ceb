"""Adopting queues: what is missing or wrong is put right, the rest stays untouched."""

from pathlib import Path

import pytest

from orbitmq.format.cq_ext_unit import ext_offset
from orbitmq.format.cq_unit import PADDING, CqUnit
from orbitmq.testing.builders import make_request
from queue_world import LogBuilder, World, make_world, small_layout, verify_all


def _log(count: int = 60, *, topic: str = "T") -> LogBuilder:
    requests = (make_request(n, topic, n % 2, body_bytes=20) for n in range(count))
    return LogBuilder(4096).add_all(requests)


def _store(root: Path, builder: LogBuilder, **options: bool) -> World:
    world = make_world(small_layout(root, segment_bytes=4096), builder.log(), **options)
    world.service.dispatch_now()
    world.write_all()
    return world


def _tree(root: Path) -> dict[str, bytes]:
    found = [path for path in (root / "consumequeue").rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def _adopt(root: Path, builder: LogBuilder, dropped: int = 0, **options: bool) -> World:
    log = builder.log()
    for _ in range(dropped):
        log.drop_first()
    world = make_world(small_layout(root, segment_bytes=4096), log, **options)
    world.report = verify_all(world)  # type: ignore[attr-defined]
    world.write_all()
    return world


def _file(root: Path, queue_id: int, base: int) -> Path:
    return root / "consumequeue" / "T" / str(queue_id) / f"{base:020d}"


def test_a_store_without_any_queue_gets_all_of_them(tmp_path: Path) -> None:
    builder = _log()
    _store(tmp_path / "made", builder)

    world = _adopt(tmp_path / "empty", builder)

    assert _tree(tmp_path / "empty") == _tree(tmp_path / "made")
    assert world.report.queues.missing == 60
    assert world.report.queues.wrong == 0


@pytest.mark.parametrize(
    ("damage", "missing", "wrong", "beyond"),
    [
        ("first file removed", 10, 0, 0),
        ("last file removed", 10, 0, 0),
        ("all files removed", 30, 0, 0),
        ("zero unit", 1, 0, 0),
        ("other size", 0, 1, 0),
        ("other tag", 0, 1, 0),
        ("last unit ahead", 0, 1, 0),
        ("units behind the last", 0, 0, 3),
        ("a whole file behind the last", 0, 0, 10),
        ("short file", 10, 0, 0),
    ],
)
def test_every_kind_of_damage_is_put_right_and_counted(
    tmp_path: Path, damage: str, missing: int, wrong: int, beyond: int
) -> None:
    builder = _log(60)
    expected = _store(tmp_path, builder)
    before = _tree(tmp_path)

    def overwrite(base: int, index: int, unit: bytes) -> None:
        path = _file(tmp_path, 1, base)
        data = path.read_bytes() if path.exists() else bytes(200)
        path.write_bytes(data[: index * 20] + unit + data[(index + len(unit) // 20) * 20 :])

    match damage:
        case "first file removed":
            _file(tmp_path, 1, 0).unlink()
        case "last file removed":
            _file(tmp_path, 1, 400).unlink()
        case "all files removed":
            for base in (0, 200, 400):
                _file(tmp_path, 1, base).unlink()
        case "zero unit":
            overwrite(200, 4, bytes(20))
        case "other size":
            overwrite(0, 3, CqUnit(builder.records[7][0], 99, 2598919).encode())
        case "other tag":
            overwrite(0, 3, CqUnit(builder.records[7][0], builder.records[7][1], 5).encode())
        case "last unit ahead":
            overwrite(400, 9, CqUnit(1 << 40, 100, 5).encode())
        case "units behind the last":
            overwrite(600, 0, CqUnit(1 << 40, 100, 5).encode() * 3)
        case "a whole file behind the last":
            overwrite(600, 0, CqUnit(1 << 40, 100, 5).encode() * 10)
        case "short file":
            _file(tmp_path, 1, 200).write_bytes(b"x" * 77)

    world = _adopt(tmp_path, builder)

    found = world.report.queues
    assert (found.missing, found.wrong, found.beyond) == (missing, wrong, beyond)
    assert _tree(tmp_path) == before
    for number in range(2):
        assert world.queues.next_offset(number) == expected.queues.next_offset(number)
        assert world.queues.end_log_offset(number) == expected.queues.end_log_offset(number)
    assert _adopt(tmp_path, builder).report.is_clean


def test_units_of_expired_records_before_the_first_live_one_are_kept(tmp_path: Path) -> None:
    builder = _log(60)
    _store(tmp_path, builder)
    before = _tree(tmp_path)

    world = _adopt(tmp_path, builder, dropped=1)

    first_live = next(n for n, record in enumerate(builder.records) if record[0] >= 4096)
    assert not world.report.queues.differences
    assert world.queues.min_offset(first_live % 2) == first_live // 2
    kept = {name: data for name, data in before.items() if name in _tree(tmp_path)}
    assert _tree(tmp_path) == kept


def test_wrong_units_before_the_first_live_one_become_padding(tmp_path: Path) -> None:
    builder = _log(60)
    world = _store(tmp_path, builder)
    first_live = next(n for n, record in enumerate(builder.records) if record[0] >= 4096) // 2 + 1
    file_first = first_live // 10 * 10
    path = _file(tmp_path, 1, file_first * 20)
    path.write_bytes(CqUnit(1 << 40, 100, 5).encode() + path.read_bytes()[20:])

    world = _adopt(tmp_path, builder, dropped=1)

    assert path.read_bytes()[:20] == PADDING
    assert world.report.queues.wrong == 1


def test_a_queue_of_expired_records_keeps_its_numbering(tmp_path: Path) -> None:
    builder = LogBuilder(4096)
    builder.add_all(make_request(n, "Old", 0, body_bytes=20) for n in range(12))
    builder.add_all(make_request(n, "T", 0, body_bytes=20) for n in range(40))
    _store(tmp_path, builder)
    before = _tree(tmp_path)

    world = _adopt(tmp_path, builder, dropped=1)

    number = world.queues.find("Old", 0)
    assert (world.queues.min_offset(number), world.queues.next_offset(number)) == (12, 12)
    assert {k: v for k, v in _tree(tmp_path).items() if "Old" in k}.items() <= before.items()
    assert world.report.is_clean


def test_a_queue_that_points_to_records_that_are_not_there_is_removed(tmp_path: Path) -> None:
    builder = _log(20)
    path = tmp_path / "consumequeue" / "Ghost" / "0" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(CqUnit(n * 100, 100, 0).encode() for n in range(10)))

    world = _adopt(tmp_path, builder)

    number = world.queues.find("Ghost", 0)
    assert world.queues.next_offset(number) == 0
    assert not path.exists()
    assert [d.beyond for d in world.report.queues.differences if d.topic == "Ghost"] == [10]


def test_queues_that_were_loaded_before_do_not_disturb(tmp_path: Path) -> None:
    builder = _log(40)
    world = _store(tmp_path, builder)

    report = verify_all(world)

    assert report.is_clean
    assert [world.queues.next_offset(number) for number in range(2)] == [20, 20]


def test_with_ext_files_units_keep_their_addresses_and_missing_ones_get_new_ones(
    tmp_path: Path,
) -> None:
    builder = _log(40)
    _store(tmp_path, builder, with_ext=True)
    before = _tree(tmp_path)
    assert _adopt(tmp_path, builder, with_ext=True).report.is_clean
    assert _tree(tmp_path) == before
    path = _file(tmp_path, 1, 200)
    path.write_bytes(path.read_bytes()[:100] + bytes(100))

    world = _adopt(tmp_path, builder, with_ext=True)

    assert world.report.queues.missing == 5
    assert world.ext is not None
    for offset in range(20):
        address = CqUnit._make(_unpack(world.queues.read_units(1, offset, 1))).tag_hash
        unit = world.ext.get(1, address)
        assert unit is not None
        assert unit.tag_hash == 2598919


def test_a_lost_ext_unit_is_not_that_of_another_record(tmp_path: Path) -> None:
    builder = _log(40)
    world = _store(tmp_path, builder, with_ext=True)
    assert world.ext is not None
    last = CqUnit._make(_unpack(world.queues.read_units(1, 19, 1)))
    lost = world.ext.get(1, last.tag_hash)
    path = max((tmp_path / "consumequeue_ext" / "T" / "1").iterdir())
    data = path.read_bytes()
    at = ext_offset(last.tag_hash) - int(path.name)
    path.write_bytes(data[:at].ljust(len(data), b"\0"))
    early = _file(tmp_path, 1, 0)
    data = early.read_bytes()
    early.write_bytes(data[:60] + CqUnit(7, 8, 9).encode() + data[80:])

    again = _adopt(tmp_path, builder, with_ext=True)

    assert again.report.queues.wrong == 2
    assert again.ext is not None
    unit = CqUnit._make(_unpack(again.queues.read_units(1, 19, 1)))
    assert again.ext.get(1, unit.tag_hash) == lost


def _unpack(data: bytes) -> tuple[int, ...]:
    import struct

    return struct.unpack(">qiq", data)
