"""Both kernels read the stores of a real broker as that broker does, and rebuild its files."""

import struct

import numpy as np
import pytest

from golden_stores import STORES, row, rows
from kernel_cases import (
    DELAY_MS,
    append_rows,
    batch_message,
    golden_files,
    golden_records,
    golden_scans,
    golden_segments,
)
from orbitmq.format.columns import Mark, ScanOptions, Stop, as_bytes_array
from orbitmq.format.kernels import Kernels
from orbitmq.message import Host

INDEX_SLOTS, INDEX_ITEMS = 500, 400


@pytest.mark.parametrize("store", STORES)
def test_scan_finds_every_record_and_blank_of_a_real_store(kernels: Kernels, store: str) -> None:
    expected = iter(rows(store, "record"))
    blanks = {found["phyOffset"]: found["size"] for found in rows(store, "blank")}
    met_blanks = {}

    for segment, result in golden_scans(kernels, store, check_crc=True, check_offset=True):
        for scanned in result.rows:
            record = next(expected)
            topic_at, topic_length = scanned["topic_at"], scanned["topic_length"]
            topic = segment[topic_at : topic_at + topic_length].tobytes().decode()
            properties = segment[scanned["properties_at"] :][: scanned["properties_length"]]
            assert topic == record["topic"]
            assert properties.tobytes().decode() == record["propertiesString"]
            assert scanned["log_offset"] == record["phyOffset"]
            assert scanned["size"] == record["size"]
            assert scanned["queue_id"] == record["queueId"]
            assert scanned["sys_flag"] == record["sysFlag"]
            assert scanned["store_ms"] == record["storeTimestamp"]
            assert scanned["body_length"] == record["bodyLength"]
            assert scanned["marks"] == Mark.CRC_CHECKED
        if result.stop is Stop.BLANK:
            base_offset = result.rows[0]["log_offset"]
            met_blanks[base_offset + result.stop_at] = result.stop_size

    assert next(expected, None) is None
    assert met_blanks == blanks


@pytest.mark.parametrize("store", STORES)
def test_scan_of_the_last_segment_ends_where_nothing_was_written(
    kernels: Kernels, store: str
) -> None:
    *_, (segment, result) = golden_scans(kernels, store)

    last = rows(store, "record")[-1]
    assert result.stop is Stop.BAD
    assert result.stop_size == 0
    assert result.stop_at == (last["phyOffset"] + last["size"]) % len(segment)


@pytest.mark.parametrize("store", STORES)
def test_rows_hold_what_the_queue_units_hold(kernels: Kernels, store: str) -> None:
    scanned = {
        int(found["log_offset"]): found
        for _, result in golden_scans(kernels, store)
        for found in result.rows
    }
    seen = 0
    for queue in rows(store, "queue"):
        for index, unit in enumerate(queue["units"]):
            found = scanned[unit[0]]
            assert (found["size"], found["tag_hash"]) == (unit[1], unit[2])
            if queue["cqType"] == "BatchCQ":
                assert (found["queue_offset"], found["batch_count"]) == (unit[3], unit[4])
            else:
                assert found["queue_offset"] == queue["minOffset"] + index
            seen += 1
    assert seen > 0


@pytest.mark.parametrize("store", [name for name in STORES if name not in ("batchcq", "ext")])
def test_packed_units_are_those_that_the_broker_wrote(kernels: Kernels, store: str) -> None:
    table = kernels.queue_table()
    names = [(queue["topic"], queue["queueId"]) for queue in rows(store, "queue")]
    for topic, queue_id in names:
        table.add(topic.encode(), queue_id)
    built: dict[tuple[str, int], dict[int, bytes]] = {name: {} for name in names}
    for segment, result in golden_scans(kernels, store):
        packed = kernels.pack_units(result.rows, table.resolve(segment, result.rows))
        for run in packed.runs:
            for index in range(run["count"]):
                at = 20 * (run["first_unit"] + index)
                unit = packed.units[at : at + 20].tobytes()
                built[names[run["queue_no"]]][int(run["first_queue_offset"] + index)] = unit

    for queue in rows(store, "queue"):
        units = built[queue["topic"], queue["queueId"]]
        expected = [struct.pack(">qiq", *unit) for unit in queue["units"]]
        first = queue["minOffset"]
        assert [units[first + index] for index in range(len(expected))] == expected
        assert max(units, default=-1) < queue["maxOffset"]
        if store != "crashed":
            _check_queue_files(store, queue, units)


def _check_queue_files(store: str, queue: dict[str, object], units: dict[int, bytes]) -> None:
    folder = f"{queue['topic']}/{queue['queueId']}/"
    files = golden_files(store, "consumequeue")
    content = {
        int(path[len(folder) :]): data for path, data in files.items() if path.startswith(folder)
    }
    for queue_offset, unit in units.items():
        base = queue_offset * 20 // 2000 * 2000
        at = queue_offset * 20 - base
        assert content[base][at : at + 20] == unit


@pytest.mark.feature("F36", "F37", "F38", "F40", "F41", "F42")
@pytest.mark.parametrize("store", STORES)
def test_index_files_built_from_the_log_equal_those_of_the_broker(
    kernels: Kernels, store: str
) -> None:
    files = list(golden_files(store, "index").values())
    items = np.concatenate(
        [
            kernels.index_items(segment, result.rows)
            for segment, result in golden_scans(kernels, store)
        ]
    )
    first_kept, state = _skip_deleted_records(files, int(items[0]["log_offset"]))

    for content in files[first_kept:]:
        built, state, used = _build_index_file(kernels, items, state, content)
        items = items[used:]
        assert built == content
    assert len(items) == 0


def _skip_deleted_records(files: list[bytes], first_offset: int) -> tuple[int, np.ndarray]:
    """Return the first file that has an item of the log, and the state its creation starts from."""
    state = np.array([0, 0, 0, 0, 0, 1], dtype=np.int64)
    for number, content in enumerate(files):
        header = struct.unpack_from(">qqqqii", content)
        if header[3] >= first_offset:
            return number, state
        state[:] = header[1], header[1], header[3], header[3], 0, 1
    raise AssertionError("no index file reaches into the log")


def _build_index_file(
    kernels: Kernels, items: np.ndarray, state: np.ndarray, content: bytes
) -> tuple[bytes, np.ndarray, int]:
    """Fill one index file; return it, the state that the next one starts from, and the items used."""
    slots = np.zeros(INDEX_SLOTS, dtype=np.int32)
    entries = np.zeros(INDEX_ITEMS * 20, dtype=np.uint8)
    older = _entries_of_deleted_records(content, int(items[0]["log_offset"]))
    if older:
        # The log behind these entries is gone: take them over and go on from there.
        header = struct.unpack_from(">qqqqii", content)
        state[:] = header[0], 0, header[2], 0, 0, older + 1
        entries[: (older + 1) * 20] = as_bytes_array(content[40 + 4 * INDEX_SLOTS :])[
            : (older + 1) * 20
        ]
        for number in range(1, older + 1):
            (key_hash,) = struct.unpack_from(">i", entries, number * 20)
            state[4] += slots[key_hash % INDEX_SLOTS] == 0
            slots[key_hash % INDEX_SLOTS] = number
    used = kernels.index_insert(items, 0, slots, entries, 0, state, INDEX_ITEMS)
    built = struct.pack(">qqqqii", *state) + slots.astype(">i4").tobytes() + entries.tobytes()
    return built, np.array([state[1], state[1], state[3], state[3], 0, 1], dtype=np.int64), used


def _entries_of_deleted_records(content: bytes, first_offset: int) -> int:
    (next_item,) = struct.unpack_from(">i", content, 36)
    offsets = [
        struct.unpack_from(">q", content, 40 + 4 * INDEX_SLOTS + 20 * number + 4)[0]
        for number in range(1, next_item)
    ]
    return sum(offset < first_offset for offset in offsets)


@pytest.mark.parametrize("store", STORES)
def test_encoding_a_stored_message_again_gives_the_same_bytes(kernels: Kernels, store: str) -> None:
    property_crc = store == "propcrc"
    records = golden_records(store)
    for start in range(0, len(records), 50):
        for record, content in records[start : start + 50]:
            shared, batch = _append_of(record, content, property_crc)
            out = np.zeros(len(content), dtype=np.uint8)
            sizes = kernels.encode_client_batch(
                out,
                0,
                record["phyOffset"],
                record["storeTimestamp"],
                shared,
                record["topic"].encode(),
                as_bytes_array(batch),
                b"",
                property_crc=property_crc,
            )
            assert sizes.tolist() == [len(content)]
            assert out.tobytes() == content


def _append_of(record: dict, content: bytes, property_crc: bool) -> tuple[np.ndarray, bytes]:
    """Return what would have to be appended, as a client batch of one message."""
    body_at = 88
    body = content[body_at : body_at + record["bodyLength"]]
    properties = content[len(content) - record["propertiesLength"] :]
    shared = append_rows(
        {
            "queue_offset": record["queueOffset"],
            "born_ms": record["bornTimestamp"],
            "prepared_offset": record["preparedTransactionOffset"],
            "queue_id": record["queueId"],
            "sys_flag": record["sysFlag"],
            "reconsume_times": record["reconsumeTimes"],
            "version": 2 if record["magic"] == "daa320ab" else 1,
            "born_host": _packed(record["bornHost"]),
            "store_host": _packed(record["storeHost"]),
        }
    )
    kept = properties[:-20] if property_crc else properties
    return shared, batch_message(body, kept, record["flag"])


def _packed(address: str) -> np.void:
    host, port = address.lstrip("/").rsplit(":", 1)
    packed = Host(bytes(map(int, host.split("."))), int(port)).packed()
    return np.void(packed.ljust(20, b"\0"))


def test_the_property_crc_of_a_real_store_is_right_in_every_record(kernels: Kernels) -> None:
    count = 0
    for _, result in golden_scans(kernels, "propcrc", check_property_crc=True):
        count += len(result.rows)
    assert count == len(rows("propcrc", "record"))


def test_records_without_a_property_crc_fail_when_it_is_asked_for(kernels: Kernels) -> None:
    for _, result in golden_scans(kernels, "timer", check_property_crc=True):
        assert (len(result.rows), result.stop, result.stop_at) == (0, Stop.BAD, 0)


@pytest.mark.parametrize("store", STORES)
def test_a_record_is_found_again_from_any_place_in_the_middle(kernels: Kernels, store: str) -> None:
    for base_offset, segment in golden_segments(store):
        options = ScanOptions(delay_ms=DELAY_MS)
        starts = kernels.scan(segment, 0, len(segment), base_offset, options).rows["log_offset"]
        positions = (starts - base_offset).tolist()
        for here, after in zip(positions, [*positions[1:], -1], strict=True):
            assert kernels.find_record(segment, here, len(segment), base_offset) == here
            assert kernels.find_record(segment, here + 1, len(segment), base_offset) == after


def test_the_last_record_is_where_the_manifest_ends(kernels: Kernels) -> None:
    *_, (_, result) = golden_scans(kernels, "crashed", check_crc=True)
    assert (
        result.rows[-1]["log_offset"] + result.rows[-1]["size"]
        == row("crashed", "opened")["maxPhyOffset"]
    )
