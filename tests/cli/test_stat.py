"""`orbitmq store stat`: the figures of a store."""

import json
import shutil
from collections import Counter

import pytest

from command import invoke
from golden_stores import STORES, row, rows, unpack


@pytest.fixture(params=STORES)
def name(request):
    return request.param


def stat_of(root, *options) -> dict:
    result = invoke("store", "stat", root, "--output", "json", *options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_figures_equal_the_manifest(name, tmp_path):
    root = unpack(name, tmp_path)
    records = rows(name, "record")

    found = stat_of(root, "--scan")

    last = records[-1]
    assert found["min_log_offset"] == row(name, "opened")["minPhyOffset"]
    assert found["end_log_offset"] == last["phyOffset"] + last["size"]
    assert found["first_store_ms"] == records[0]["storeTimestamp"]
    assert found["last_store_ms"] == last["storeTimestamp"]
    counted = {topic["topic"]: topic["records"] for topic in found["topics"] if topic["records"]}
    assert counted == Counter(record["topic"] for record in records)
    assert [file["items"] for file in found["index"]] == [
        file["indexCount"] - 1 for file in rows(name, "indexFileAsShipped")
    ]


@pytest.mark.parametrize("name", ["mixed", "cleaned", "batchcq", "ext"])
def test_messages_in_queues_equal_the_manifest(name, tmp_path):
    root = unpack(name, tmp_path)

    found = {topic["topic"]: topic["messages"] for topic in stat_of(root)["topics"]}

    expected: Counter[str] = Counter()
    for queue in rows(name, "queue"):
        expected[queue["topic"]] += queue["maxOffset"] - max(queue["minOffset"], 0)
    assert {topic: count for topic, count in found.items() if count} == +expected


def test_a_log_alone_has_figures_too(tmp_path):
    root = unpack("mixed", tmp_path)
    for directory in ("consumequeue", "index", "config"):
        shutil.rmtree(root / directory)
    (root / "checkpoint").unlink()

    found = stat_of(root)

    assert found["topics"] == []
    assert found["checkpoint"] is None
    assert found["end_log_offset"] > 0


def test_tables_show_topics_and_index(tmp_path):
    result = invoke("store", "stat", unpack("crashed", tmp_path))

    assert "CrashAa" in result.stdout
    assert "yes" in result.stdout  # the abort file
    assert "index file" in result.stdout
