"""Queues and index made anew from the log alone."""

import json
import shutil
from pathlib import Path

import pytest

from golden_stores import damage, rows, settings, unpack
from orbitmq.errors import CorruptRecordError, StoreError, StoreLockedError
from orbitmq.store.config import StoreConfig
from orbitmq.store.offline.rebuild import RebuildReport, rebuild_store
from orbitmq.store.store import MessageStore
from orbitmq.store.verify.check import check_store
from orbitmq.testing.fake_disk import FaultyDisk

STORES = ["mixed", "crashed", "cleaned", "ext", "batchcq", "propcrc", "timer", "indexroll"]


def rebuild(root: Path, name: str, *, dry_run: bool = False) -> RebuildReport:
    return rebuild_store(root, settings(name), dry_run=dry_run)


def files_below(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("name", [name for name in STORES if name not in ("cleaned", "ext")])
def test_new_files_equal_those_of_the_java_broker(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    parts = ("consumequeue", "batchconsumequeue", "index")
    before = {part: files_below(root / part) for part in parts}

    report = rebuild(root, name)

    after = {part: files_below(root / part) for part in parts}
    assert after["consumequeue"] == before["consumequeue"]
    assert after["batchconsumequeue"] == before["batchconsumequeue"]
    assert list(after["index"].values()) == list(before["index"].values())
    assert report.records == len(rows(name, "record"))
    assert report.index_files == len(before["index"])


@pytest.mark.parametrize("name", STORES)
def test_a_rebuilt_store_has_no_findings_and_opens_at_once(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    for part in ("consumequeue", "batchconsumequeue", "index"):
        if name not in ("cleaned", "batchcq"):
            shutil.rmtree(root / part, ignore_errors=True)

    rebuild(root, name)

    assert check_store(root, settings(name)).findings == ()
    config = StoreConfig.from_settings(root, settings(name))
    with MessageStore.open(config, background=False) as store:
        assert not store.recovery_report.adopted
        for row in rows(name, "queue"):
            queue = row["topic"], row["queueId"]
            if row["maxOffset"] > 0:
                assert store.max_offset(*queue) == row["maxOffset"]
    assert not (root / "orbitmq.rebuild").exists()


def test_the_old_files_are_kept(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    before = files_below(root / "consumequeue")

    report = rebuild(root, "mixed")

    kept = next(path for path in report.kept if path.name == "consumequeue")
    assert files_below(kept) == before
    journal = (root / "orbitmq.quarantine" / "journal.jsonl").read_text(encoding="utf-8")
    sources = [json.loads(line)["source"] for line in journal.splitlines()]
    assert sources == ["consumequeue", "index"]


def test_a_dry_run_tells_what_is_wrong_and_changes_nothing(tmp_path: Path) -> None:
    root = unpack("crashed", tmp_path)
    damage(root, "cq-missing-all")
    before = files_below(root)

    report = rebuild(root, "crashed", dry_run=True)

    assert report.check is not None
    assert len(report.check.errors) == 2
    assert files_below(root) == before


def test_a_queue_whose_messages_expired_keeps_its_numbering(tmp_path: Path) -> None:
    root = unpack("cleaned", tmp_path)

    rebuild(root, "cleaned")

    config = StoreConfig.from_settings(root, settings("cleaned"))
    with MessageStore.open(config, background=False) as store:
        for row in rows("cleaned", "queue"):
            if row["topic"] == "CleanOld":
                queue = row["topic"], row["queueId"]
                assert store.max_offset(*queue) == row["maxOffset"] > 0
                assert store.min_offset(*queue) == row["minOffset"]


def test_a_damaged_log_must_be_repaired_first(tmp_path: Path) -> None:
    root = unpack("crashed", tmp_path)
    damage(root, "flip-late")
    before = files_below(root / "consumequeue")

    with pytest.raises(CorruptRecordError, match="orbitmq store repair"):
        rebuild(root, "crashed")

    assert files_below(root / "consumequeue") == before


def test_a_torn_end_is_no_obstacle(tmp_path: Path) -> None:
    root = unpack("crashed", tmp_path)
    damage(root, "tail-half")

    assert rebuild(root, "crashed").records == 1652


def test_a_rebuild_that_dies_half_way_leaves_nothing_that_is_trusted(tmp_path: Path) -> None:
    root, config = unpack("mixed", tmp_path), settings("mixed")
    with MessageStore.open(StoreConfig.from_settings(root, config), background=False):
        pass  # now snapshot and checkpoint are ours
    disk = FaultyDisk()
    disk.fail("exchange", "*/index")  # the queues have changed places already

    with pytest.raises(StoreError):
        rebuild_store(root, config, disk=disk)

    with MessageStore.open(StoreConfig.from_settings(root, config), background=False) as store:
        assert store.recovery_report.adopted
        assert "somebody else" in store.recovery_report.why_adopted


def test_a_store_in_use_is_left_alone(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    config = StoreConfig.from_settings(root, settings("mixed"))

    with (
        MessageStore.open(config, background=False),
        pytest.raises(StoreLockedError),
    ):
        rebuild(root, "mixed")
