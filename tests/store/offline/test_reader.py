"""Reading a store directory without the engine: what counts as the log, and what does not."""

import os
import resource
from pathlib import Path

import pytest

from golden_stores import settings, unpack
from orbitmq.errors import CorruptRecordError, NotAStoreError
from orbitmq.format.cq_unit import CqUnit
from orbitmq.format.record import encode_blank, encode_record
from orbitmq.message import AppendRequest, Host
from orbitmq.store.offline.reader import OfflineStore, Selection
from orbitmq.units import GiB, KiB

SEGMENT_BYTES = 64 * KiB
PAGE_BYTES = resource.getpagesize()
STORE_HOST = Host(b"\x7f\x00\x00\x01", 10911)


class LogBuilder:
    """Writes segments by hand, good and bad."""

    def __init__(self, root: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.root, self.segment_bytes = root, segment_bytes
        (root / "commitlog").mkdir(parents=True)
        self.offset = 0
        self.offsets: list[int] = []
        self.next_queue_offset = 0

    def segment(self, base: int) -> Path:
        return self.root / "commitlog" / f"{base:020d}"

    def write(self, data: bytes) -> None:
        base = self.offset // self.segment_bytes * self.segment_bytes
        path = self.segment(base)
        path.touch()
        os.truncate(path, self.segment_bytes)
        with path.open("r+b") as file:
            file.seek(self.offset - base)
            file.write(data)
        self.offset += len(data)

    def record(self, store_ms: int, body: bytes = b"hello") -> bytes:
        raw = encode_record(
            AppendRequest(topic="t", queue_id=0, body=body, properties=b"KEYS\x01k\x02"),
            log_offset=self.offset,
            queue_offset=self.next_queue_offset,
            store_ms=store_ms,
            store_host=STORE_HOST,
        )
        self.next_queue_offset += 1
        return raw

    def append(self, store_ms: int, count: int = 1) -> None:
        for _ in range(count):
            self.offsets.append(self.offset)
            self.write(self.record(store_ms))

    def roll(self) -> None:
        rest = self.segment_bytes - self.offset % self.segment_bytes
        self.write(encode_blank(rest))
        self.offset += rest - 8


@pytest.fixture
def log(tmp_path):
    return LogBuilder(tmp_path)


def read_offsets(root: Path, **selection) -> list[int]:
    return [found.log_offset for found in OfflineStore(root).iter_records(Selection(**selection))]


def test_records_are_read_across_segments(log):
    log.append(1_000, 3)
    log.roll()
    log.append(2_000, 3)

    assert read_offsets(log.root) == log.offsets


def test_records_of_an_earlier_life_are_not_part_of_the_log(log):
    log.append(5_000, 3)
    end = log.offset
    log.write(bytes(4))  # the log was cut here once and written again, but not so far
    for _ in range(3):
        log.write(log.record(store_ms=4_000))

    store = OfflineStore(log.root)

    assert [found.log_offset for found in store.iter_records(Selection())] == log.offsets
    assert store.bad_places == []
    assert end == log.offsets[-1] + len(log.record(0))


def test_damage_between_records_is_passed_over_and_noted(log):
    log.append(1_000, 2)
    bad_at = log.offset
    log.write(b"\xff" * 77)
    log.append(1_001, 2)
    said: list[str] = []

    store = OfflineStore(log.root, say=said.append)

    assert [found.log_offset for found in store.iter_records(Selection())] == log.offsets
    (place,) = store.bad_places
    assert (place.position, place.length) == (bad_at, 77)
    assert "store check" in said[0]


def test_a_missing_segment_does_not_hide_the_next_one(log):
    for _ in range(4):
        log.append(1_000, 2)
        log.roll()
    log.segment(SEGMENT_BYTES).unlink()
    said: list[str] = []

    store = OfflineStore(log.root, say=said.append)

    found = [found.log_offset for found in store.iter_records(Selection())]
    assert found == [o for o in log.offsets if not SEGMENT_BYTES <= o < 2 * SEGMENT_BYTES]
    assert any("is missing" in text for text in said)


def test_a_fresh_segment_of_a_gigabyte_is_not_read_to_its_end(tmp_path):
    log = LogBuilder(tmp_path, segment_bytes=1 * GiB)
    log.append(1_000, 3)

    read_offsets(log.root)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    found = read_offsets(log.root)
    touched = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    assert found == log.offsets
    assert touched < GiB // PAGE_BYTES // 64, "pages are mapped 16 at a time"


def test_a_clock_that_was_set_back_hides_nothing(log):
    log.append(10_000_000, 2)
    log.roll()
    log.append(9_000_000, 2)  # a quarter of an hour back
    log.roll()
    log.append(10_500_000, 2)

    assert read_offsets(log.root, start_ms=9_500_000) == log.offsets[:2] + log.offsets[4:]
    assert read_offsets(log.root, end_ms=9_500_000) == log.offsets[2:4]


def test_a_start_inside_a_record_means_the_next_one(log):
    log.append(1_000, 3)

    assert read_offsets(log.root, start=log.offsets[1] + 1) == log.offsets[2:]


def test_a_damaged_record_is_told_from_no_record(log):
    log.append(1_000, 2)
    with log.segment(0).open("r+b") as file:
        file.seek(log.offsets[1] + 88)
        file.write(b"J")
    store = OfflineStore(log.root)

    assert store.record_at(log.offsets[0] + 1) is None
    with pytest.raises(CorruptRecordError, match="CRC"):
        store.record_at(log.offsets[1])


def test_a_record_behind_the_blank_of_a_segment_is_none(log):
    log.append(1_000, 3)
    stale = log.offset + 58
    log.roll()
    log.append(2_000, 1)
    request = AppendRequest(topic="t", queue_id=0, body=b"old", properties=b"")
    stored = {"log_offset": stale, "queue_offset": 9, "store_ms": 500, "store_host": STORE_HOST}
    with log.segment(0).open("r+b") as file:
        file.seek(stale)
        file.write(encode_record(request, **stored))

    store = OfflineStore(log.root)

    assert store.record_at(stale) is None
    assert [store.record_at(offset).log_offset for offset in log.offsets] == log.offsets


def test_a_unit_that_points_at_another_record_is_not_believed(log):
    log.append(1_000, 3)
    queue = log.root / "consumequeue" / "t" / "0" / f"{0:020d}"
    queue.parent.mkdir(parents=True)
    size = log.offsets[1]
    queue.write_bytes(
        b"".join(CqUnit(offset, size, 0).encode() for offset in reversed(log.offsets))
    )
    said: list[str] = []

    found = OfflineStore(log.root, say=said.append).by_queue_offset("t", 0, 2)

    assert found.log_offset == log.offsets[2]
    assert "read the log instead" in said[0]


def test_a_directory_without_a_log_is_no_store(tmp_path):
    with pytest.raises(NotAStoreError):
        OfflineStore(tmp_path)


def test_plain_and_compiled_kernels_read_the_same(tmp_path, monkeypatch):
    root = unpack("mixed", tmp_path)
    plain = list(OfflineStore(root, settings("mixed")).iter_records(Selection(topic="GoldAa")))

    monkeypatch.setattr("orbitmq.store.offline.reader._PLAIN_ROWS", 0)
    compiled = list(OfflineStore(root, settings("mixed")).iter_records(Selection(topic="GoldAa")))

    assert compiled == plain
