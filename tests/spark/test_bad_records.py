"""Places without a valid record: the read fails with one sentence, leaves them out, or shows them."""

import logging
from pathlib import Path

import pytest

import golden_stores
from log_builder import LogBuilder, write_log
from orbitmq.errors import CorruptRecordError, NotAStoreError
from orbitmq.spark.source.metrics import read_metrics
from spark.reading_world import Row, read_rows, read_table

LOG_DAMAGE = {"flip-early": 1, "flip-late": 1, "flip-late-clean": 1, "blank-lost": 0}
"""Variants of `crashed` that damage the log before its end, and how many of its records they break."""
TAIL_DAMAGE = {"tail-half": 1, "tail-size-only": 1, "tail-mid-file": 2, "flip-last": 1}
"""Variants that tear its end, and how many records that costs. Where only properties are torn nothing is
lost: the Java store, and ours after it, keep such a record."""


def _damaged(variant: str, tmp_path: Path) -> Path:
    return golden_stores.damage(golden_stores.unpack("crashed", tmp_path), variant)


def _places(root: Path, **options: object) -> list[Row]:
    """Read all columns; return two of them."""
    rows: list[Row] = read_table(root, **options).select(["log_offset", "error"]).to_pylist()
    return rows


def _offsets(rows: list[Row]) -> list[int]:
    return [row["log_offset"] for row in rows if row["error"] is None]


@pytest.mark.parametrize("variant", ["flip-early", "flip-late"])
def test_a_bad_record_fails_the_read_with_file_position_and_next_step(
    variant: str, tmp_path: Path
) -> None:
    root = _damaged(variant, tmp_path)

    with pytest.raises(CorruptRecordError) as caught:
        read_rows(root)

    segment, position = divmod(golden_stores.torn_variant(variant)["record"], 65536)
    file = root / "commitlog" / f"{segment * 65536:020d}"
    assert str(caught.value).startswith(f"{file}: position {position}: the body does not match")
    assert "badRecords=skip" in caught.value.next_step


@pytest.mark.feature("P1")
@pytest.mark.parametrize("variant", golden_stores.torn_variants())
def test_what_is_whole_is_read_whatever_is_damaged(variant: str, tmp_path: Path) -> None:
    root = _damaged(variant, tmp_path)
    records = [record["phyOffset"] for record in golden_stores.rows("crashed", "record")]

    skipped = _places(root, badRecords="skip", splitBytes=20_000)
    kept = _places(root, badRecords="keep")

    lost = set(records) - set(_offsets(skipped))
    assert _offsets(skipped) == _offsets(kept) == [at for at in records if at not in lost]
    assert len(lost) == LOG_DAMAGE.get(variant, TAIL_DAMAGE.get(variant, 0))
    errors = [row for row in kept if row["error"] is not None]
    if variant in LOG_DAMAGE:
        assert lost <= {row["log_offset"] for row in errors}
        assert len(errors) == 1
    elif variant not in TAIL_DAMAGE:
        assert not errors


def test_a_wrong_stored_offset_is_no_damage_to_the_message(tmp_path: Path) -> None:
    root = _damaged("bad-physical-offset", tmp_path)

    assert len(read_rows(root)) == len(golden_stores.rows("crashed", "record"))


@pytest.mark.parametrize("variant", TAIL_DAMAGE)
def test_a_torn_end_is_the_end_of_the_log(variant: str, tmp_path: Path) -> None:
    records = golden_stores.rows("crashed", "record")

    found = read_rows(_damaged(variant, tmp_path))

    assert _offsets(found) == [one["phyOffset"] for one in records][: -TAIL_DAMAGE[variant]]


def _holed_log(tmp_path: Path) -> tuple[LogBuilder, Path]:
    """Return a log of four segments of which the second is gone."""
    builder = LogBuilder(segment_bytes=1024)
    while len(builder.segments) < 4:
        builder.append()
    root = write_log(builder, tmp_path / "store")
    (root / "commitlog" / f"{1024:020d}").unlink()
    return builder, root


def test_a_hole_in_the_log_fails_the_read(tmp_path: Path) -> None:
    _, root = _holed_log(tmp_path)

    with pytest.raises(NotAStoreError, match="the log from 1024 to 2048 is missing"):
        read_rows(root)


def test_a_hole_in_the_log_is_left_out_or_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    builder, root = _holed_log(tmp_path)
    there = [one.start for one in builder.records if not 1024 <= one.start < 2048]

    skipped = read_rows(root, badRecords="skip")
    kept = read_rows(root, badRecords="keep")

    assert _offsets(skipped) == _offsets(kept) == there
    (hole,) = [row for row in kept if row["error"] is not None]
    assert (hole["log_offset"], hole["size"]) == (1024, 1024)
    assert "no file" in hole["error"]
    assert "from 1024 to 2048 is missing" in caplog.text


def test_a_hole_outside_of_the_range_does_not_matter(tmp_path: Path) -> None:
    builder, root = _holed_log(tmp_path)

    found = read_rows(root, startOffset=2048)

    assert _offsets(found) == [one.start for one in builder.records if one.start >= 2048]


def test_skipped_records_are_counted_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    builder = LogBuilder(segment_bytes=8192)
    records = [builder.append(body=b"x" * 50) for _ in range(20)]
    for number in (3, 4, 11):
        builder.flip(records[number].start + 90)
    root = write_log(builder, tmp_path / "store")

    with caplog.at_level(logging.WARNING):
        found = read_rows(root, badRecords="skip", metricsPath=tmp_path / "metrics")

    metrics = read_metrics(tmp_path / "metrics")
    assert len(found) == metrics.rows == 17
    assert metrics.bad_places == 3
    assert metrics.bad_bytes == 3 * len(records[0].raw)
    assert "skipped 3 bad places" in caplog.text


def test_only_bad_places_in_the_range_count(tmp_path: Path) -> None:
    builder = LogBuilder(segment_bytes=8192)
    records = [builder.append(body=b"x" * 50) for _ in range(20)]
    builder.overwrite(records[5].start, bytes(20))
    root = write_log(builder, tmp_path / "store")

    assert len(read_rows(root, startOffset=records[6].start)) == 14
    assert len(read_rows(root, endOffset=records[5].start)) == 5
    with pytest.raises(CorruptRecordError):
        read_rows(root, startOffset=records[5].start)
    # Who knows whether the record that was there had this topic?
    with pytest.raises(CorruptRecordError):
        read_rows(root, topics="Other")


def test_bad_bodies_of_other_topics_do_not_fail_the_read(tmp_path: Path) -> None:
    builder = LogBuilder(segment_bytes=8192)
    for topic in ("A", "B", "A"):
        builder.append(topic=topic)
    builder.flip(builder.records[1].start + 90)
    root = write_log(builder, tmp_path / "store")

    assert len(read_rows(root, topics="A")) == 2
    with pytest.raises(CorruptRecordError):
        read_rows(root, topics="B")
