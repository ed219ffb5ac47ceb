"""The plan of a log that is being written: what a listing missed, what is not yet whole."""

from dataclasses import replace
from pathlib import Path

import pytest

from log_builder import LogBuilder, write_log
from orbitmq.format import checkpoint as checkpoint_format
from orbitmq.log_read import Segment, plan_log
from orbitmq.log_read import plan as plan_module
from orbitmq.log_read import reader as reader_module
from orbitmq.message import AppendRequest
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore


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


def test_the_zeros_behind_a_closed_log_are_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(StoreConfig(root=tmp_path), background=False) as store:
        store.append_many([AppendRequest("Orders", 0, b"hello")] * 100)
        end = store.max_log_offset
    searched: list[int] = []

    def find_record(_segment: Segment, start: int, *_rest: object) -> None:
        searched.append(start)

    monkeypatch.setattr(reader_module, "find_record", find_record)
    assert (plan_log(tmp_path).end, searched) == (end, [])

    (tmp_path / "abort").touch()  # it was not closed
    assert (plan_log(tmp_path).end, searched) == (end, [end + 1])


def test_what_another_broker_added_to_a_closed_log_belongs_to_it(tmp_path: Path) -> None:
    with MessageStore.open(StoreConfig(root=tmp_path), background=False) as store:
        store.append_many([AppendRequest("Orders", 0, b"hello")] * 100)
    checkpoint = (tmp_path / "checkpoint").read_bytes()
    with MessageStore.open(StoreConfig(root=tmp_path), background=False) as store:
        store.append_many([AppendRequest("Orders", 0, b"hello")])
        end = store.max_log_offset
    (tmp_path / "checkpoint").write_bytes(checkpoint)

    assert plan_log(tmp_path).end == end


@pytest.mark.parametrize("why", ["it was killed", "its queues were not written"])
def test_a_record_behind_a_hole_belongs_to_a_log_that_was_not_closed_there(
    tmp_path: Path, why: str
) -> None:
    with MessageStore.open(StoreConfig(root=tmp_path), background=False) as store:
        store.append_many([AppendRequest("Orders", 0, b"hello")] * 100)
    at_hole = (tmp_path / "checkpoint").read_bytes()
    with MessageStore.open(StoreConfig(root=tmp_path), background=False) as store:
        (lost,) = store.append_many([AppendRequest("Orders", 0, b"hello")])
        store.append_many([AppendRequest("Orders", 0, b"hello")])
        end = store.max_log_offset
    with next((tmp_path / "commitlog").iterdir()).open("r+b") as file:
        file.seek(lost.log_offset)
        file.write(bytes(lost.size))
    if why == "it was killed":
        (tmp_path / "abort").touch()
    else:
        known = checkpoint_format.decode(at_hole)
        assert known.extension is not None
        at_hole = checkpoint_format.encode(
            replace(known, extension=replace(known.extension, log_end=end))
        )
    (tmp_path / "checkpoint").write_bytes(at_hole)

    assert plan_log(tmp_path).end == end
