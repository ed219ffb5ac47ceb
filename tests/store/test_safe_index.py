"""After a crash every key is found again, and readers whose messages are gone go on at the first one left."""

import subprocess
import sys

import pytest

from golden_stores import rows, settings, unpack
from orbitmq.cli import demo_load
from orbitmq.format.record import decode_record
from orbitmq.message import GetStatus
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore

SAFE = {"messageIndexSafe": "true"}


@pytest.mark.feature("F47")
def test_all_keys_of_a_store_that_java_left_behind_are_found(tmp_path):
    root = unpack("crashed", tmp_path)
    config = StoreConfig.from_settings(root, settings("crashed") | SAFE)

    with MessageStore.open(config) as store:
        store.wait_dispatched()
        missing = [
            (row["topic"], key)
            for row in rows("crashed", "record")
            for key in keys_of(row)
            if row["phyOffset"] not in offsets_with_key(store, row["topic"], key, row)
        ]

    assert missing == []


@pytest.mark.crash
@pytest.mark.feature("F47")
def test_all_keys_of_a_killed_writer_are_found(tmp_path):
    root = tmp_path / "store"
    command = [sys.executable, "-m", "orbitmq.cli.demo_load", str(root), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        acknowledged = 0
        while acknowledged < 3_000:
            acknowledged = int(writer.stdout.readline())
        writer.kill()
    config = StoreConfig.from_settings(root, demo_load.SETTINGS | SAFE)

    with MessageStore.open(config) as store:
        store.wait_dispatched()
        hits = [
            store.query(demo_load.place(n).topic, demo_load.key(n), exact=True)
            for n in range(acknowledged)
        ]
        bodies = [[decode_record(raw).body for raw in found] for found in hits]

    assert bodies == [[demo_load.body(n)] for n in range(acknowledged)]


@pytest.mark.feature("F109")
def test_a_consumer_below_the_first_message_goes_on_there(tmp_path):
    root = unpack("cleaned", tmp_path)
    config = StoreConfig.from_settings(root, settings("cleaned"))
    moved = [q for q in rows("cleaned", "queue") if 0 < q["minOffset"] < q["maxOffset"]]

    with MessageStore.open(config) as store:
        for queue in moved:
            first = store.get(queue["topic"], queue["queueId"], 0)
            then = store.get(queue["topic"], queue["queueId"], first.next_offset)

            assert first.status is GetStatus.OFFSET_TOO_SMALL
            assert first.next_offset == queue["minOffset"]
            assert then.status is GetStatus.FOUND
            assert then.queue_offsets[0] == queue["minOffset"]

    assert moved


def keys_of(row: dict) -> list[str]:
    """Return the keys that the index must have; a rollback has none."""
    if row["sysFlag"] & 0xC == 0xC:
        return []
    properties = row["properties"]
    keys = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
    return [key for key in keys if key]


def offsets_with_key(store: MessageStore, topic: str, key: str, row: dict) -> set[int]:
    """Return the log offsets of a key near one moment: a store query returns at most 64."""
    moment = row["storeTimestamp"]
    found = store.query(topic, key, begin_ms=moment - 1_000, end_ms=moment, exact=True)
    return {decode_record(raw).log_offset for raw in found}
