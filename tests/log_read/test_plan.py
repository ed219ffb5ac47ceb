"""The plan of a log that is being written: what a listing missed, what is not yet whole."""

from pathlib import Path

import pytest

from log_builder import LogBuilder, write_log
from orbitmq.log_read import plan as plan_module
from orbitmq.log_read import plan_log


@pytest.fixture
def built(tmp_path: Path) -> tuple[LogBuilder, Path]:
    builder = LogBuilder(segment_bytes=1024)
    while len(builder.segments) < 4:
        builder.append()
    return builder, write_log(builder, tmp_path / "store")


def test_a_file_that_a_listing_missed_is_no_gap(
    built: tuple[LogBuilder, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    builder, root = built
    whole, calls = plan_module.list_segments, []

    def first_misses_one(directories):
        calls.append(directories)
        files = whole(directories)
        return files if len(calls) > 1 else [file for file in files if file.base_offset != 1024]

    monkeypatch.setattr(plan_module, "list_segments", first_misses_one)
    plan = plan_log(root)

    assert len(calls) == 2
    assert plan.gaps == ()
    assert (len(plan.files), plan.end) == (4, builder.written)


def test_a_file_that_stays_away_is_a_gap(built: tuple[LogBuilder, Path]) -> None:
    _, root = built
    (root / "commitlog" / f"{1024:020d}").unlink()

    assert [(gap.start, gap.end) for gap in plan_log(root).gaps] == [(1024, 2048)]


def test_properties_that_are_being_written_are_waited_for(
    built: tuple[LogBuilder, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    builder, root = built
    last = root / "commitlog" / f"{3 * 1024:020d}"
    place = builder.written - 1 - 3 * 1024
    naps: list[float] = []

    def put(byte: bytes) -> None:
        with last.open("r+b") as file:
            file.seek(place)
            file.write(byte)

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            put(b"\x02")

    put(b"\0")
    monkeypatch.setattr(plan_module.time, "sleep", nap)
    plan = plan_log(root)

    assert plan.end == builder.written
    assert len(naps) == 3


def test_torn_properties_are_not_waited_for_for_ever(built: tuple[LogBuilder, Path]) -> None:
    builder, root = built
    builder.overwrite(builder.written - 1, b"\0")
    (root / "commitlog" / f"{3 * 1024:020d}").write_bytes(bytes(builder.segments[3]))

    assert plan_log(root).end == builder.written
