"""Mending a store offline."""

from pathlib import Path

import pytest

from golden_stores import damage, rows, settings, torn_variants, unpack
from orbitmq.errors import StoreLockedError
from orbitmq.store.config import StoreConfig
from orbitmq.store.offline.repair import RepairReport, repair_store
from orbitmq.store.recovery.plan import RepairKind
from orbitmq.store.store import MessageStore
from orbitmq.store.verify.check import check_store

IN_LOG = {
    "tail-half": RepairKind.CUT,
    "tail-size-only": RepairKind.CUT,
    "tail-mid-file": RepairKind.CUT,
    "flip-last": RepairKind.CUT,
    "flip-early": RepairKind.FILL,
    "flip-late": RepairKind.FILL,
    "flip-late-clean": RepairKind.FILL,
    "blank-lost": RepairKind.BLANK,
}


def repair(root: Path, name: str = "crashed", *, dry_run: bool = False) -> RepairReport:
    return repair_store(root, settings(name), dry_run=dry_run)


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("variant", torn_variants())
def test_a_dry_run_tells_the_plan_and_changes_nothing(variant: str, tmp_path: Path) -> None:
    root = damage(unpack("crashed", tmp_path), variant)
    before = contents(root)

    report = repair(root, dry_run=True)

    kinds = [item.kind for item in report.plan.repairs]
    assert kinds == ([IN_LOG[variant]] if variant in IN_LOG else [])
    assert bool(report.resized) == (variant in ("log-short", "log-empty-next"))
    assert contents(root) == before


@pytest.mark.parametrize(
    "variant", ["flip-late", "blank-lost", "cq-none", "index-missing", "log-short"]
)
def test_after_a_repair_the_store_is_sound(variant: str, tmp_path: Path) -> None:
    root = damage(unpack("crashed", tmp_path), variant)

    report = repair(root)

    assert not report.is_clean
    assert check_store(root, settings("crashed")).findings == ()
    assert repair(root).is_clean


def test_a_repair_does_not_trust_the_snapshot(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    config = StoreConfig.from_settings(root, settings("mixed"))
    with MessageStore.open(config, background=False):
        pass
    unit = root / "consumequeue" / "GoldAa" / "0" / f"{0:020d}"
    with unit.open("r+b") as file:
        file.seek(12)
        file.write((4711).to_bytes(8, "big"))

    report = repair(root, "mixed")

    assert report.recovery is not None
    assert report.recovery.adoption.queues.wrong == 1
    assert check_store(root, settings("mixed")).findings == ()


def test_a_missing_segment_is_bridged(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    base = 65536 * 7
    (root / "commitlog" / f"{base:020d}").unlink()
    lost = [row for row in rows("mixed", "record") if base <= row["phyOffset"] < base + 65536]

    report = repair(root, "mixed")

    found = {
        (one.topic.decode(), one.queue_id, one.queue_offset, one.start, one.size)
        for item in report.plan.repairs
        for one in item.lost
    }
    assert found == {
        (row["topic"], row["queueId"], row["queueOffset"], row["phyOffset"], row["size"])
        for row in lost
    }
    assert check_store(root, settings("mixed")).errors == ()
    config = StoreConfig.from_settings(root, settings("mixed"))
    with MessageStore.open(config, background=False) as store:
        for row in rows("mixed", "queue"):
            assert store.max_offset(row["topic"], row["queueId"]) == row["maxOffset"]


def test_a_missing_segment_is_bridged_by_the_gaps_alone(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    base = 65536 * 7
    (root / "commitlog" / f"{base:020d}").unlink()
    for path in sorted((root / "consumequeue").rglob("*")):
        if path.is_file():
            path.unlink()

    report = repair(root, "mixed")

    assert report.recovery is not None
    assert check_store(root, settings("mixed")).errors == ()
    config = StoreConfig.from_settings(root, settings("mixed"))
    with MessageStore.open(config, background=False) as store:
        kept = sum(store.max_offset(row["topic"], row["queueId"]) for row in rows("mixed", "queue"))
    assert kept == len(rows("mixed", "record"))


def test_a_store_in_use_is_left_alone(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    config = StoreConfig.from_settings(root, settings("mixed"))

    with MessageStore.open(config, background=False), pytest.raises(StoreLockedError):
        repair(root, "mixed")
