"""What `crc32`, `scan`, `find_record` and `skip_records` promise, asked of both forms."""

import struct
import threading
import zlib

import numpy as np
import pytest

from kernel_cases import (
    STORE_MS,
    make_log,
    properties,
)
from orbitmq.format.columns import Mark, ScanOptions, Stop, as_bytes_array
from orbitmq.format.kernels import Kernels, twins
from orbitmq.format.record import decode_record, encode_blank


def scan(kernels: Kernels, log: np.ndarray, **options: object):
    return kernels.scan(log, 0, len(log), 0, ScanOptions(**options))


def test_crc_is_the_masked_crc_of_zlib_for_any_length_and_alignment(kernels: Kernels) -> None:
    random = np.random.default_rng(5)
    data = random.integers(0, 256, 70_000, dtype=np.uint8)
    lengths = [*range(300), *random.integers(300, 9000, 200), 65_535, 65_536]
    for length in lengths:
        start = int(random.integers(0, 70))
        part = data[start : start + length]
        assert kernels.crc32(part) == zlib.crc32(part) & 0x7FFFFFFF


def test_crc_by_tables_serves_processors_without_carryless_multiplication() -> None:
    from orbitmq.format.compiled.arrays import frozen
    from orbitmq.format.compiled.crc import crc32_by_tables

    data = np.random.default_rng(6).integers(0, 256, 5000, dtype=np.uint8)
    for length in [*range(100), 1000, 4097, 5000]:
        part = data[:length]
        assert crc32_by_tables(frozen(part)) == zlib.crc32(part) & 0x7FFFFFFF


def test_crc_of_the_known_text_and_of_nothing(kernels: Kernels) -> None:
    assert kernels.crc32(as_bytes_array(b"Hello RocketMQ")) == 1774740973
    assert kernels.crc32(np.empty(0, dtype=np.uint8)) == 0


def test_scan_tells_where_every_part_of_a_record_lies(kernels: Kernels) -> None:
    message = {
        "body": b"Hello",
        "topic": b"TopicTest",
        "properties": properties(KEYS="a b", TAGS="TagA"),
        "queue_id": 3,
        "queue_offset": 77,
    }
    log = make_log([{}, message])

    result = scan(kernels, log)

    row = result.rows[1]
    at = int(result.rows[0]["size"])
    record = decode_record(log, at)
    for name, value in (
        ("body", record.body),
        ("topic", record.topic.encode()),
        ("properties", record.properties),
    ):
        start, length = row[f"{name}_at"], row[f"{name}_length"]
        assert log[start : start + length].tobytes() == value
    assert (row["log_offset"], row["size"]) == (at, len(log) - at)
    assert (row["queue_id"], row["queue_offset"], row["batch_count"]) == (3, 77, 1)
    assert (row["store_ms"], row["tag_hash"]) == (STORE_MS, 2598919)
    assert (row["key_count"], row["marks"]) == (2, 0)
    assert (result.stop, result.stop_at, result.stop_size) == (Stop.END, len(log), 0)


@pytest.mark.feature("F5")
def test_scan_stops_at_a_record_with_one_flipped_body_byte_when_it_checks_the_crc(
    kernels: Kernels,
) -> None:
    log = make_log([{"body": b"a" * 500}] * 3)
    size = len(log) // 3
    log[size + 300] ^= 1

    checked, unchecked = scan(kernels, log, check_crc=True), scan(kernels, log)

    assert (len(checked.rows), checked.stop, checked.stop_at) == (1, Stop.BAD, size)
    assert checked.stop_size == size
    assert checked.rows["marks"].tolist() == [Mark.CRC_CHECKED]
    assert (len(unchecked.rows), unchecked.stop) == (3, Stop.END)


@pytest.mark.feature("F5")
def test_scan_stops_at_an_unknown_magic(kernels: Kernels) -> None:
    log = make_log([{}] * 2)
    log[len(log) // 2 + 7] ^= 0xFF

    result = scan(kernels, log)

    assert (len(result.rows), result.stop, result.stop_at) == (1, Stop.BAD, len(log) // 2)


def test_scan_ends_at_a_blank_and_reports_its_size(kernels: Kernels) -> None:
    record = make_log([{}])
    log = np.concatenate((record, as_bytes_array(encode_blank(200)), np.full(192, 7, np.uint8)))

    result = scan(kernels, log)

    assert (result.stop, result.stop_at, result.stop_size) == (Stop.BLANK, len(record), 200)


@pytest.mark.parametrize("left", [0, 3, 7])
def test_scan_ends_where_no_record_can_start(kernels: Kernels, left: int) -> None:
    log = np.concatenate((make_log([{}]), np.zeros(left, np.uint8)))
    result = scan(kernels, log)
    assert (result.stop, result.stop_at) == (Stop.END, len(log) - left)


@pytest.mark.parametrize("cut", [1, 20, 80])
def test_a_record_that_reaches_past_the_range_is_cut_not_bad(kernels: Kernels, cut: int) -> None:
    log = make_log([{}] * 2)
    result = kernels.scan(log, 0, len(log) - cut, 0, ScanOptions())
    size = len(log) // 2
    assert (len(result.rows), result.stop, result.stop_at) == (1, Stop.CUT, size)
    assert result.stop_size == size


def test_a_size_that_its_record_contradicts_is_bad_not_cut(kernels: Kernels) -> None:
    log = make_log([{"body": b"x" * 100}])
    struct.pack_into(">i", log, 0, 1000)
    struct.pack_into(">i", log, 84, 2000)
    assert scan(kernels, log).stop is Stop.BAD


@pytest.mark.parametrize("size", [0, -1, 8, 90, -(2**31)])
def test_a_size_below_the_smallest_record_is_bad(kernels: Kernels, size: int) -> None:
    log = make_log([{}])
    struct.pack_into(">i", log, 0, size)
    result = scan(kernels, log)
    assert (result.stop, result.stop_size) == (Stop.BAD, size)


@pytest.mark.parametrize(("at", "width"), [(84, "i"), (92, "b"), (98, "h")])
@pytest.mark.parametrize("change", [-1, 1])
def test_lengths_that_do_not_add_up_are_bad(
    kernels: Kernels, at: int, width: str, change: int
) -> None:
    log = make_log([{"properties": properties(A="b")}])
    (value,) = struct.unpack_from(f">{width}", log, at)
    struct.pack_into(f">{width}", log, at, value + change)
    result = scan(kernels, log)
    assert (len(result.rows), result.stop) == (0, Stop.BAD)


def test_scan_goes_on_where_it_was_full(kernels: Kernels) -> None:
    log = make_log([{"queue_offset": index} for index in range(10)])
    first = scan(kernels, log, max_rows=4)
    second = kernels.scan(log, first.stop_at, len(log), 0, ScanOptions(max_rows=6))

    assert (first.stop, second.stop) == (Stop.FULL, Stop.END)
    offsets = np.concatenate((first.rows["queue_offset"], second.rows["queue_offset"]))
    assert offsets.tolist() == list(range(10))


@pytest.mark.parametrize(("start", "end"), [(-5, 10**9), (10**9, 5), (0, -1), (50, 20)])
def test_scan_and_find_take_any_range(kernels: Kernels, start: int, end: int) -> None:
    log = make_log([{}])
    result = kernels.scan(log, start, end, 0, ScanOptions())
    assert len(result.rows) == (1 if start < 0 else 0)
    assert kernels.find_record(log, start, end, 0) == (0 if start < 0 else -1)


def test_a_record_that_names_another_offset_is_marked_or_bad(kernels: Kernels) -> None:
    log = make_log([{}], base_offset=8)
    assert scan(kernels, log).rows["marks"].tolist() == [Mark.OFFSET_WRONG]
    assert scan(kernels, log, check_offset=True).stop is Stop.BAD
    right = kernels.scan(log, 0, len(log), 8, ScanOptions(check_offset=True))
    assert right.rows["log_offset"].tolist() == [8]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("hosts", [0, 0x10, 0x20, 0x30])
def test_scan_reads_both_versions_and_all_hosts(kernels: Kernels, version: int, hosts: int) -> None:
    log = make_log([{"version": version, "sys_flag": hosts}])
    row = scan(kernels, log, check_crc=True).rows[0]
    assert row["store_ms"] == STORE_MS
    assert row["size"] == 90 + version + 12 * hosts.bit_count() + len(b"body") + len(b"Topic")


def test_a_topic_longer_than_a_signed_byte_is_bad_in_version_1(kernels: Kernels) -> None:
    log = make_log([{"version": 2, "topic": b"t" * 200}])
    assert len(scan(kernels, log).rows) == 1
    narrow = np.delete(log, 92)  # the high byte of the topic's length
    narrow[7] = 0xA7
    struct.pack_into(">i", narrow, 0, len(narrow))
    assert scan(kernels, narrow).stop is Stop.BAD


def test_find_passes_by_a_magic_inside_a_body(kernels: Kernels) -> None:
    false_start = struct.pack(">iI", 91, 0xDAA320A7) + bytes(100)
    log = make_log([{"body": false_start * 3}, {}])
    second = int(scan(kernels, log).rows[0]["size"])
    assert kernels.find_record(log, 1, len(log), 0) == second


def test_find_wants_a_right_crc_only_if_asked(kernels: Kernels) -> None:
    log = make_log([{"body": b"x" * 200}] * 2)
    log[150] ^= 1
    assert kernels.find_record(log, 0, len(log), 0) == len(log) // 2
    assert kernels.find_record(log, 0, len(log), 0, check_crc=False) == 0


def test_find_sees_a_record_at_every_distance(kernels: Kernels) -> None:
    record = make_log([{}], base_offset=1000)
    for before in range(40):
        log = np.concatenate((np.full(before, 0xDA, np.uint8), record))
        assert kernels.find_record(log, 0, len(log), 1000 - before) == before
        assert kernels.find_record(log, 0, len(log) - 1, 1000 - before) == -1


def test_kernels_run_in_several_threads_at_once(kernels: Kernels) -> None:
    log = make_log([{"body": b"x" * 100, "queue_offset": index} for index in range(2000)])
    counts: list[int] = []

    def work() -> None:
        for _ in range(5):
            counts.append(len(scan(kernels, log, check_crc=True).rows))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert counts == [2000] * 15


def test_read_only_and_writable_buffers_use_the_same_code(kernels: Kernels) -> None:
    log = make_log([{}])
    assert scan(kernels, as_bytes_array(log.tobytes())).rows == scan(kernels, log).rows


def test_both_forms_name_themselves() -> None:
    assert [kernels.name for kernels in twins()] == ["plain", "compiled"]


def test_records_are_skipped_up_to_what_is_none_or_belongs_elsewhere(kernels: Kernels) -> None:
    log = make_log([{}, {"body": b"two"}, {"body": b"three"}])
    rows = kernels.scan(log, 0, len(log), 0, ScanOptions()).rows
    second, third = int(rows["size"][0]), int(rows["size"][:2].sum())
    end = len(log)

    assert kernels.skip_records(log, 0, end, 0) == (end, third)
    assert kernels.skip_records(log, second, end, 0) == (end, third)
    assert kernels.skip_records(log, 0, end - 1, 0) == (third, second)  # the last one is cut
    assert kernels.skip_records(log, 0, 20, 0) == (0, -1)
    assert kernels.skip_records(log, 0, end, 8) == (0, -1)  # offsets are 8 less than they should be
    assert kernels.skip_records(log, 0, end + 9, 0) == (end, third)
    blank = as_bytes_array(log.tobytes()[:second] + encode_blank(end))
    assert kernels.skip_records(blank, 0, len(blank), 0) == (second, 0)
    for at, value in ((third, 0), (third + 3, 5), (third + 4, 0)):  # size and magic
        damaged = log.copy()
        damaged[at : at + 4] = value
        assert kernels.skip_records(damaged, 0, end, 0) == (third, second)
