"""`orbitmq store dump` of every store of the real broker equals what RocketMQ's own reader says."""

import json
import shutil

import pytest

from command import call, invoke, json_lines, run
from golden_stores import GOLDEN, STORES, damage, rows, torn_variant, unpack

PROMISED = """
    log_offset size topic queue_id queue_offset tag keys store_ms born_ms flag sys_flag
    body_length body_sha256 properties msg_id
"""


def expected_dump(name: str) -> list[dict]:
    """Return the manifest's records in the words of the dump."""
    return [
        {
            "log_offset": row["phyOffset"],
            "size": row["size"],
            "topic": row["topic"],
            "queue_id": row["queueId"],
            "queue_offset": row["queueOffset"],
            "tag": row["properties"].get("TAGS"),
            "keys": [key for key in row["properties"].get("KEYS", "").split(" ") if key],
            "store_ms": row["storeTimestamp"],
            "born_ms": row["bornTimestamp"],
            "flag": row["flag"],
            "sys_flag": row["sysFlag"],
            "body_length": row["bodyLength"],
            "body_sha256": row["bodySha256"],
            "properties": row["properties"],
            "msg_id": row["offsetMsgId"],
        }
        for row in rows(name, "record")
    ]


@pytest.mark.parametrize("name", STORES)
def test_dump_equals_the_manifest_record_for_record(name, tmp_path):
    root = unpack(name, tmp_path)

    dump = run if name == "mixed" else call  # one by a process
    result = dump("store", "dump", root, "--output", "json", "--config", GOLDEN / f"{name}.conf")

    assert result.returncode == 0, result.stderr
    assert json_lines(result.stdout) == expected_dump(name)
    assert result.stderr == ""


def test_dump_prints_exactly_the_promised_keys(tmp_path):
    result = invoke("store", "dump", unpack("propcrc", tmp_path), "--output", "json")

    assert [list(row) for row in json_lines(result.stdout)] == [PROMISED.split()] * 267


def test_dump_needs_nothing_but_the_log(tmp_path):
    root = unpack("cleaned", tmp_path)
    for path in root.iterdir():
        if path.name != "commitlog":
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    result = invoke("store", "dump", root, "--output", "json")

    assert result.exit_code == 0
    assert json_lines(result.stdout) == expected_dump("cleaned")


def test_dump_changes_nothing(tmp_path):
    root = unpack("crashed", tmp_path)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}

    invoke("store", "dump", root, "--output", "json")

    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


@pytest.mark.parametrize(
    ("options", "keeps"),
    [
        (["--topic", "GoldC"], lambda row: row["topic"] == "GoldC"),
        (
            ["--topic", "GoldC", "--queue", "2"],
            lambda r: (r["topic"], r["queue_id"]) == ("GoldC", 2),
        ),
        (["--queue", "3"], lambda row: row["queue_id"] == 3),
        (["--from", "1000000"], lambda row: row["log_offset"] >= 1000000),
        (["--from", "131072", "--to", "150000"], lambda r: 131072 <= r["log_offset"] < 150000),
        (["--to", "offset:240"], lambda row: row["log_offset"] < 240),
        (["--from", "1794768818346"], lambda row: row["store_ms"] >= 1794768818346),
        (["--to", "2026-11-15T18:53:31.203+00:00"], lambda row: row["store_ms"] < 1794768811203),
        (["--from", "now-1s"], lambda row: False),
        (["--topic", "no such topic"], lambda row: False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_filters_select_what_they_say(options, keeps, tmp_path, monkeypatch):
    monkeypatch.setattr("orbitmq.clock.time.time_ns", lambda: 1900000000000 * 1_000_000)
    root = unpack("mixed", tmp_path)

    result = invoke("store", "dump", root, "--output", "json", *options)

    assert result.exit_code == 0
    assert json_lines(result.stdout) == [row for row in expected_dump("mixed") if keeps(row)]


def test_table_has_one_line_per_record(tmp_path):
    result = invoke("store", "dump", unpack("batchcq", tmp_path))

    assert len(result.stdout.splitlines()) == 1 + 200


@pytest.mark.parametrize(
    "variant", ["flip-early", "flip-late", "blank-lost", "bad-physical-offset"]
)
def test_dump_goes_on_behind_a_bad_place(variant, tmp_path):
    root = damage(unpack("crashed", tmp_path), variant)
    bad = torn_variant(variant)["record"]
    lost = {bad} if variant.startswith("flip") else set()

    result = invoke("store", "dump", root, "--output", "json")

    offsets = [row["log_offset"] for row in json_lines(result.stdout)]
    everything = [row["phyOffset"] for row in rows("crashed", "record")]
    assert offsets == [offset for offset in everything if offset not in lost]
    assert result.exit_code == (1 if lost else 0)
    assert bool(lost) == ("passed over" in result.stderr)


def test_dump_of_a_short_last_segment_says_so_and_gives_the_rest(tmp_path):
    root = damage(unpack("crashed", tmp_path), "log-short")

    result = invoke("store", "dump", root, "--output", "json")

    assert [json.loads(line)["log_offset"] for line in result.stdout.splitlines()] == [
        row["phyOffset"] for row in rows("crashed", "record")
    ]
    assert "has only 65535 bytes" in result.stderr
