"""`orbitmq store rebuild` and `repair`: dry runs change nothing, real ones leave a sound store."""

import json
import shutil

import pytest

from command import call, json_lines, run
from golden_stores import GOLDEN, damage, rows, unpack

CONFIG = ["--config", GOLDEN / "crashed.conf"]


def store(command, root, *options):
    return call("store", command, root, *CONFIG, *options)


def contents(root) -> dict:
    return {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture
def damaged(tmp_path):
    return damage(unpack("crashed", tmp_path), "flip-late")


@pytest.mark.parametrize("command", ["rebuild", "repair"])
def test_a_dry_run_finds_the_damage_and_changes_nothing(command, damaged):
    before = contents(damaged)

    result = store(command, damaged, "--dry-run")

    assert result.returncode == 1, result.stderr
    assert "dry run: nothing was changed" in result.stdout
    assert contents(damaged) == before


def test_repair_keeps_every_valid_record_and_a_copy_of_the_bad_one(damaged):
    result = store("repair", damaged, "--output", "json")

    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    (repair,) = report["repairs"]
    assert repair["lost_records"] == 1
    assert len(report["kept"]) >= 1
    dumped = json_lines(store("dump", damaged, "--output", "json").stdout)
    assert len(dumped) == len(rows("crashed", "record"))
    assert sum("ORBITMQ_FILLER" in row["properties"] for row in dumped) == 1
    assert store("check", damaged).returncode == 0


def test_repair_of_a_sound_store_has_nothing_to_do(tmp_path):
    root = unpack("mixed", tmp_path)
    config = ["--config", GOLDEN / "mixed.conf"]

    result = run("store", "repair", root, *config, "--dry-run", "--output", "json")

    assert result.returncode == 0
    assert json.loads(result.stdout)["clean"]


def test_rebuild_makes_queues_and_index_from_the_log_alone(tmp_path):
    root = unpack("crashed", tmp_path)
    queues = {path: data for path, data in contents(root).items() if "consumequeue" in path.parts}
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")

    result = store("rebuild", root, "--output", "json")

    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["records"], report["units"]) == (1653, 1653)
    assert store("check", root).returncode == 0
    after = contents(root)
    # The archive was killed while it was written: its queues may end before ours.
    assert all(after[path].startswith(data.rstrip(b"\0")) for path, data in queues.items())


def test_rebuild_of_a_damaged_log_asks_for_a_repair(damaged):
    result = store("rebuild", damaged)

    assert result.returncode == 4
    assert "orbitmq store repair" in result.stderr


def test_a_torn_tail_does_not_keep_rebuild_from_working(tmp_path):
    root = damage(unpack("crashed", tmp_path), "tail-half")

    result = store("rebuild", root, "--output", "json")

    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["records"] == 1652
