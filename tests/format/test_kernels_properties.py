"""What a scan reads out of a record's properties, asked of both forms."""

import numpy as np
import pytest

from kernel_cases import (
    DELAY_MS,
    STORE_MS,
    make_log,
    properties,
)
from orbitmq.format.columns import Mark, ScanOptions, Stop
from orbitmq.format.java_hash import java_hash
from orbitmq.format.kernels import Kernels
from orbitmq.message import SCHEDULE_TOPIC, SysFlag


def scan(kernels: Kernels, log: np.ndarray, **options: object):
    return kernels.scan(log, 0, len(log), 0, ScanOptions(**options))


def only_row(kernels: Kernels, message: dict, **options: object) -> np.void:
    result = scan(kernels, make_log([message]), delay_ms=DELAY_MS, **options)
    assert len(result.rows) == 1
    return result.rows[0]


@pytest.mark.parametrize(
    ("raw", "tag"),
    [
        (b"TAGS\x01a\x02", "a"),
        (b"TAGS\x01a", "a"),
        (b"TAGS\x01a\x02TAGS\x01b\x02", "b"),
        (b"TAGS\x01a\x02TAGS\x01\x02", "a"),
        (b"TAGS\x01\x02", None),
        (b"TAGS\x02a", None),
        (b"\x01TAGS\x01a\x02", None),
        (b"XTAGS\x01a\x02", None),
        (b"TAGS\x01a\x01b\x02", "a\x01b"),
        (b"\x02\x02TAGS\x01a\x02\x02", "a"),
        (b"TAG", None),
    ],
)
def test_tag_is_read_by_the_rules_of_the_property_string(
    kernels: Kernels, raw: bytes, tag: str | None
) -> None:
    assert only_row(kernels, {"properties": raw})["tag_hash"] == (java_hash(tag) if tag else 0)


@pytest.mark.parametrize(
    "raw",
    [
        "订单".encode(),
        "😀".encode(),
        b"polygenelubricants",
        b"12345678",
        b"1234567\xe8\xae\xa2",
        b"\xff",
        b"a\xc3",
        b"\xe8\xae",
        b"\xe8\xaeX",
        b"\xed\xa0\x80",
        b"\xc0\xaf",
        b"\xf0\x9f\x98",
        b"\xf4\x90\x80\x80",
        b"\xf0\x8f\xbf\xbf\xbf",
        b"12345678\xff12345678",
    ],
)
def test_tag_hash_counts_utf16_units_and_replaces_what_is_malformed(
    kernels: Kernels, raw: bytes
) -> None:
    row = only_row(kernels, {"properties": b"TAGS\x01" + raw + b"\x02"})
    assert row["tag_hash"] == java_hash(raw.decode("utf-8", "replace"))


@pytest.mark.parametrize(
    ("level", "due"),
    [
        ("1", 1000),
        ("3", 10_000),
        ("18", 7_200_000),
        ("99", 7_200_000),
        ("+2", 5000),
        ("0", None),
        ("-4", None),
        ("2147483647", 7_200_000),
    ],
)
def test_schedule_topic_holds_the_due_time_in_place_of_the_tag(
    kernels: Kernels, level: str, due: int | None
) -> None:
    raw = properties(TAGS="TagA", DELAY=level)
    row = only_row(kernels, {"topic": SCHEDULE_TOPIC.encode(), "properties": raw})
    assert row["tag_hash"] == (2598919 if due is None else STORE_MS + due)
    assert only_row(kernels, {"properties": raw})["tag_hash"] == 2598919


def test_a_level_without_a_delay_is_due_after_a_second(kernels: Kernels) -> None:
    log = make_log([{"topic": SCHEDULE_TOPIC.encode(), "properties": properties(DELAY="1")}])
    assert scan(kernels, log, delay_ms=(0, -1)).rows["tag_hash"].tolist() == [STORE_MS + 1000]


@pytest.mark.parametrize("level", ["x", "+", "-", "1.5", " 1", "1 ", "2147483648", "9" * 40, "١"])
def test_a_delay_that_is_no_number_makes_the_record_bad(kernels: Kernels, level: str) -> None:
    raw = properties(DELAY=level)
    log = make_log([{"topic": SCHEDULE_TOPIC.encode(), "properties": raw}])
    assert scan(kernels, log).stop is Stop.BAD
    assert kernels.find_record(log, 0, len(log), 0) == -1


@pytest.mark.parametrize(
    ("base", "number", "expected"),
    [
        ("100", "8", (100, 8)),
        ("9223372036854775807", "32767", (2**63 - 1, 32767)),
        ("-9223372036854775808", "-32768", (-(2**63), -32768)),
        ("00000000000000000000000012", "+3", (12, 3)),
        ("9223372036854775808", "1", None),
        ("-9223372036854775809", "1", None),
        ("1", "32768", None),
        ("1", "-32769", None),
        ("a", "1", None),
        ("1", "", (5, 1)),
    ],
)
def test_an_inner_batch_has_its_own_first_offset_and_count(
    kernels: Kernels, base: str, number: str, expected: tuple[int, int] | None
) -> None:
    raw = properties(INNER_BASE=base, INNER_NUM=number)
    result = scan(kernels, make_log([{"properties": raw, "queue_offset": 5}]))
    found = [(row["queue_offset"], row["batch_count"]) for row in result.rows]
    assert found == ([] if expected is None else [expected])


def test_marks_name_fillers_light_queues_and_records_without_a_unit(kernels: Kernels) -> None:
    light = {"properties": properties(INNER_MULTI_DISPATCH="%LMQ%a")}
    filler = {"properties": properties(ORBITMQ_FILLER="1")}
    flags = (SysFlag.PREPARED, SysFlag.COMMIT, SysFlag.ROLLBACK)
    log = make_log([light, filler, *({"sys_flag": int(flag)} for flag in flags)])

    marks = scan(kernels, log).rows["marks"].tolist()

    assert marks == [Mark.MULTI_DISPATCH, Mark.FILLER, Mark.NO_UNIT, 0, Mark.NO_UNIT]
