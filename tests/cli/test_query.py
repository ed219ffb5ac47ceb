"""`orbitmq store query`: exactly the messages with a key, with or without index files."""

import shutil
from collections import Counter

import pytest

from command import invoke, json_lines
from golden_stores import GOLDEN, damage, rows, torn_variant, unpack


def offsets_of(name: str, topic: str, key: str) -> list[int]:
    """Return where the manifest has records with this key, newest last."""
    return [
        row["phyOffset"]
        for row in rows(name, "record")
        if row["topic"] == topic and key in keys_of(row)
    ]


def keys_of(row: dict) -> list[str]:
    properties = row["properties"]
    return [properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")]


def ask(root, name, topic, key, *options):
    config = GOLDEN / f"{name}.conf"
    arguments = ["--topic", topic, "--key", key, "--config", config, "--output", "json", *options]
    result = invoke("store", "query", root, *arguments)
    return [row["log_offset"] for row in json_lines(result.stdout)], result


def busiest_keys(name: str, count: int) -> list[tuple[str, str]]:
    found = Counter(
        (row["topic"], key)
        for row in rows(name, "record")
        for key in row["properties"].get("KEYS", "").split(" ")
        if key
    )
    return [place for place, _ in found.most_common(count)]


@pytest.mark.parametrize("name", ["mixed", "crashed", "cleaned", "indexroll"])
def test_query_finds_exactly_the_records_with_the_key(name, tmp_path):
    root = unpack(name, tmp_path)

    for topic, key in busiest_keys(name, 12):
        found, _ = ask(root, name, topic, key, "--max", 100_000)

        assert found == offsets_of(name, topic, key), (topic, key)


@pytest.mark.parametrize("name", ["mixed", "cleaned", "indexroll"])
def test_query_agrees_with_the_java_store(name, tmp_path):
    """The Java store does not compare keys, so its answer holds ours and records with equal hashes."""
    root = unpack(name, tmp_path)
    records = {row["phyOffset"]: row for row in rows(name, "record")}
    asked = [q for q in rows(name, "keyQuery") if q["begin"] == 0 and q["end"] == 2**63 - 1]

    for query in asked[:40]:
        topic, key = query["topic"], query["key"]
        right = [o for o in query["phyOffsets"] if records[o]["topic"] == topic]
        right = [offset for offset in right if key in keys_of(records[offset])]

        found, _ = ask(root, name, topic, key, "--max", query["maxNum"])

        assert set(right) <= set(found), query
        if len(query["phyOffsets"]) < query["maxNum"]:
            assert found == sorted(set(right))


def test_max_keeps_the_newest(tmp_path):
    root = unpack("mixed", tmp_path)

    found, _ = ask(root, "mixed", "GoldAa", "hot", "--max", 5)

    assert found == offsets_of("mixed", "GoldAa", "hot")[-5:]


def test_times_are_exact_to_the_millisecond(tmp_path):
    root = unpack("mixed", tmp_path)
    times = {row["phyOffset"]: row["storeTimestamp"] for row in rows("mixed", "record")}
    everything = offsets_of("mixed", "GoldAa", "hot")
    begin, end = times[everything[10]], times[everything[40]]

    found, _ = ask(root, "mixed", "GoldAa", "hot", "--from", begin, "--to", end, "--max", 10_000)

    assert found == [offset for offset in everything if begin <= times[offset] < end]


@pytest.mark.parametrize("missing", ["all", "first", "middle", "last"])
def test_missing_index_files_are_replaced_by_the_log(missing, tmp_path):
    root = unpack("mixed", tmp_path)
    files = sorted((root / "index").iterdir())
    if missing == "all":
        shutil.rmtree(root / "index")
    else:
        files[{"first": 0, "middle": len(files) // 2, "last": -1}[missing]].unlink()

    found, result = ask(root, "mixed", "GoldAa", "hot", "--max", 10_000)

    assert found == offsets_of("mixed", "GoldAa", "hot")
    assert "index files do not cover" in result.stderr


def test_a_whole_index_needs_no_word(tmp_path):
    _, result = ask(unpack("mixed", tmp_path), "mixed", "GoldAa", "hot")

    assert result.stderr == ""


@pytest.mark.parametrize(
    "variant", ["index-chain-past-end", "index-chain-self", "index-slot-past-end", "index-missing"]
)
def test_broken_chains_are_noticed_and_nothing_is_missed(variant, tmp_path):
    root = damage(unpack("crashed", tmp_path), variant)
    topic, key = torn_variant(variant)["query"].split("|")

    found, result = ask(root, "crashed", topic, key, "--max", 10_000)

    assert found == offsets_of("crashed", topic, key)
    assert "reading the log" in result.stderr


def test_index_files_of_another_size_are_not_used(tmp_path):
    root = unpack("indexroll", tmp_path)
    topic, key = busiest_keys("indexroll", 1)[0]

    result = invoke("store", "query", root, "--topic", topic, "--key", key, "--output", "json")

    assert [r["log_offset"] for r in json_lines(result.stdout)] == offsets_of(
        "indexroll", topic, key
    )[-64:]
    assert "maxHashSlotNum" in result.stderr


def test_no_hit_has_exit_code_1(tmp_path):
    found, result = ask(unpack("propcrc", tmp_path), "propcrc", "nothing", "nowhere")

    assert found == []
    assert result.exit_code == 1
