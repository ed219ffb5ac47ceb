"""A split read through a window: the records and bad places of a mapped one, whatever the window cuts."""

import os
from pathlib import Path

import pytest

import golden_stores
from log_builder import LogBuilder, append_with_fakes, write_log
from orbitmq.errors import StoreIOError
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import compiled
from orbitmq.log_read import (
    BadPlace,
    Segment,
    Split,
    cut,
    open_segment,
    plan_log,
    read_split,
    read_windows,
)
from orbitmq.log_read import windows as windows_module

Read = tuple[list[tuple[int, bytes]], list[tuple[int, int, str]]]
WINDOWS = (64, 700, 5_000, 1 << 20)


def _bytes(buffer, rows) -> list[tuple[int, bytes]]:
    """Return each record's offset and its bytes from the body on, by what the rows say."""
    ends = rows["properties_at"] + rows["properties_length"]
    spans = zip(rows["log_offset"].tolist(), rows["body_at"].tolist(), ends.tolist(), strict=True)
    return [(offset, buffer[at:end].tobytes()) for offset, at, end in spans]


def _mapped(split: Split, segment: Segment) -> Read:
    found, bad = [], list[BadPlace]()
    for chunk in read_split(split, segment, compiled(), ScanOptions(), bad.append):
        found += _bytes(chunk.buffer, chunk.rows)
    return found, [(place.log_offset, place.position, place.reason) for place in bad]


def _windowed(split: Split, segment: Segment) -> Read:
    found, bad = [], list[BadPlace]()
    for window in read_windows(split, segment, compiled(), ScanOptions(), bad.append):
        found += _bytes(window.buffer, window.rows)
        assert window.rows["log_offset"][0] >= window.log_offset
    return found, [(place.log_offset, place.position, place.reason) for place in bad]


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Split, Segment]:
    """Return the first split of a log, several windows long, and its segment."""
    (split, *_) = cut(plan_log(write_log(_log(), tmp_path / "store")))
    monkeypatch.setattr(windows_module, "WINDOW_BYTES", 5_000)
    return split, open_segment(split.path, split.base_offset)


def _log() -> LogBuilder:
    builder = LogBuilder(segment_bytes=1 << 15)
    while len(builder.segments) < 3:
        append_with_fakes(builder, 3)
        builder.append(body=b"")
        builder.append(body=b"y" * 900, KEYS="a b")
    return builder


@pytest.mark.feature("P1")
@pytest.mark.parametrize("split_bytes", [900, 7_000, 1 << 20])
@pytest.mark.parametrize("window_bytes", WINDOWS)
def test_windows_have_the_records_of_the_mapping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window_bytes: int, split_bytes: int
) -> None:
    builder = _log()
    plan = plan_log(write_log(builder, tmp_path / "store"))
    monkeypatch.setattr(windows_module, "WINDOW_BYTES", window_bytes)

    found: list[int] = []
    for split in cut(plan, split_bytes):
        segment = open_segment(split.path, split.base_offset)
        windowed = _windowed(split, segment)
        assert windowed == _mapped(split, segment)
        found += [offset for offset, _ in windowed[0]]

    assert found == [placed.start for placed in builder.records]


@pytest.mark.feature("P1")
@pytest.mark.parametrize("variant", golden_stores.torn_variants())
def test_a_damaged_store_has_the_same_bad_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str
) -> None:
    root = golden_stores.damage(golden_stores.unpack("crashed", tmp_path), variant)
    plan = plan_log(root, golden_stores.settings("crashed"))

    for split in cut(plan, 20_000):
        segment = open_segment(split.path, split.base_offset)
        expected = _mapped(split, segment)
        for window_bytes in WINDOWS:
            monkeypatch.setattr(windows_module, "WINDOW_BYTES", window_bytes)
            assert _windowed(split, segment) == expected, window_bytes


def test_no_window_shows_what_lies_behind_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = LogBuilder(segment_bytes=1 << 15)
    for _ in range(20):
        builder.append(body=b"y" * 900)
    (split,) = cut(plan_log(write_log(builder, tmp_path / "store")))
    segment = open_segment(split.path, split.base_offset)
    monkeypatch.setattr(windows_module, "WINDOW_BYTES", 5_000)

    for less in (1, 500, 2_000):
        shorter = split._replace(limit=split.limit - less, end=split.end - less)
        assert _windowed(shorter, segment) == _mapped(shorter, segment)


def test_a_split_is_read_from_the_file_and_not_from_its_mapping(
    first: tuple[Split, Segment],
) -> None:
    split, segment = first
    for window in read_windows(split, segment, compiled(), ScanOptions(), pytest.fail):
        if window.log_offset > split.start:
            assert len(window.buffer) <= 5_000
            return
    pytest.fail("there is one window only")


def test_a_segment_that_is_deleted_meanwhile_is_read_from_its_mapping(
    first: tuple[Split, Segment],
) -> None:
    expected = _mapped(*first)
    Path(first[0].path).unlink()

    assert _windowed(*first) == expected


def test_a_disk_that_fails_is_told_with_the_file(
    first: tuple[Split, Segment], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_given: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", fails)
    with pytest.raises(StoreIOError, match=Path(first[0].path).name):
        _windowed(*first)
