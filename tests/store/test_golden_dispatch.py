"""Queues and index made from the logs of the golden stores alone, against those of the Java store."""

from pathlib import Path

import numpy as np
import pytest

from golden_stores import STORES, rows, unpack
from orbitmq.format.index_file import decode_entry, decode_header, entry_position
from queue_world import World, golden_world

# `crashed` answers as it does after recovery, which is not the business of these parts.
OPENED_STORES = [name for name in STORES if name != "crashed"]

pytestmark = pytest.mark.parametrize("name", OPENED_STORES)


def _bitmap_of_manifest(name: str):
    """Return a bitmap function that knows what the filters of the real broker computed."""
    bits = {
        unit[0]: bytes.fromhex(unit[3][2])
        for queue in rows(name, "queue")
        for unit in queue["units"]
        if len(unit) > 3 and unit[3][2] is not None
    }
    return lambda chunk, index: bits.get(int(chunk.rows["log_offset"][index]))


def _dispatched(name: str, tmp_path: Path) -> World:
    target = tmp_path / "made"
    world = golden_world(
        name,
        unpack(name, tmp_path),
        target,
        bitmap=_bitmap_of_manifest(name) if name == "ext" else None,
    )
    world.service.dispatch_now()
    world.write_all()
    return world


def _queue_files(root: Path) -> dict[str, bytes]:
    kinds = ("consumequeue", "consumequeue_ext", "batchconsumequeue")
    found = [path for kind in kinds for path in (root / kind).rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


@pytest.mark.feature("F14")
def test_queue_files_made_from_the_log_alone_equal_the_java_ones(name: str, tmp_path: Path) -> None:
    world = _dispatched(name, tmp_path)

    made, java = _queue_files(tmp_path / "made"), _queue_files(tmp_path / name)

    assert world.service.behind_bytes == 0
    if name == "cleaned":
        _assert_equal_from_first_live_unit(made, java, world)
    else:
        assert made == java


def _assert_equal_from_first_live_unit(
    made: dict[str, bytes], java: dict[str, bytes], world: World
) -> None:
    # Queues without live records cannot be made from the log, and units of expired ones are padding.
    for expected in rows("cleaned", "queue"):
        low, high = expected["minOffset"], expected["maxOffset"]
        directory = f"consumequeue/{expected['topic']}/{expected['queueId']}/"
        if low == high:
            assert not any(path.startswith(directory) for path in made)
            continue
        number = world.queues.find(expected["topic"], expected["queueId"])
        assert (world.queues.min_offset(number), world.queues.next_offset(number)) == (low, high)
        first_base = low // 100 * 2000
        for path, data in java.items():
            if path.startswith(directory):
                base = int(path.removeprefix(directory))
                assert base >= first_base
                skip = max(low * 20 - base, 0)
                assert made[path][skip:] == data[skip:]
                padding = np.frombuffer(made[path][:skip], ">i8,>i4,>i8")
                assert all(unit.item() == (0, 0x7FFFFFFF, 0) for unit in padding)


@pytest.mark.feature("F39", "F41", "F42", "F43")
def test_index_files_made_from_the_log_alone_equal_the_java_ones_but_for_their_names(
    name: str, tmp_path: Path
) -> None:
    world = _dispatched(name, tmp_path)

    java = [path.read_bytes() for path in sorted((tmp_path / name / "index").iterdir())]
    made = [path.read_bytes() for path in sorted((tmp_path / "made" / "index").iterdir())]

    if name == "cleaned":
        # Its first entries belong to records that are no longer in the log, so the rest lies in other
        # places of the files: same keys and offsets in the same order, other seconds and chains.
        live = [entry for entry in _entries(java) if entry[1] >= world.log.min_offset]
        assert _entries(made) == live
    else:
        assert made == java


def _entries(files: list[bytes]) -> list[tuple[int, int]]:
    """Return (hash, log offset) of all entries of index files with 500 slots."""
    found = []
    for data in files:
        count = decode_header(data).next_item
        for number in range(1, count):
            entry = decode_entry(data, entry_position(number, 500))
            found.append((entry.key_hash, entry.log_offset))
    return found


@pytest.mark.feature("F17")
def test_dispatching_the_whole_log_twice_changes_nothing(name: str, tmp_path: Path) -> None:
    world = _dispatched(name, tmp_path)
    before = _queue_files(tmp_path / "made")
    headers = world.index.headers()

    world.service._offset = world.log.min_offset
    world.service.dispatch_now()
    world.write_all()

    assert _queue_files(tmp_path / "made") == before
    assert world.index.headers() == headers
