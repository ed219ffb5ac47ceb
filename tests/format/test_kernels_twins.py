"""The compiled kernels give what the plain ones give, whatever the input."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_cases import (
    DELAY_MS,
    append_rows,
    assert_same_scan,
    make_log,
)
from orbitmq.errors import FormatError
from orbitmq.format.columns import APPEND, ITEM, ROW, ScanOptions, as_bytes_array
from orbitmq.format.kernels import compiled, plain
from orbitmq.format.record import decode_record
from orbitmq.message import SCHEDULE_TOPIC, Property
from orbitmq.wire.fast import kernels as send_kernels
from rounds import rounds

PLAIN, COMPILED = plain(), compiled()
MANY = settings(max_examples=rounds(300), deadline=None)

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.sampled_from([value for key, value in vars(Property).items() if key.isupper()])
numbers = st.one_of(int64.map(str), st.integers(-3, 40).map(str), st.sampled_from(["+5", "x", "0"]))
values = st.one_of(
    st.binary(max_size=40), st.text(max_size=20).map(str.encode), numbers.map(str.encode)
)
pieces = st.tuples(
    st.one_of(names.map(str.encode), st.binary(max_size=9)),
    st.sampled_from([b"\x01", b"", b"\x01\x01"]),
    values,
    st.sampled_from([b"\x02", b"", b"\x02\x02"]),
).map(b"".join)
property_strings = st.lists(pieces, max_size=6).map(b"".join)
topics = st.one_of(
    st.just(SCHEDULE_TOPIC.encode()), st.text(max_size=20).map(str.encode), st.binary(max_size=127)
)
bodies = st.one_of(
    st.binary(max_size=300), st.integers(0, 3000).map(lambda length: b"\xda\xa3\x20\xa7" * length)
)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "body": draw(bodies),
        "topic": draw(topics),
        "properties": draw(property_strings),
        "queue_id": draw(int32),
        "queue_offset": draw(int64),
        "born_ms": draw(int64),
        "flag": draw(int32),
        "sys_flag": draw(st.integers(0, 0x7FF)),
        "reconsume_times": draw(int32),
        "prepared_offset": draw(int64),
        "version": draw(st.sampled_from([1, 2])),
    }


message_lists = st.lists(messages(), max_size=5)
scan_options = st.builds(
    ScanOptions,
    check_crc=st.booleans(),
    check_property_crc=st.booleans(),
    check_offset=st.booleans(),
    delay_ms=st.sampled_from([(), DELAY_MS, (0, -1, 5)]),
    max_rows=st.sampled_from([0, 1, 3, 100]),
)


@st.composite
def damaged_logs(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Return a log with some bytes changed, or bytes that never were a log."""
    log = make_log(draw(message_lists), store_ms=draw(int64), base_offset=draw(st.integers(0, 50)))
    log = np.concatenate((log, as_bytes_array(draw(st.binary(max_size=20)))))
    for _ in range(draw(st.integers(0, 3)) if len(log) else 0):
        log[draw(st.integers(0, len(log) - 1))] = draw(st.integers(0, 255))
    return log


@MANY
@given(damaged_logs(), st.integers(0, 100), st.integers(0, 200), int64, scan_options)
def test_scans_are_equal(
    log: np.ndarray[Any, Any], start: int, cut: int, base_offset: int, options: ScanOptions
) -> None:
    for first, last in ((0, len(log)), (start, len(log) - cut)):
        for base in (0, base_offset):
            results = [k.scan(log, first, last, base, options) for k in (PLAIN, COMPILED)]
            assert_same_scan(*results)


@MANY
@given(damaged_logs(), st.integers(0, 300), st.booleans())
def test_found_records_are_equal_and_can_be_scanned(
    log: np.ndarray[Any, Any], start: int, check_crc: bool
) -> None:
    found = PLAIN.find_record(log, start, len(log), 0, check_crc=check_crc)
    assert COMPILED.find_record(log, start, len(log), 0, check_crc=check_crc) == found
    if found >= 0:
        options = ScanOptions(check_crc=check_crc, check_offset=True, max_rows=1)
        assert len(PLAIN.scan(log, found, len(log), 0, options).rows) == 1


def outcome(function: Any, *arguments: Any, **options: Any) -> Any:
    """Return the result as a list, or FormatError as a value."""
    try:
        return function(*arguments, **options).tolist()
    except FormatError:
        return FormatError


@st.composite
def client_batches(draw: st.DrawFn) -> bytes:
    batch = bytearray()
    for body, raw, flag in draw(
        st.lists(st.tuples(st.binary(max_size=60), property_strings, int32), max_size=4)
    ):
        batch += struct.pack(">iiiii", 22 + len(body) + len(raw), 0, 0, flag, len(body))
        batch += body + struct.pack(">h", len(raw)) + raw
    for _ in range(draw(st.integers(0, 2)) if batch else 0):
        batch[draw(st.integers(0, len(batch) - 1))] = draw(st.integers(0, 255))
    return bytes(batch + draw(st.binary(max_size=3)))


@MANY
@given(
    client_batches(),
    st.one_of(property_strings, st.integers(32_600, 32_767).map(lambda length: b"p" * length)),
    messages(),
    st.booleans(),
)
def test_client_batches_are_equal(
    batch: bytes, extra: bytes, common: dict[str, Any], property_crc: bool
) -> None:
    topic = common["topic"]
    shared = append_rows(
        {name: value for name, value in common.items() if name in (APPEND.names or ())}
    )
    array = as_bytes_array(bytearray(batch))
    outs = [np.zeros(len(batch) + 40_000 * 5, dtype=np.uint8) for _ in range(2)]
    sizes, written = [], []
    for k, out in zip((PLAIN, COMPILED), outs, strict=True):
        arguments = (topic, array, extra)
        sizes.append(outcome(k.client_batch_sizes, *arguments, shared, property_crc=property_crc))
        written.append(
            outcome(
                k.encode_client_batch,
                out,
                7,
                2**40,
                99,
                shared,
                *arguments,
                property_crc=property_crc,
            )
        )
    assert sizes[0] == sizes[1] == written[0] == written[1]
    assert outs[0].tobytes() == outs[1].tobytes()
    at = 7
    for size in sizes[0] if isinstance(sizes[0], list) else ():
        record = decode_record(outs[1], at, check_property_crc=property_crc)
        assert (record.size, record.store_ms, record.log_offset) == (size, 99, 2**40 + at - 7)
        for name in ("queue_id", "sys_flag", "version", "born_ms", "reconsume_times"):
            assert getattr(record, name) == common[name]
        at += size


@st.composite
def unit_rows(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    count = draw(st.integers(0, 40))
    rows = np.zeros(count, dtype=ROW)
    for name in ("log_offset", "store_ms", "tag_hash"):
        rows[name] = draw(st.lists(int64, min_size=count, max_size=count))
    rows["size"] = draw(st.lists(int32, min_size=count, max_size=count))
    few = st.one_of(st.integers(0, 6), int64)
    rows["queue_offset"] = draw(st.lists(few, min_size=count, max_size=count))
    rows["marks"] = draw(st.lists(st.integers(0, 63), min_size=count, max_size=count))
    queues = st.one_of(st.integers(-1, 3), st.integers(-5, 2**20))
    chosen = draw(st.lists(queues, min_size=count, max_size=count))
    return rows, np.array(chosen, dtype=np.int32)


@MANY
@given(unit_rows())
def test_packed_units_are_equal(rows: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]) -> None:
    left, right = PLAIN.pack_units(*rows), COMPILED.pack_units(*rows)
    assert left.units.tobytes() == right.units.tobytes()
    assert left.runs.tolist() == right.runs.tolist()
    assert left.row_index.tolist() == right.row_index.tolist()
    assert [array.dtype for array in (left.units, left.runs, left.row_index)] == [
        array.dtype for array in (right.units, right.runs, right.row_index)
    ]


@MANY
@given(
    st.lists(st.tuples(st.binary(max_size=20), st.integers(-2, 2)), max_size=60),
    st.lists(st.tuples(st.binary(max_size=20), st.integers(-2, 2)), max_size=20),
)
def test_queue_tables_are_equal(
    added: list[tuple[bytes, int]], asked: list[tuple[bytes, int]]
) -> None:
    tables = [k.queue_table() for k in (PLAIN, COMPILED)]
    for name in added:
        assert tables[0].add(*name) == tables[1].add(*name)
    log = make_log([{"topic": topic, "queue_id": queue_id} for topic, queue_id in added + asked])
    rows = PLAIN.scan(log, 0, len(log), 0, ScanOptions()).rows
    resolved = [table.resolve(log, rows) for table in tables]
    assert resolved[0].tolist() == resolved[1].tolist()
    assert len(tables[0]) == len(tables[1]) == len(set(added))
    assert [tables[0].find(*name) for name in asked] == [tables[1].find(*name) for name in asked]


@MANY
@given(message_lists)
def test_index_items_are_equal(given_messages: list[dict[str, Any]]) -> None:
    log = make_log(given_messages)
    rows = PLAIN.scan(log, 0, len(log), 0, ScanOptions()).rows
    left, right = PLAIN.index_items(log, rows), COMPILED.index_items(log, rows)
    assert left.dtype == right.dtype == ITEM
    assert left.tolist() == right.tolist()


@st.composite
def item_arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    times = st.one_of(st.integers(1000, 90_000), int64)
    hashes = st.one_of(st.integers(0, 20), st.integers(0, 2**31 - 1))
    items = draw(st.lists(st.tuples(int64, times, hashes), max_size=60))
    return np.array(items, dtype=ITEM)


@MANY
@given(
    item_arrays(),
    st.integers(1, 12),
    st.lists(int32, max_size=12),
    st.tuples(int64, int64, int64, int64, st.integers(0, 9), st.integers(0, 12)),
    st.integers(0, 70),
    st.integers(0, 1300),
)
def test_index_files_are_equal_and_so_are_their_chains(
    items: np.ndarray[Any, Any],
    slot_count: int,
    old_slots: list[int],
    header: tuple[int, ...],
    items_max: int,
    entries_bytes: int,
) -> None:
    files = []
    for k in (PLAIN, COMPILED):
        slots = np.zeros(slot_count, dtype=np.int32)
        slots[: len(old_slots)] = old_slots[:slot_count]
        entries, state = np.zeros(entries_bytes, dtype=np.uint8), np.array(header, dtype=np.int64)
        first = len(items) // 5
        inserted = k.index_insert(items, first, slots, entries, 0, state, items_max)
        files.append((inserted, state.tolist(), slots.tolist(), entries.tobytes()))
    assert files[0] == files[1]

    _, state, slots, entries = files[0]
    content = struct.pack(">qqqqii", *state) + struct.pack(f">{slot_count}i", *slots) + entries
    for item in items[-5:]:
        _check_chains(content, slot_count, int(item["key_hash"]), int(item["store_ms"]))


def _check_chains(content: bytes, slot_count: int, key_hash: int, store_ms: int) -> None:
    file = as_bytes_array(content)
    for begin, end, count in ((-(2**63), 2**63 - 1, 64), (store_ms, store_ms + 1, 3), (0, 0, 0)):
        arguments = (file, slot_count, key_hash, begin, end, count)
        assert PLAIN.index_chain(*arguments) == COMPILED.index_chain(*arguments)


@MANY
@given(st.binary(max_size=2000), st.integers(0, 20), int32, int64, int64, st.integers(-1, 100))
def test_chains_of_garbage_are_equal(
    content: bytes, slot_count: int, key_hash: int, begin_ms: int, end_ms: int, count: int
) -> None:
    arguments = (as_bytes_array(content), slot_count, key_hash, begin_ms, end_ms, count)
    assert PLAIN.index_chain(*arguments) == COMPILED.index_chain(*arguments)


@MANY
@given(st.binary(max_size=3000), st.integers(0, 17))
def test_checksums_are_equal(content: bytes, start: int) -> None:
    part = as_bytes_array(content)[start:]
    assert PLAIN.crc32(part) == COMPILED.crc32(part)


def test_a_kernel_is_never_loaded_from_the_cache_of_other_sources() -> None:
    from orbitmq.format.compiled import jit

    if jit.BOUNDS_CHECKED:
        pytest.skip("code with checked bounds is not cached")
    send_kernels.compiled()
    for kernel in jit.kernels():
        folder = Path(kernel.py_func.__code__.co_filename).parent
        assert kernel._cache._cache_file._source_stamp == jit.source_stamp(folder)
        assert len(kernel.signatures) == 1
        assert kernel.stats.cache_path
