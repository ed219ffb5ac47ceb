"""`orbitmq store check`: every finding with file, position, cause and what to run."""

import json

import pytest

from command import call, run
from golden_stores import GOLDEN, STORES, damage, torn_variant, unpack


def check(root, name, *options):
    return call("store", "check", root, "--config", GOLDEN / f"{name}.conf", *options)


@pytest.mark.parametrize("name", STORES)
def test_a_clean_store_has_no_finding(name, tmp_path):
    result = check(unpack(name, tmp_path), name)

    assert result.returncode == 0, result.stdout
    assert result.stdout.startswith("no findings; ")


@pytest.mark.parametrize(
    "variant", ["flip-early", "flip-late", "cq-wrong-tag-early", "index-missing"]
)
def test_findings_name_file_position_cause_and_next_step(variant, tmp_path):
    root = damage(unpack("crashed", tmp_path), variant)

    result = check(root, "crashed", "--output", "json")

    assert result.returncode == 1
    report = json.loads(result.stdout)
    assert not report["sound"]
    for finding in report["findings"]:
        assert finding["file"].startswith(str(root))
        assert finding["position"] >= 0
        assert finding["cause"]
        assert finding["advice"]


def test_a_flipped_byte_is_found_at_its_record(tmp_path):
    root = damage(unpack("crashed", tmp_path), "flip-late")
    offset = torn_variant("flip-late")["record"]

    report = json.loads(check(root, "crashed", "--output", "json").stdout)

    (finding,) = [item for item in report["findings"] if item["kind"] == "record"]
    assert finding["log_offset"] == offset
    assert finding["position"] == offset % 65536


def test_the_table_says_the_same_to_people(tmp_path):
    root = damage(unpack("crashed", tmp_path), "flip-late")

    result = check(root, "crashed")

    assert result.returncode == 1
    assert "orbitmq store repair" in result.stdout
    assert "commitlog/" in result.stdout


def test_check_changes_nothing(tmp_path):
    root = damage(unpack("crashed", tmp_path), "flip-late")
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")}

    check(root, "crashed")

    after = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")}
    assert after == before


def test_index_files_of_unknown_size_ask_for_the_settings(tmp_path):
    result = run("store", "check", unpack("indexroll", tmp_path))

    assert result.returncode == 4
    assert "maxHashSlotNum" in result.stderr
