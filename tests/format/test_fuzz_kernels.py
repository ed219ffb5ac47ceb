"""Broken input in great numbers: no kernel fails otherwise than it says, and both forms agree."""

import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kernel_cases import DELAY_MS, append_rows, assert_same_scan, golden_files, golden_records
from orbitmq.errors import FormatError
from orbitmq.format.columns import ITEM, ROW, ScanOptions, Stop, as_bytes_array
from orbitmq.format.kernels import compiled, plain
from rounds import rounds

PLAIN, COMPILED = plain(), compiled()
SEED = 20_240_717
INPUTS_MIN = rounds(200_000)

Array = np.ndarray[Any, Any]
ODD_NUMBERS = (0, 1, -1, 7, 8, 90, 91, 127, 128, 255, 256, 32_767, 2**31 - 1, -(2**31), 65_536)
ODD_BYTES = (0, 1, 2, 0x20, 0x7F, 0x80, 0xC3, 0xDA, 0xE8, 0xF0, 0xFF)
OPTIONS = (
    ScanOptions(delay_ms=DELAY_MS),
    ScanOptions(check_crc=True, delay_ms=DELAY_MS),
    ScanOptions(check_offset=True),
    ScanOptions(check_property_crc=True),
)


class Source:
    """Seeded choices, drawn in bulk: one call into numpy per choice would take most of the time."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._pool: Iterator[int] = iter(())

    def below(self, limit: int) -> int:
        try:
            return next(self._pool) % limit
        except StopIteration:
            self._pool = iter(self._random.integers(0, 2**62, 50_000).tolist())
            return self.below(limit)

    def pick(self, choices: Any) -> Any:
        return choices[self.below(len(choices))]

    def content(self, length: int) -> bytes:
        return self._random.bytes(length)

    def damage(self, data: bytearray, fields: tuple[tuple[int, str], ...] = ()) -> None:
        """Change a few places: a number field, single bytes, or the length."""
        for _ in range(1 + self.below(3)):
            kind = self.below(8)
            if kind < 3 and fields:
                at, code = self.pick(fields)
                width = struct.calcsize(code)
                if 0 <= at <= len(data) - width:
                    number = self.pick(ODD_NUMBERS) + self.below(3) - 1
                    data[at : at + width] = (number % 256**width).to_bytes(width, "big")
            elif kind == 7 and data:
                del data[self.below(len(data)) :]
            elif data:
                at = self.below(len(data))
                data[at] = self.pick(ODD_BYTES) if kind < 6 else data[at] ^ 1 << self.below(8)


def record_fields(
    size: int, body_length: int, properties_length: int
) -> tuple[tuple[int, str], ...]:
    """Return the places of the lengths and flags of a version 1 record."""
    properties_at = size - properties_length - 2
    return ((0, "i"), (36, "i"), (84, "i"), (88 + body_length, "b"), (properties_at, "h"))


def short_records() -> list[tuple[bytes, tuple[tuple[int, str], ...]]]:
    """Return golden records of all kinds, the short ones, each with its number fields."""
    found = []
    for store in ("mixed", "batchcq", "propcrc", "timer"):
        for record, content in golden_records(store)[::3]:
            if len(content) < 1200:
                lengths = record["size"], record["bodyLength"], record["propertiesLength"]
                found.append((content, record_fields(*lengths)))
    return found


def fuzz_scans(source: Source) -> int:
    records, count = short_records(), 0
    good = records[0][0]
    for _ in range(rounds(120_000)):
        content, fields = source.pick(records)
        data = bytearray(content)
        source.damage(data, fields)
        if source.below(4) == 0:
            data += good
        log, options = as_bytes_array(data), source.pick(OPTIONS)
        left = PLAIN.scan(log, 0, len(log), 0, options)
        right = COMPILED.scan(log, 0, len(log), 0, options)
        assert_same_scan(left, right)
        count += 1
        if len(left.rows) and source.below(2):
            assert (
                PLAIN.index_items(log, left.rows).tolist()
                == COMPILED.index_items(log, left.rows).tolist()
            )
            count += 1
    return count


def fuzz_random_bytes(source: Source) -> int:
    for _ in range(rounds(20_000)):
        head = struct.pack(
            ">iI", source.below(400), source.pick((0xDAA320A7, 0xDAA320AB, 0xCBD43194))
        )
        log = as_bytes_array(head + source.content(source.below(300)))
        options = source.pick(OPTIONS)
        assert_same_scan(
            PLAIN.scan(log, 0, len(log), 0, options), COMPILED.scan(log, 0, len(log), 0, options)
        )
    return rounds(20_000)


def fuzz_find(source: Source) -> int:
    records = short_records()
    for _ in range(rounds(15_000)):
        before = source.content(source.below(60)).replace(b"\0", b"\xda\xa3\x20\xa7")
        content, fields = source.pick(records)
        data = bytearray(content)
        (stored,) = struct.unpack_from(">q", data, 28)
        if source.below(2):
            source.damage(data, fields)
        log = as_bytes_array(before + data)
        check_crc, base_offset = bool(source.below(2)), stored - len(before)
        found = PLAIN.find_record(log, 0, len(log), base_offset, check_crc=check_crc)
        assert found == COMPILED.find_record(log, 0, len(log), base_offset, check_crc=check_crc)
        given = log, len(before), len(log) - source.below(3), base_offset
        skipped = PLAIN.skip_records(*given)
        assert skipped == COMPILED.skip_records(*given)
    return rounds(15_000)


def outcome(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return function(*arguments, **options).tolist()
    except FormatError:
        return FormatError


def fuzz_forged_rows(source: Source) -> int:
    """Rows that do not belong to the buffer: an error or a result, nothing outside."""
    table, other = PLAIN.queue_table(), COMPILED.queue_table()
    for known in (b"", b"T", b"\0\0"):
        assert table.add(known, 0) == other.add(known, 0)
    for _ in range(rounds(20_000)):
        buffer = as_bytes_array(source.content(source.below(80)))
        rows = np.zeros(1 + source.below(3), dtype=ROW)
        for name in ("topic_at", "topic_length", "properties_at", "properties_length"):
            for row in rows:
                number = source.pick(ODD_NUMBERS) if source.below(8) == 0 else source.below(40)
                row[name] = max(min(number, 2**31 - 1), -(2**31))
        rows["key_count"] = [source.below(5) - 1 for _ in rows]
        assert outcome(table.resolve, buffer, rows) == outcome(other.resolve, buffer, rows)
        left = outcome(PLAIN.index_items, buffer, rows)
        assert left == outcome(COMPILED.index_items, buffer, rows)
    return rounds(40_000)


def fuzz_packing(source: Source) -> int:
    for _ in range(rounds(8_000)):
        count = source.below(30)
        rows = source.content(count * ROW.itemsize)
        forged = np.frombuffer(rows, dtype=ROW).copy()
        forged["queue_offset"][: count // 2] = np.arange(count // 2) + source.below(3)
        limit = source.pick((3, 50, 2**20))
        numbers = np.array([source.below(limit) - 1 for _ in range(count)], dtype=np.int32)
        left, right = PLAIN.pack_units(forged, numbers), COMPILED.pack_units(forged, numbers)
        assert left.units.tobytes() == right.units.tobytes()
        assert left.runs.tobytes() == right.runs.tobytes()
        assert left.row_index.tolist() == right.row_index.tolist()
    return rounds(8_000)


def fuzz_chains(source: Source) -> int:
    """Golden index files with changed headers, slots and entries."""
    files = list(golden_files("mixed", "index").values())
    for _ in range(rounds(25_000)):
        data = bytearray(source.pick(files))
        entry = 1 + source.below(399)
        (key_hash,) = struct.unpack_from(">i", data, 2040 + 20 * entry)
        places = ((36, "i"), (0, "q"), (40 + 4 * (key_hash % 500), "i"))
        places += tuple((2040 + 20 * entry + at, "i") for at in (0, 12, 16))
        source.damage(data, places)
        file = as_bytes_array(data)
        begin = 0 if source.below(2) else struct.unpack_from(">q", bytes(data).ljust(8, b"\0"))[0]
        arguments = (file, source.pick((500, 500, 499, 2000)), key_hash, begin, 2**62, 64)
        assert PLAIN.index_chain(*arguments) == COMPILED.index_chain(*arguments)
    return rounds(25_000)


def fuzz_inserts(source: Source) -> int:
    for _ in range(rounds(8_000)):
        items = np.frombuffer(source.content(ITEM.itemsize * source.below(20)), dtype=ITEM).copy()
        items["key_hash"] &= 0x7FFFFFFF
        items["store_ms"][::2] = source.below(10**6)
        state = [source.below(10**6), 0, 0, 0, source.below(5), source.pick(ODD_NUMBERS[:9])]
        slots = [source.pick(ODD_NUMBERS) for _ in range(1 + source.below(6))]
        room, items_max, first = 20 * source.below(300), source.below(300), source.below(4)
        results = []
        for kernels in (PLAIN, COMPILED):
            own = np.array(slots, dtype=np.int32), np.zeros(room, dtype=np.uint8)
            header = np.array(state, dtype=np.int64)
            try:
                inserted = kernels.index_insert(
                    items, first, *own, source_first(state), header, items_max
                )
            except FormatError:
                inserted = -1
            results.append((inserted, own[0].tolist(), own[1].tobytes(), header.tolist()))
        assert results[0] == results[1]
    return rounds(8_000)


def source_first(state: list[int]) -> int:
    """Return an entry number to start at that is sometimes right."""
    return state[5] // 2 if state[5] > 0 else state[5]


def fuzz_batches(source: Source) -> int:
    for _ in range(rounds(30_000)):
        batch = bytearray()
        fields: tuple[tuple[int, str], ...] = ()
        for _ in range(source.below(4)):
            body, raw = source.content(source.below(30)), source.content(source.below(30))
            start = len(batch)
            fields += ((start + 16, "i"), (start + 20 + len(body), "h"))
            batch += struct.pack(">iiiii", 0, 0, 0, 3, len(body)) + body
            batch += struct.pack(">h", len(raw)) + raw
        if source.below(3):
            source.damage(batch, fields)
        common = append_rows({"version": source.below(4), "sys_flag": source.below(256)})
        extra, crc = source.content(source.below(20)), bool(source.below(2))
        array = as_bytes_array(batch if batch else b"")
        sizes = outcome(PLAIN.client_batch_sizes, b"T", array, extra, common, property_crc=crc)
        outs = [np.zeros(800, dtype=np.uint8) for _ in range(2)]
        for kernels, out in zip((PLAIN, COMPILED), outs, strict=True):
            written = outcome(
                kernels.encode_client_batch,
                out,
                0,
                9,
                9,
                common,
                b"T",
                array,
                extra,
                property_crc=crc,
            )
            assert written == sizes
        assert outs[0].tobytes() == outs[1].tobytes()
    return rounds(30_000)


def fuzz_checksums(source: Source) -> int:
    data = as_bytes_array(source.content(5000))
    for _ in range(rounds(15_000)):
        start, length = source.below(64), source.below(source.pick((20, 300, 4000)))
        part = data[start : start + length]
        assert PLAIN.crc32(part) == COMPILED.crc32(part)
    return rounds(15_000)


FUZZERS = (
    fuzz_scans,
    fuzz_random_bytes,
    fuzz_find,
    fuzz_forged_rows,
    fuzz_packing,
    fuzz_chains,
    fuzz_inserts,
    fuzz_batches,
    fuzz_checksums,
)


@pytest.mark.fuzz
@pytest.mark.slow
def test_kernels_withstand_broken_inputs_in_great_numbers() -> None:
    counts = [fuzz(Source(SEED + index)) for index, fuzz in enumerate(FUZZERS)]
    assert sum(counts) >= INPUTS_MIN


def test_every_cut_of_a_real_record_is_told_from_a_bad_one() -> None:
    content, _ = short_records()[5]
    for length in range(len(content)):
        log = as_bytes_array(content)[:length]
        left = PLAIN.scan(log, 0, length, 0, ScanOptions(check_crc=True))
        assert_same_scan(left, COMPILED.scan(log, 0, length, 0, ScanOptions(check_crc=True)))
        assert left.stop is (Stop.END if length < 8 else Stop.CUT)
