"""Every queue, time search, key query and read of the golden stores, against what the Java store said."""

from pathlib import Path

import numpy as np
import pytest

from golden_stores import STORES, row, rows, unpack
from orbitmq.format.batch_unit import decode_units as decode_batch_units
from orbitmq.format.cq_ext_unit import is_ext_address
from orbitmq.format.cq_unit import decode_units
from orbitmq.format.index_file import decode_entry, decode_header, entry_position
from orbitmq.message import Boundary
from orbitmq.store.index.index_load import load_index_files
from orbitmq.store.queues.batch_time_search import batch_offset_by_time
from orbitmq.store.queues.cq_ext import recover_ext
from orbitmq.store.queues.queue_load import load_files
from orbitmq.store.queues.queue_trim import correct_min
from orbitmq.store.queues.time_search import offset_by_time
from orbitmq.store.tag_filter import TagFilter
from queue_world import World, golden_world, verify_all

# `crashed` answers as it does after recovery, which is not the business of these parts.
OPENED_STORES = [name for name in STORES if name != "crashed"]

pytestmark = pytest.mark.parametrize("name", OPENED_STORES)


@pytest.fixture
def world(name: str, tmp_path: Path) -> World:
    world = golden_world(name, unpack(name, tmp_path))
    load_files(world.queues)
    world.batch_queues.load_files()
    load_index_files(world.index)
    if world.ext is not None:
        recover_ext(world.ext, world.queues, world.queues.numbers())
    correct_min(world.queues, world.log.min_offset)
    world.batch_queues.correct_min(world.log.min_offset)
    return world


def _simple_units(world: World, number: int, low: int, high: int) -> list[list[object]]:
    found: list[list[object]] = []
    while low < high:
        units = decode_units(world.queues.read_units(number, low, high - low))
        assert units
        for unit in units:
            if is_ext_address(unit.tag_hash):
                assert world.ext is not None
                ext = world.ext.get(number, unit.tag_hash)
                assert ext is not None
                bits = ext.bitmap.hex() if ext.bitmap else None
                resolved = [ext.tag_hash, ext.store_ms, bits]
                found.append([unit.log_offset, unit.size, ext.tag_hash, resolved])
            else:
                found.append(list(unit))
        low += len(units)
    return found


@pytest.mark.feature("F11", "F12", "F13", "F29", "F31", "F33")
def test_every_queue_unit_is_read_as_the_java_store_reads_it(name: str, world: World) -> None:
    for expected in rows(name, "queue"):
        place = expected["topic"], expected["queueId"]
        limits = expected["minOffset"], expected["maxOffset"], expected["maxPhysicOffset"]
        if expected["cqType"] == "SimpleCQ":
            queues, number = world.queues, world.queues.find(*place)
            units = _simple_units(world, number, limits[0], limits[1])
        else:
            queues, number = world.batch_queues, world.batch_queues.find(*place)
            first, end = queues.unit_range(number)
            raw = b"".join(queues.read_raw(number, n, 1).tobytes() for n in range(first, end))
            units = [
                [
                    u.log_offset,
                    u.size,
                    u.tag_hash,
                    u.base_offset,
                    u.message_count,
                    u.compacted_offset,
                ]
                for u in decode_batch_units(raw)
            ]
        found = queues.min_offset(number), queues.next_offset(number), queues.end_log_offset(number)
        assert (place, found) == (place, limits)
        assert (place, units) == (place, expected["units"])


@pytest.mark.feature("F30")
def test_every_search_by_time_gives_the_same_offset(name: str, world: World) -> None:
    differences = []
    for expected in rows(name, "timeQuery"):
        place = expected["topic"], expected["queueId"]
        for time_ms, lower, upper in expected["timeLowerUpper"]:
            for boundary, answer in ((Boundary.LOWER, lower), (Boundary.UPPER, upper)):
                if (number := world.queues.find(*place)) >= 0:
                    found = offset_by_time(world.queues, world.log, number, time_ms, boundary)
                else:
                    number = world.batch_queues.find(*place)
                    found = batch_offset_by_time(world.batch_queues, number, time_ms, boundary)
                if found != answer:
                    differences.append((*place, time_ms, boundary.name, answer, found))
    assert differences == []


@pytest.mark.feature("F37", "F38", "F49", "F50")
def test_every_key_query_finds_the_same_records_in_the_same_order(name: str, world: World) -> None:
    for expected in rows(name, "keyQuery"):
        asked = expected["topic"], expected["key"], expected["maxNum"]
        window = expected["begin"], expected["end"]
        found = world.keys.query(*asked, *window)
        offsets = [int.from_bytes(record[28:36], "big", signed=True) for record in found]
        assert (asked, window, offsets) == (asked, window, expected["phyOffsets"])


@pytest.mark.feature("F21", "F22", "F23", "F25", "F26")
def test_every_read_of_a_queue_gives_the_same_answer(name: str, world: World) -> None:
    for expected in rows(name, "getMessage"):
        subscription = expected["subscription"]
        wanted = TagFilter.parse(subscription) if subscription is not None else None
        asked = expected["topic"], expected["queueId"], expected["offset"], expected["maxMsgNums"]
        result = world.reader.get(*asked, filter=wanted)
        found = {
            "status": result.status.value,
            "nextBeginOffset": result.next_offset,
            "minOffset": result.min_offset,
            "maxOffset": result.max_offset,
            "phyOffsets": result.log_offsets,
            "queueOffsets": result.queue_offsets,
        }
        assert (asked, subscription, found) == (
            asked,
            subscription,
            {key: expected[key] for key in found},
        )


@pytest.mark.feature("F36", "F40")
def test_every_index_header_is_read_as_the_java_store_reads_it(name: str, world: World) -> None:
    expected = [
        (
            shipped["file"],
            (
                shipped["beginTimestamp"],
                shipped["endTimestamp"],
                shipped["beginPhyOffset"],
                shipped["endPhyOffset"],
                shipped["hashSlotCount"],
                shipped["indexCount"],
            ),
        )
        for shipped in rows(name, "indexFileAsShipped")
    ]

    assert world.index.headers() == expected


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


def test_a_store_that_the_java_broker_wrote_is_adopted_without_a_change(
    name: str, tmp_path: Path
) -> None:
    root = unpack(name, tmp_path)
    world = golden_world(name, root)
    index_before = {path.name: path.read_bytes() for path in (root / "index").iterdir()}
    queues_before = _queue_files(root)

    report = verify_all(world, world.service._options)
    world.write_all()

    assert report.is_clean, report
    assert _queue_files(root) == queues_before
    assert {path.name: path.read_bytes() for path in (root / "index").iterdir()} == index_before
    for expected in rows(name, "queue"):
        if expected["cqType"] == "SimpleCQ":
            queues, number = (
                world.queues,
                world.queues.find(expected["topic"], expected["queueId"]),
            )
        else:
            queues = world.batch_queues
            number = queues.find(expected["topic"], expected["queueId"])
        assert queues.min_offset(number) == expected["minOffset"]
        assert queues.next_offset(number) == expected["maxOffset"]
        assert queues.end_log_offset(number) == expected["maxPhysicOffset"]


def test_the_manifest_says_how_far_the_log_reaches(name: str, world: World) -> None:
    assert world.log.min_offset == row(name, "opened")["minPhyOffset"]
