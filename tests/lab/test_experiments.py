"""Every experiment by the command, in its small size: figures, checks, a sentence, nothing left behind."""

import json

import pytest

from command import invoke

TRIES = 8
NAMES = {
    "page-cache": 4,
    "transfer": 3,
    "file-copy": 5,
    "buffers": 4,
    "storage": 3,
    "sequential": 6,
    "one-log": 6,
    "flush": 6,
    "mmap": 6,
}
"""How many rows each has in the small size."""


def small(name, tmp_path):
    result = invoke("lab", name, "--size", "small", "--output", "json", "--dir", tmp_path)
    assert result.exit_code == 0, result.output
    assert list(tmp_path.iterdir()) == []
    found = json.loads(result.stdout)
    assert (found["name"], len(found["rows"]), found["ok"]) == (name, NAMES[name], True)
    assert found["sentence"].startswith("Seen: ")
    assert f"; the documents say that {found['claim']}: " in found["sentence"]
    return found


def figures(found):
    return {
        row["name"]: {one["name"]: one["value"] for one in row["figures"]} for row in found["rows"]
    }


def checked(found, *words):
    """Tell whether there is a check with these words for every row that it is about."""
    return [
        check["what"] for check in found["checks"] if all(word in check["what"] for word in words)
    ]


@pytest.mark.feature("F57")
def test_a_queue_in_order_and_random_records_are_read_from_a_cold_log(tmp_path):
    found = small("page-cache", tmp_path)

    assert all(values["rate"] > 0 for values in figures(found).values())
    assert len(checked(found, "messages are those that were asked for")) == 4


@pytest.mark.feature("F92")
def test_three_ways_of_transfer_give_the_same_bytes_and_their_times(tmp_path):
    found = small("transfer", tmp_path)

    assert list(figures(found)) == ["copy", "mapped slices", "sendfile"]
    assert all(min(values.values()) > 0 for values in figures(found).values())
    assert len(checked(found, "the receiver has the same bytes")) == 3 * 4
    assert len(checked(found, "pull of", "each pull found")) == 3


@pytest.mark.feature("F93")
def test_copies_of_a_file_are_equal_and_timed(tmp_path):
    found = small("file-copy", tmp_path)

    assert len(checked(found, "the copy is equal")) == 5
    assert all(values["time"] > 0 for values in figures(found).values())


@pytest.mark.feature("F94")
def test_copies_and_views_of_memory_are_timed_for_every_size(tmp_path):
    found = small("buffers", tmp_path)

    assert list(figures(found)) == ["256 B", "4 KiB", "64 KiB", "1 MiB"]
    assert all(min(values.values()) > 0 for values in figures(found).values())
    assert len(checked(found, "the file is equal")) == 3 * 4


@pytest.mark.feature("F101")
def test_the_same_messages_go_into_the_log_a_key_value_store_and_a_database(tmp_path):
    pytest.importorskip("lmdb", reason="the extra `lab` is not installed")
    found = small("storage", tmp_path)

    assert all(min(values.values()) > 0 for values in figures(found).values())
    assert len(checked(found, "messages come back as they were")) == 2 * 3


@pytest.mark.feature("F102")
def test_blocks_in_order_and_at_random_are_written_and_read(tmp_path):
    found = small("sequential", tmp_path)

    assert all(values["rate"] > 0 for values in figures(found).values())
    assert len(found["checks"]) == 6


@pytest.mark.feature("F103")
def test_one_log_and_a_log_per_partition_take_the_same_messages(tmp_path):
    found = small("one-log", tmp_path)

    rows = [
        {one["name"]: one["value"] for one in row["figures"]}
        for row in found["rows"]
        if row["name"] == "a log per partition"
    ]
    assert [row["partitions"] for row in rows] == [1, 16]
    assert [round(row["syncs"]) for row in rows] == [4, 62]  # for 256 messages: one, and 16
    assert all(row["written"] > 0 and row["written, synced"] > 0 for row in rows)
    assert len(checked(found, "messages are in their files")) == 2 * 2 * 2


@pytest.mark.feature("F122")
def test_flush_modes_show_rate_and_latency_side_by_side(tmp_path):
    found = small("flush", tmp_path)

    modes = [
        f"{mode}, {threads}"
        for mode in ("async", "sync", "pool")
        for threads in ("1 thread", "8 threads")
    ]
    assert list(figures(found)) == modes
    assert all(0 < row["p50"] <= row["p99"] for row in figures(found).values())
    assert len(checked(found, "messages are there after a restart")) == 6
    assert len(checked(found, "all that was acknowledged is on disk")) == 2


@pytest.mark.feature("F59")
def test_warm_up_and_read_ahead_are_seen_in_page_faults(tmp_path):
    # Whoever syncs the file system meanwhile, as a broker of another test, has pages written back: the next
    # write to each is a fault, in memory or not. So it is looked until nobody did.
    for _ in range(TRIES):
        found = small("mmap", tmp_path)
        faults = figures(found)
        if not faults["new segment, warmed up and locked, written"]["minor faults"]:
            break
    assert faults["new segment, warmed up and locked, written"]["minor faults"] == 0
    assert faults["new segment, written"]["minor faults"] > 0
    assert len(checked(found, "another process sees the bytes before a flush")) == 2
    assert len(checked(found, "all pages were in memory before")) == 1


def test_a_result_names_the_machine_that_it_comes_from(tmp_path):
    machine = small("file-copy", tmp_path)["machine"]

    assert machine["cpus"] >= 1
    assert machine["kernel"].startswith("Linux ")
    assert {"cpu", "memory_gib", "python", "file_system", "disk"} <= set(machine)
