"""After a crash every key is found again, and readers whose messages are gone go on at the first one left."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from golden_stores import rows, settings, unpack
from orbitmq.cli.demo import load as demo_load
from orbitmq.format.index_file import IndexHeader, decode_header, entry_position
from orbitmq.format.record import decode_record
from orbitmq.message import GetStatus
from orbitmq.settings import read_settings
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_clock import FakeClock

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
    command = [sys.executable, "-m", "orbitmq.cli.demo.load", str(root), "0"]
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


# --- a store of ours that was killed, with the settings of a broker.conf ---

CONF = """
mappedFileSizeCommitLog = 4096
mappedFileSizeConsumeQueue = 400
maxHashSlotNum = 50
maxIndexNum = 31
"""
COUNT = 100


def read_config(tmp_path: Path, root: Path, line: str) -> StoreConfig:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{CONF}{line}\n", encoding="utf-8")
    return StoreConfig.from_settings(root, read_settings(conf))


def index_files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "index").iterdir())


@pytest.fixture
def killed(tmp_path: Path) -> tuple[Path, list[str]]:
    """Return a killed store, and the index files that its last snapshot knew.

    Two of them were full then, the third one nearly, and one more came later.
    """
    config = read_config(tmp_path, tmp_path / "alive", "")
    clock = FakeClock()
    with MessageStore.open(config, background=False, clock=clock) as store:
        for number in range(COUNT):
            store.append(make_request(number, "T", 0, keys=f"k{number}", unique=False))
            clock.advance(1_000)
            if number == 88:
                store.wait_dispatched()
                store.flush()
                known = index_files(config.root)
        store.wait_dispatched()
        store._parts.dispatcher.index.flush()
        root = Path(shutil.copytree(config.root, tmp_path / "killed"))
    assert len(known) == 3
    assert len(index_files(root)) == 4
    return root, known


def missing_keys(store: MessageStore) -> list[int]:
    store.wait_dispatched()
    return [n for n in range(COUNT) if len(store.query("T", f"k{n}", exact=True)) != 1]


@pytest.mark.feature("F48")
def test_after_a_crash_index_files_newer_than_the_checkpoint_are_removed_and_come_back(
    killed: tuple[Path, list[str]], tmp_path: Path
) -> None:
    root, known = killed
    newer = [name for name in index_files(root) if name not in known]
    (root / "index" / newer[-1]).write_bytes(b"\xff" * (root / "index" / newer[-1]).stat().st_size)

    config = read_config(tmp_path, root, "messageIndexSafe = false")
    with MessageStore.open(config, background=False) as store:
        assert not store.recovery_report.adopted
        assert missing_keys(store) == []

    assert index_files(root)[:3] == known
    assert len(index_files(root)) == 4
    assert not set(newer) & set(index_files(root))


@pytest.mark.feature("F47")
@pytest.mark.parametrize(("line", "safe"), [("messageIndexSafe = true", True), ("", False)])
def test_a_safe_index_is_made_again_from_where_the_checkpoint_ends(
    killed: tuple[Path, list[str]], tmp_path: Path, line: str, safe: bool
) -> None:
    root, known = killed
    damage_entry(root / "index" / known[2], 5)

    with MessageStore.open(read_config(tmp_path, root, line), background=False) as store:
        report = store.recovery_report
        missing = missing_keys(store)

    # Two files were full and on disk: recovery reads from the record of their last entry on. Without
    # the setting it reads what the log itself calls for, and believes the third file as far as it was.
    assert not report.adopted
    assert len(missing) == (0 if safe else 1)
    assert (known[2] in index_files(root)) is not safe
    assert set(known[:2]) < set(index_files(root))
    first_missing = header_of(root / "index" / known[1]).end_log_offset
    assert (report.start_offset <= first_missing) is safe


@pytest.mark.feature("F47")
def test_a_safe_index_that_was_closed_in_order_is_taken_as_it_is(tmp_path: Path) -> None:
    root = tmp_path / "store"
    config = read_config(tmp_path, root, "messageIndexSafe = true")
    with MessageStore.open(config, background=False, clock=FakeClock()) as store:
        for number in range(COUNT):
            store.append(make_request(number, "T", 0, keys=f"k{number}", unique=False))
    before = index_files(root)

    with MessageStore.open(config, background=False) as store:
        assert store.recovery_report.records == 0
        assert missing_keys(store) == []

    assert index_files(root) == before


def damage_entry(path: Path, number: int) -> None:
    """Let an entry lead nowhere; its file looks as before."""
    with path.open("r+b") as file:
        file.seek(entry_position(number, 50) + 4)
        file.write((1 << 40).to_bytes(8, "big"))


def header_of(path: Path) -> IndexHeader:
    return decode_header(path.read_bytes())


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
