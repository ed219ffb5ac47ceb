"""The plan of a log that is being written: what a listing missed, what is not yet whole."""

from dataclasses import replace
from pathlib import Path

import pytest

from log_builder import LogBuilder
from orbitmq.spark.source import splits
from orbitmq.spark.source.splits import plan_log, usual_split_bytes
from orbitmq.units import GiB, MiB
from spark.reading_world import write_log


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
    whole, calls = splits.list_segments, []

    def first_misses_one(directories):
        calls.append(directories)
        files = whole(directories)
        return files if len(calls) > 1 else [file for file in files if file.base_offset != 1024]

    monkeypatch.setattr(splits, "list_segments", first_misses_one)
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
    monkeypatch.setattr(splits.time, "sleep", nap)
    plan = plan_log(root)

    assert plan.end == builder.written
    assert len(naps) == 3


def test_torn_properties_are_not_waited_for_for_ever(built: tuple[LogBuilder, Path]) -> None:
    builder, root = built
    builder.overwrite(builder.written - 1, b"\0")
    (root / "commitlog" / f"{3 * 1024:020d}").write_bytes(bytes(builder.segments[3]))

    assert plan_log(root).end == builder.written


@pytest.mark.parametrize(
    ("log_bytes", "split_bytes"),
    [(0, 64 * MiB), (1 * GiB, 64 * MiB), (4 * GiB, 128 * MiB), (100 * GiB, 256 * MiB)],
)
def test_a_long_log_has_longer_splits(
    built: tuple[LogBuilder, Path], log_bytes: int, split_bytes: int
) -> None:
    plan = replace(plan_log(built[1]), end=log_bytes)

    assert usual_split_bytes(plan) == split_bytes
    assert usual_split_bytes(plan, 0, 2 * GiB) <= 64 * MiB
    assert usual_split_bytes(plan, log_bytes - 4 * GiB) == min(split_bytes, 128 * MiB)
