"""Rules of a check that must not depend on how the log and the queues are cut into pieces."""

from pathlib import Path

import pytest

from golden_stores import damage, settings, unpack
from log_builder import LogBuilder
from orbitmq.files.disk import Disk
from orbitmq.files.layout import StoreLayout
from orbitmq.files.positioned import FileCache
from orbitmq.format.cq_unit import UNIT
from orbitmq.format.kernels import plain
from orbitmq.store.config import StoreConfig
from orbitmq.store.queues.unit_files import stored_units
from orbitmq.store.store import MessageStore
from orbitmq.store.verify.check import check_store
from orbitmq.store.verify.expected_units import QueueOrder
from orbitmq.store.verify.findings import FINDINGS_PER_KIND_MAX, Findings, Kind
from orbitmq.store.verify.index import IndexTally
from orbitmq.store.verify.index_chains import check_index_file
from orbitmq.store.verify.stored_units import open_units
from orbitmq.store.verify.units import UnitComparison


def test_findings_come_by_kind_and_place_in_whatever_order_they_were_found() -> None:
    findings = Findings()
    findings.add(Kind.INDEX, "i", 4, "x")
    findings.add(Kind.QUEUE, "q", 9, "x")
    findings.add(Kind.QUEUE, "q", 5, "x")
    findings.add(Kind.FILE, "z", 0, "x")

    assert [(found.kind, found.position) for found in findings] == [
        (Kind.FILE, 0),
        (Kind.QUEUE, 5),
        (Kind.QUEUE, 9),
        (Kind.INDEX, 4),
    ]


def test_merged_findings_are_those_of_one_look() -> None:
    whole, merged = Findings(), Findings()
    parts = [Findings() for _ in range(3)]
    for number in reversed(range(5 * FINDINGS_PER_KIND_MAX)):
        whole.add(Kind.QUEUE, "f", number, "wrong")
        parts[number % 3].add(Kind.QUEUE, "f", number, "wrong")
    for part in parts:
        merged.merge(part)

    assert list(merged) == list(whole)
    assert [found.position for found in merged] == list(range(FINDINGS_PER_KIND_MAX))
    assert merged.left_out == whole.left_out == {Kind.QUEUE: 4 * FINDINGS_PER_KIND_MAX}
    assert len(merged) == FINDINGS_PER_KIND_MAX


@pytest.mark.parametrize("cut", [1, 3, 7, 40])
def test_a_run_that_repeats_offsets_is_noted_once_however_it_is_cut(cut: int) -> None:
    order = QueueOrder()
    assert order.take(100, 20) == (0, None)

    taken = [order.take(first, min(cut, 130 - first)) for first in range(90, 130, cut)]

    assert [odd for _, odd in taken if odd] == [
        "queue offset 90 is that of an earlier record of its queue"
    ]
    assert sum(repeated for repeated, _ in taken) == 30
    assert (order.first, order.next) == (100, 130)


def test_a_gap_in_queue_offsets_is_noted() -> None:
    order = QueueOrder()
    order.take(0, 5)

    assert order.take(8, 2) == (0, "queue offsets 5 to 7 have no record")
    assert order.take(10, 2) == (0, None)


@pytest.mark.parametrize("cut", [1, 7, 100])
def test_wrong_units_that_follow_one_another_make_one_finding_per_file(
    cut: int, tmp_path: Path
) -> None:
    layout = StoreLayout(tmp_path, cq_file_bytes=50 * 20)
    units = [UNIT.pack(1000 * number, 100, 0) for number in range(100)]
    stored = [UNIT.pack(1000 * number + 1, 100, 0) for number in range(50)]
    directory = tmp_path / "consumequeue" / "T" / "0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes(b"".join(stored))
    (directory / f"{1000:020d}").write_bytes(bytes(1000))
    findings = Findings()

    with FileCache(Disk(), writable=False) as files:
        stored = open_units(layout, files, plain())
        comparison = UnitComparison(stored, findings, lag_from=99_000)
        for first in range(0, 100, cut):
            data = b"".join(units[first : first + cut])
            comparison.compare(("T", 0), first, data)
        comparison.finish()

    assert [found.cause for found in findings] == [
        "T/0: units 0 to 49: points at log offset 1, the message lies at 0",
        "T/0: units 50 to 98: missing, the message lies at log offset 50000",
    ]
    assert findings.lagging == 1


def test_tallies_of_the_index_add_up() -> None:
    tally = IndexTally()
    for first, item in ((900, 12), (500, 40), (700, 3)):
        part = IndexTally(lagging=1)
        part.add_missing(2, first)
        part.add_entries(0, "fault", item, 2)
        tally.merge(part)
    tally.merge(IndexTally())

    assert (tally.lagging, tally.missing, tally.first_missing) == (3, 6, 500)
    assert tally.entries == {(0, "fault"): (3, 6)}


def test_records_behind_a_lost_blank_are_compared_too(tmp_path: Path) -> None:
    root = damage(unpack("crashed", tmp_path), "blank-lost")
    assert [f.kind for f in check_store(root, settings("crashed")).findings] == [Kind.BLANK]
    for path in root.glob("consumequeue/*/*/*"):  # the last message lies behind the blank
        data = path.read_bytes()
        at = data.find((1703936).to_bytes(8, "big"))
        if at >= 0:
            path.write_bytes(data[: at + 8] + b"\0\0\0\1" + data[at + 12 :])

    found = check_store(root, settings("crashed")).findings

    assert [finding.kind for finding in found] == [Kind.BLANK, Kind.QUEUE]


def test_an_index_file_that_is_being_written_gets_a_second_look(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    path = sorted((root / "index").iterdir())[2]
    whole = path.read_bytes()
    torn = bytearray(whole)
    torn[40:60] = bytes(20)  # slots that were not written yet
    path.write_bytes(torn)
    layout = StoreLayout(root, index_slots=500, index_items=400)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        path.write_bytes(whole)

    facts, findings = check_index_file(path, layout, plain(), live=True, sleep=wait)

    assert facts is not None
    assert len(findings) == 0
    assert len(waits) == 1
    path.write_bytes(torn)
    assert len(check_index_file(path, layout, plain(), live=False)[1])
    assert len(check_index_file(path, layout, plain(), live=True, sleep=waits.append)[1])


@pytest.mark.parametrize("topic", ["T", "%RETRY%g"])
def test_a_check_expects_light_messages_where_the_engine_puts_them(
    topic: str, tmp_path: Path
) -> None:
    builder = LogBuilder(segment_bytes=8192)
    names = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0"}
    builder.append(topic, 0, **names)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(builder.segments[0])
    given = {
        "enableMultiDispatch": "true",
        "mappedFileSizeCommitLog": "8192",
        "mappedFileSizeConsumeQueue": "400",
        "maxHashSlotNum": "50",
    }
    with MessageStore.open(StoreConfig.from_settings(tmp_path, given), background=False) as store:
        assert store.max_offset("%LMQ%a", 0) == (1 if topic == "T" else 0)

    assert check_store(tmp_path, given).findings == ()


@pytest.mark.parametrize("first", [0, 3, 700, 1499])
def test_units_around_the_holes_of_a_file_are_read(first: int, tmp_path: Path) -> None:
    unit = UNIT.pack(12345, 100, 7)
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.truncate(2000 * 20)
        file.seek(first * 20)
        file.write(unit)
        file.seek(1500 * 20)
        file.write(unit)

    for start, end in ((0, 2000), (first, first + 1), (first + 1, 1500), (1501, 2000)):
        found = {
            position // 20 + index
            for position, units in stored_units(str(path), start * 20, end * 20)
            for index in (units["size"] != 0).nonzero()[0].tolist()
        }
        assert found == {number for number in (first, 1500) if start <= number < end}
    assert list(stored_units(str(tmp_path / "none"), 0, 400)) == []
