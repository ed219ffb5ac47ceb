"""The tools beside a process that has the store open."""

import json

import pytest

from command import json_lines, run
from orbitmq.message import AppendRequest
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.units import KiB

COUNT = 500


@pytest.fixture
def live(tmp_path):
    """A store that is open, with messages that may not have reached queue files yet."""
    config = StoreConfig(
        root=tmp_path / "store", segment_bytes=64 * KiB, index_slots=500, index_items=400
    )
    with MessageStore.open(config) as store:
        for n in range(COUNT):
            properties = f"KEYS\x01k{n % 50}\x02TAGS\x01t{n % 3}\x02".encode()
            store.append(AppendRequest("Live", n % 2, b"%d" % n, properties))
        assert store.wait_dispatched()
        yield store


@pytest.fixture
def conf(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("maxHashSlotNum=500\nmaxIndexNum=400\n")
    return path


def test_dump_shows_every_record(live):
    result = run("store", "dump", live.config.root, "--output", "json")

    assert result.returncode == 0, result.stderr
    assert len(json_lines(result.stdout)) == COUNT


def test_get_finds_a_message_whose_unit_is_still_in_memory(live):
    last = live.max_offset("Live", 1) - 1
    place = ["--topic", "Live", "--queue", 1, "--offset", last]

    result = run("store", "get", live.config.root, *place, "--body")

    assert result.stdout == str(COUNT - 1)


def test_query_finds_all_messages_of_a_key(live, conf):
    options = ["--topic", "Live", "--key", "k7", "--config", conf, "--output", "json"]

    result = run("store", "query", live.config.root, *options)

    assert [row["keys"] for row in json_lines(result.stdout)] == [["k7"]] * (COUNT // 50)


def test_stat_says_who_has_it_open(live, conf):
    result = run("store", "stat", live.config.root, "--scan", "--config", conf, "--output", "json")

    found = json.loads(result.stdout)
    assert found["abort_pid"] is not None
    assert found["end_log_offset"] == live.max_log_offset
    (topic,) = found["topics"]
    assert topic["records"] == COUNT


def test_check_has_no_findings(live, conf):
    result = run("store", "check", live.config.root, "--config", conf)

    assert result.returncode == 0, result.stdout
    assert "a broker has the store open" in result.stdout


@pytest.mark.parametrize("command", ["rebuild", "repair"])
def test_what_would_change_it_is_refused(live, conf, command):
    result = run("store", command, live.config.root, "--config", conf)

    assert result.returncode == 4
    assert "open" in result.stderr
    assert live.append(AppendRequest("Live", 0, b"still works")).status.stored
