"""A check finds what is wrong, names it, and finds nothing in a good store."""

import os
import shutil
from pathlib import Path

import pytest

from golden_stores import settings, unpack
from orbitmq.errors import NotAStoreError, WrongFileError
from orbitmq.message import AppendRequest, SysFlag
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.store.verify.check import CheckReport, check_store
from orbitmq.store.verify.facts import is_open_elsewhere
from orbitmq.store.verify.findings import FINDINGS_PER_KIND_MAX, Findings, Kind

STORES = ["mixed", "cleaned", "ext", "batchcq", "propcrc", "timer", "indexroll", "crashed"]


def check(root: Path, store: str = "mixed") -> CheckReport:
    return check_store(root, settings(store))


def kinds(report: CheckReport) -> list[Kind]:
    return [finding.kind for finding in report.findings]


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


@pytest.mark.parametrize("store", STORES)
def test_a_store_of_a_real_broker_has_no_findings(store: str, tmp_path: Path) -> None:
    report = check(unpack(store, tmp_path), store)

    assert report.findings == ()
    assert report.is_sound
    assert report.lagging == 0


@pytest.mark.parametrize("store", STORES)
def test_a_check_changes_nothing(store: str, tmp_path: Path) -> None:
    root = unpack(store, tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    check(root, store)

    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_without_queues_and_index_there_is_one_finding_for_each(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")

    report = check(root)

    assert kinds(report) == [Kind.QUEUE, Kind.INDEX]
    assert [finding.path.name for finding in report.findings] == ["consumequeue", "index"]


def test_a_log_of_half_messages_alone_needs_no_queues(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "s", segment_bytes=65536, cq_file_bytes=2000)
    with MessageStore.open(config, background=False) as store:
        store.append(AppendRequest("T", 0, b"half", sys_flag=SysFlag.PREPARED.value))
        store.append(AppendRequest("T", 0, b"rolled back", sys_flag=SysFlag.ROLLBACK.value))
    assert not (config.root / "consumequeue").exists()

    assert check_store(config.root, {"mappedFileSizeConsumeQueue": "2000"}).findings == ()


def test_a_unit_too_many_is_found(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    queue = root / "consumequeue" / "GoldOrder" / "0"
    last = sorted(queue.iterdir())[-1]
    data = last.read_bytes()
    end = len(data.rstrip(b"\0")) // 20 * 20 + 20
    patch(last, end, data[:20])

    (finding,) = check(root).findings

    assert (finding.kind, finding.path, finding.position) == (Kind.QUEUE, last, end)


def test_a_unit_of_a_queue_that_no_record_has_is_found(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    stray = root / "consumequeue" / "Nobody" / "3" / f"{0:020d}"
    stray.parent.mkdir(parents=True)
    stray.write_bytes((root / "consumequeue" / "GoldAa" / "0" / stray.name).read_bytes())

    findings = check(root).findings

    assert {finding.path for finding in findings} == {stray}


def test_a_wrong_entry_of_the_index_is_found_from_both_sides(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    file = sorted((root / "index").iterdir())[2]
    patch(file, 40 + 4 * 500 + 20 * 7 + 4, (12345).to_bytes(8, "big"))

    found = check(root).findings

    assert {finding.kind for finding in found} == {Kind.INDEX}
    assert any("entry 7" in finding.cause and finding.path == file for finding in found)
    assert any("1 key(s)" in finding.cause for finding in found)


def test_a_wrong_time_in_the_index_is_found(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    file = sorted((root / "index").iterdir())[2]
    patch(file, 40 + 4 * 500 + 20 * 7 + 12, (99).to_bytes(4, "big"))

    (finding,) = check(root).findings

    assert "entry 7 has another time" in finding.cause


def test_a_wrong_header_of_the_index_is_found(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    file = sorted((root / "index").iterdir())[2]
    patch(file, 32, (3).to_bytes(4, "big"))

    (finding,) = check(root).findings

    assert (finding.kind, finding.position) == (Kind.CHAIN, 32)


def test_a_wrong_batch_unit_is_found(tmp_path: Path) -> None:
    root = unpack("batchcq", tmp_path)
    file = sorted((root / "batchconsumequeue" / "BatchT" / "0").iterdir())[0]
    patch(file, 46 * 3 + 8, (1).to_bytes(4, "big"))

    (finding,) = check(root, "batchcq").findings

    assert (finding.path, finding.position) == (file, 46 * 3)


def test_a_missing_batch_file_is_found(tmp_path: Path) -> None:
    root = unpack("batchcq", tmp_path)
    sorted((root / "batchconsumequeue" / "BatchT" / "0").iterdir())[-1].unlink()

    assert Kind.QUEUE in kinds(check(root, "batchcq"))


def test_a_wrong_property_crc_is_found(tmp_path: Path) -> None:
    root = unpack("propcrc", tmp_path)
    segment = sorted((root / "commitlog").iterdir())[0]
    data = segment.read_bytes()
    at = data.index(b"__CRC32#\x01") + 9
    patch(segment, at, bytes([data[at] ^ 1]))

    (finding,) = check(root, "propcrc").findings

    assert finding.kind is Kind.PROPERTIES


def test_a_missing_ext_unit_is_found(tmp_path: Path) -> None:
    root = unpack("ext", tmp_path)
    file = sorted((root / "consumequeue_ext").glob("*/0/*"))[0]
    patch(file, 2, (77).to_bytes(8, "big"))

    findings = check(root, "ext").findings

    assert len(findings) == 1
    assert "tag hash" in findings[0].cause


def test_garbage_json_is_found(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    (root / "config" / "topics.json").write_text("{ garbage", encoding="utf-8")

    (finding,) = check(root).findings

    assert (finding.kind, finding.path.name) == (Kind.STATE, "topics.json")


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    (root / "commitlog" / f"{65536 * 7:020d}").unlink()

    found = [finding for finding in check(root).findings if finding.kind is Kind.FILE]

    assert [finding.path.name for finding in found] == [f"{65536 * 7:020d}"]


def test_a_queue_file_of_wrong_length_is_named(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    file = sorted((root / "consumequeue" / "GoldAa" / "0").iterdir())[0]
    os.truncate(file, 1000)

    found = [finding for finding in check(root).findings if finding.kind is Kind.FILE]

    assert [finding.path for finding in found] == [file]


def test_an_old_checkpoint_of_a_closed_store_is_named(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    patch(root / "checkpoint", 8, (1).to_bytes(8, "big"))

    assert kinds(check(root)) == [Kind.CHECKPOINT]


def test_what_is_no_store_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        check_store(tmp_path)


def test_sizes_that_cannot_be_known_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(WrongFileError, match="maxIndexNum"):
        check_store(unpack("mixed", tmp_path), {})


def own_store(root: Path) -> MessageStore:
    config = StoreConfig(root=root, segment_bytes=65536, cq_file_bytes=2000, index_slots=100)
    return MessageStore.open(config, background=False)


OWN = {"maxHashSlotNum": "100", "mappedFileSizeCommitLog": "65536"}


def fill(store: MessageStore, count: int) -> None:
    for number in range(count):
        store.append(AppendRequest("T", number % 4, b"b" * 200, b"KEYS\x01k%d\x02" % number))


def test_a_store_that_is_open_has_no_findings_though_its_queues_lag(tmp_path: Path) -> None:
    with own_store(tmp_path / "s") as store:
        fill(store, 300)
        store.wait_dispatched()
        store.flush()
        fill(store, 300)

        report = check_store(tmp_path / "s", OWN)

    assert report.live
    assert report.findings == ()
    assert report.records == 600


def test_the_lock_is_still_held_after_a_check(tmp_path: Path) -> None:
    with own_store(tmp_path / "s") as store:
        fill(store, 1)
        assert is_open_elsewhere(tmp_path / "s" / "lock")
        check_store(tmp_path / "s", OWN)
        assert is_open_elsewhere(tmp_path / "s" / "lock")
    assert not is_open_elsewhere(tmp_path / "s" / "lock")


def test_a_killed_store_has_no_findings_only_lagging_units(tmp_path: Path) -> None:
    with own_store(tmp_path / "s") as store:
        fill(store, 100)
        store.wait_dispatched()
        store.flush()
        fill(store, 100)
        shutil.copytree(tmp_path / "s", tmp_path / "killed")

    report = check_store(tmp_path / "killed", OWN)

    assert not report.live
    assert report.findings == ()
    assert report.records == 200
    assert report.lagging > 0


def test_findings_of_one_kind_are_limited_and_counted() -> None:
    findings = Findings()
    for number in range(FINDINGS_PER_KIND_MAX + 5):
        findings.add(Kind.QUEUE, "f", number, "wrong")

    assert len(findings) == FINDINGS_PER_KIND_MAX
    assert findings.left_out == {Kind.QUEUE: 5}
