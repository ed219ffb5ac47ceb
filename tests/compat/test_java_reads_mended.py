"""A damaged store that was opened and mended here: the Java store reads it to the end."""

import shutil
from pathlib import Path

import pytest

from compat.java_store import JavaView, needs_java, read_store
from golden_stores import rows, settings, unpack
from orbitmq.format.kernels import plain
from orbitmq.store.offline.repair import repair_store
from orbitmq.store.store import MessageStore
from torn_runs import config_of, damaged

pytestmark = [pytest.mark.compat, needs_java]

FILLED = {"flip-early": 67274, "flip-late": 1532493}


def units(view: JavaView) -> int:
    return sum(queue["max_offset"] - queue["min_offset"] for queue in view.queues.values())


def ask_for_a_rebuild(root: Path) -> None:
    """Make the Java store read the whole log with CRC and dispatch all of it."""
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    (root / "checkpoint").unlink()
    (root / "abort").write_text("1", encoding="ascii")


@pytest.mark.parametrize("rebuilt", [False, True], ids=["as-left", "rebuilt-by-java"])
@pytest.mark.parametrize(
    "variant", ["flip-early", "flip-late", "blank-lost", "cq-none", "log-short"]
)
def test_the_java_store_reads_a_mended_store_to_its_end(
    variant: str, rebuilt: bool, tmp_path: Path
) -> None:
    root = damaged(variant, tmp_path)
    with MessageStore.open(config_of(root), background=False):
        pass
    if rebuilt:
        ask_for_a_rebuild(root)

    view = read_store(root, settings("crashed"), shutdown=False)

    assert view.errors == ""
    assert view.opened["max_log_offset"] == 1706772
    assert units(view) == 1653
    good = {row["phyOffset"]: row for row in rows("crashed", "record")}
    good.pop(FILLED.get(variant, -1), None)
    found = {record["log_offset"]: record for record in view.records}
    assert set(found) == {row["phyOffset"] for row in rows("crashed", "record")}
    for offset, row in good.items():
        assert found[offset]["record_sha256"] == row["recordSha256"]
        assert found[offset]["queue_offset"] == row["queueOffset"]


@pytest.mark.parametrize("with_queues", [True, False], ids=["units-known", "gaps-only"])
def test_the_java_store_reads_over_a_bridged_segment(with_queues: bool, tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    base = 65536 * 7
    (root / "commitlog" / f"{base:020d}").unlink()
    if not with_queues:
        shutil.rmtree(root / "consumequeue")
    repair_store(root, settings("mixed"), kernels=plain())
    ask_for_a_rebuild(root)

    view = read_store(root, settings("mixed"), shutdown=False)

    assert view.errors == ""
    assert view.opened["max_log_offset"] == 3929746
    lengths = {
        (row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"])
        for row in rows("mixed", "queue")
    }
    found = {key: (q["min_offset"], q["max_offset"]) for key, q in view.queues.items()}
    assert {key: found[key] for key in lengths} == lengths
    kept = {record["log_offset"]: record["record_sha256"] for record in view.records}
    for row in rows("mixed", "record"):
        if not base <= row["phyOffset"] < base + 65536:
            assert kept[row["phyOffset"]] == row["recordSha256"]
