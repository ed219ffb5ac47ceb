"""The index file: positions, hashes and times, and golden files made again from their records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_bytes import files, joined_log
from golden_stores import acks, rows, settings
from orbitmq.errors import FormatError
from orbitmq.format.index_file import (
    ENTRY,
    SLOT,
    IndexEntry,
    IndexHeader,
    decode_entry,
    decode_header,
    entry_position,
    entry_seconds,
    index_keys,
    key_hash,
    slot_position,
)
from orbitmq.format.java_hash import java_hash
from orbitmq.format.message_id import decode_offset_id
from orbitmq.format.record import decode_record

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
count = st.integers(1, 2**31 - 1)

NEW_FILE = IndexHeader()
SMALLEST_HASH_KEY = "Ctyvxa9"  # java_hash("TopicTest#" + it) is -2**31


@pytest.mark.feature("F36")
def test_positions():
    assert slot_position(0, 5_000_000) == 40
    assert entry_position(0, 5_000_000) == 20_000_040
    assert entry_position(1, 500) - entry_position(0, 500) == 20


@pytest.mark.feature("F36", "F38")
def test_golden_vector_of_a_key():
    value = key_hash("TopicTest", "order_123")

    assert value == 1211765249
    assert value % 5_000_000 == 1765249
    assert slot_position(value, 5_000_000) == 7061036
    assert entry_position(1, 5_000_000) == 20000060


@pytest.mark.feature("F38")
def test_key_with_the_smallest_hash_is_found_again():
    assert java_hash(f"TopicTest#{SMALLEST_HASH_KEY}") == -(2**31)
    index = IndexBuilder(slots=10, items=5)

    index.insert(key_hash("TopicTest", SMALLEST_HASH_KEY), 77, 5000)

    assert key_hash("TopicTest", SMALLEST_HASH_KEY) == 0
    assert chain(bytes(index.file), 10, 0) == [77]


@given(st.text(), st.text())
def test_key_hash_is_never_negative(topic, key):
    assert 0 <= key_hash(topic, key) < 2**31


@pytest.mark.feature("F39")
@pytest.mark.parametrize(
    ("store_ms", "begin_ms", "seconds"),
    [
        (5_999, 1_000, 4),
        (1_000, 1_000, 0),
        (500, 1_000, 0),
        (-(2**62), 1_000, 0),
        (2**62, 1_000, 2**31 - 1),
        (1_000 * 2**31 + 1, 1, 2**31 - 1),
        (1_000 * (2**31 - 2) + 1, 1, 2**31 - 2),
        (9_999, 0, 0),
        (9_999, -5, 0),
    ],
)
def test_seconds_of_an_entry_are_cut_and_bounded(store_ms, begin_ms, seconds):
    assert entry_seconds(store_ms, begin_ms) == seconds


@given(st.builds(IndexHeader, int64, int64, int64, int64, count, count), st.binary())
def test_header_round_trip(header, behind):
    assert decode_header(header.encode() + behind) == header


def test_header_of_a_new_file():
    assert decode_header(bytes(40)) == IndexHeader()
    assert IndexHeader().next_item == 1
    assert IndexHeader(1, 2, 3, 4, 5, 6).following() == IndexHeader(2, 2, 4, 4, 0, 1)


@pytest.mark.parametrize("raw", [b"", bytes(39), bytes(32) + b"\xff" * 8, bytes(36) + b"\xff" * 4])
def test_what_is_no_header(raw):
    with pytest.raises(FormatError):
        decode_header(raw)


@given(st.builds(IndexEntry, int32, int64, int32, int32), st.binary(), st.binary())
def test_entry_round_trip(entry, before, behind):
    assert decode_entry(before + entry.encode() + behind, len(before)) == entry


@pytest.mark.parametrize("position", [-1, 1, 20])
def test_positions_without_room(position):
    with pytest.raises(FormatError):
        decode_entry(bytes(20), position)


def test_values_that_do_not_fit():
    with pytest.raises(FormatError):
        IndexEntry(2**31, 0, 0, 0).encode()
    with pytest.raises(FormatError):
        IndexHeader(next_item=2**31).encode()


@pytest.mark.parametrize(
    ("unique_key", "keys", "sys_flag", "expected"),
    [
        ("u", ["a", "b"], 0, ["u", "a", "b"]),
        (None, ["a"], 0, ["a"]),
        (None, [], 0, []),
        ("u", ["a"], 0x4, ["u", "a"]),
        ("u", ["a"], 0x8, ["u", "a"]),
        ("u", ["a"], 0xC | 0x1, []),
    ],
    ids=["all", "no unique key", "none", "prepared", "commit", "rollback"],
)
def test_keys_under_which_a_message_is_entered(unique_key, keys, sys_flag, expected):
    assert index_keys(unique_key, keys, sys_flag) == expected


class IndexBuilder:
    """The rules of insertion, written down once more, slowly."""

    def __init__(self, slots, items, header=NEW_FILE):
        self.slots, self.items, self.header = slots, items, header
        self.file = bytearray(entry_position(items, slots))

    @property
    def is_full(self):
        return self.header.next_item >= self.items

    def insert(self, value, log_offset, store_ms):
        slot_at, item = slot_position(value, self.slots), self.header.next_item
        (newest,) = SLOT.unpack_from(self.file, slot_at)
        entry = IndexEntry(value, log_offset, entry_seconds(store_ms, self.header.begin_ms), newest)
        ENTRY.pack_into(self.file, entry_position(item, self.slots), *entry)
        SLOT.pack_into(self.file, slot_at, item)
        if item == 1:
            self.header = self.header._replace(begin_ms=store_ms, begin_log_offset=log_offset)
        self.header = self.header._replace(
            end_ms=store_ms,
            end_log_offset=log_offset,
            slot_count=self.header.slot_count + (newest == 0),
            next_item=item + 1,
        )
        self.file[:40] = self.header.encode()


def chain(file, slots, value):
    """Return the log offsets of a hash in one file, newest first."""
    (item,) = SLOT.unpack_from(file, slot_position(value, slots))
    found = []
    while item:
        entry = decode_entry(file, entry_position(item, slots))
        if entry.key_hash == value:
            found.append(entry.log_offset)
        item = entry.previous
    return found


@pytest.mark.parametrize("store", ["mixed", "ext", "batchcq", "propcrc", "timer", "indexroll"])
def test_golden_index_files_are_made_again_from_the_records(store):
    slots = int(settings(store)["maxHashSlotNum"])
    items = int(settings(store)["maxIndexNum"])
    built = []
    for row in rows(store, "record"):
        properties = row["properties"]
        keys = [key for key in properties.get("KEYS", "").split(" ") if key]
        for key in index_keys(properties.get("UNIQ_KEY"), keys, row["sysFlag"]):
            if not built or built[-1].is_full:
                header = built[-1].header.following() if built else NEW_FILE
                built.append(IndexBuilder(slots, items, header))
            built[-1].insert(key_hash(row["topic"], key), row["phyOffset"], row["storeTimestamp"])

    golden = list(files(store, "index").values())
    assert len(golden) == len(built)
    assert golden == [bytes(index.file) for index in built]


@pytest.mark.parametrize("store", ["mixed", "crashed", "cleaned", "indexroll"])
def test_golden_headers(store):
    expected = rows(store, "indexFileAsShipped")

    for row in expected:
        header = decode_header(files(store, "index")[row["file"]])
        assert list(header) == [
            row["beginTimestamp"],
            row["endTimestamp"],
            row["beginPhyOffset"],
            row["endPhyOffset"],
            row["hashSlotCount"],
            row["indexCount"],
        ]

    assert expected


@pytest.mark.feature("F53")
def test_both_ids_of_a_message_lead_to_the_same_record():
    base, log = joined_log("mixed")
    index_files = [data for _, data in files("mixed", "index").items()]
    single = [ack for ack in acks("mixed") if "," not in ack.get("offsetMsgId", ",")][:200]

    for ack in single:
        _, log_offset = decode_offset_id(ack["offsetMsgId"])
        by_offset = decode_record(log, log_offset - base)
        value = key_hash(ack["topic"], ack["msgId"])
        candidates = [offset for data in index_files for offset in chain(data, 500, value)]
        by_key = [decode_record(log, offset - base) for offset in candidates]
        assert by_offset in [record for record in by_key if record.unique_key == ack["msgId"]]
        assert by_offset.unique_key == ack["msgId"]
        assert by_offset.offset_id == ack["offsetMsgId"]

    assert len(single) == 200
