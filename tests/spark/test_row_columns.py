"""Columns of rows: what the codec decodes record by record, for whole batches."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_cases import make_log, properties
from orbitmq.format.columns import Bytes, ScanOptions
from orbitmq.format.kernels import Kernels, compiled, plain
from orbitmq.format.message_id import encode_offset_id
from orbitmq.format.record import decode_record
from orbitmq.spark.source.row_columns import ARROW_SCHEMA, TIME_MS_MAX, RowColumns
from orbitmq.spark.source.schemas import MESSAGE_COLUMNS

V6 = bytes.fromhex("20010db8000000000000000000000001") + (11_111).to_bytes(4, "big")

names = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"\xc3\xbc", b"\xff", b"\xfe"])
pairs = st.tuples(names, st.one_of(st.binary(max_size=12), st.sampled_from([b"a b", b" k  "])))
messages = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=40),
        "topic": st.one_of(st.text(max_size=9).map(str.encode), st.binary(max_size=9)),
        "properties": st.lists(pairs, max_size=5).map(
            lambda found: b"".join(name + b"\x01" + value + b"\x02" for name, value in found)
        ),
        "queue_id": st.integers(-(2**31), 2**31 - 1),
        "queue_offset": st.integers(-(2**63), 2**63 - 1),
        "born_ms": st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**42)),
        "flag": st.integers(-(2**31), 2**31 - 1),
        "sys_flag": st.sampled_from([0, 4, 8, 12, 0x10, 0x20, 0x30, 0x701]),
        "reconsume_times": st.integers(-(2**31), 2**31 - 1),
        "prepared_offset": st.integers(-(2**63), 2**63 - 1),
        "version": st.sampled_from([1, 2]),
        "born_host": st.sampled_from([np.void(V6), np.void(b"\x0a\0\0\x01\0\0\x30\x39".ljust(20))]),
    }
)


def _rows(kernels: Kernels, log: Bytes, base_offset: int = 0) -> RowColumns:
    found = kernels.scan(log, 0, len(log), base_offset, ScanOptions())
    return RowColumns(kernels, log, found.rows)


def _expected(log: Bytes, start: int, base_offset: int) -> dict[str, Any]:
    record = decode_record(log.data, start)
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "log_offset": base_offset + start,
        "size": record.size,
        "tags": record.tags,
        "keys": record.keys,
        "message_id": record.unique_key,
        "offset_id": encode_offset_id(record.store_host, base_offset + start),
        "born_time": record.born_ms
        if -62_135_596_800_000 <= record.born_ms <= TIME_MS_MAX
        else None,
        "store_time": record.store_ms,
        "born_host": record.born_host.text(),
        "store_host": record.store_host.text(),
        "sys_flag": record.sys_flag,
        "flag": record.flag,
        "reconsume_times": record.reconsume_times,
        "prepared_offset": record.prepared_offset,
        "body_crc": record.body_crc,
        "body_length": len(record.body),
        "properties": record.property_map,
        "body": record.body,
        "error": None,
    }


def _value(name: str, value: Any) -> Any:
    if name == "properties":
        return dict(value)
    if name.endswith("_time") and value is not None:
        return value // 1000
    return value


@pytest.mark.feature("P1")
@settings(max_examples=120, deadline=None)
@given(
    given_messages=st.lists(messages, min_size=1, max_size=20),
    base_offset=st.sampled_from([0, 2**40]),
    kernels=st.sampled_from([plain(), compiled()]),
)
def test_every_column_is_what_the_codec_decodes(
    given_messages: list[dict[str, Any]], base_offset: int, kernels: Kernels
) -> None:
    log = make_log(given_messages, base_offset=base_offset)
    found = _rows(kernels, log, base_offset)
    expected = [_expected(log, start, base_offset) for start in found.starts.tolist()]

    assert len(expected) == len(given_messages)
    for name in MESSAGE_COLUMNS:
        column = found.column(name)
        column.validate(full=True)
        assert column.type == ARROW_SCHEMA.field(name).type
        numbers = column.cast("int64") if name.endswith("_time") else column
        values = [_value(name, value) for value in numbers.to_pylist()]
        assert values == [row[name] for row in expected], name


def test_an_ipv6_host_is_written_in_brackets() -> None:
    log = make_log([{"sys_flag": 0x30, "born_host": np.void(V6), "store_host": np.void(V6)}])

    columns = _rows(compiled(), log)

    assert columns.column("born_host").to_pylist() == ["[2001:db8::1]:11111"]
    assert columns.column("store_host").to_pylist() == ["[2001:db8::1]:11111"]
    assert columns.column("offset_id").to_pylist() == [V6.hex().upper() + "0" * 16]


def test_a_single_body_is_not_copied() -> None:
    log = make_log([{"body": b"b" * 100_000}])

    column = _rows(compiled(), log).column("body")

    assert column.to_pylist() == [b"b" * 100_000]
    start = log.__array_interface__["data"][0]
    assert start <= column.buffers()[2].address < start + len(log)


def test_a_wrong_offset_in_a_record_does_not_reach_its_id() -> None:
    log = make_log([{}], base_offset=512)

    found = _rows(compiled(), log, base_offset=1024)

    assert found.column("log_offset").to_pylist() == [1024]
    assert found.column("offset_id").to_pylist()[0].endswith(f"{1024:016X}")


def test_many_malformed_properties_are_decoded_in_order() -> None:
    raw = [properties(n=str(number)) + b"\xff\x01\xfe\x02" for number in range(50)]

    found = _rows(compiled(), make_log([{"properties": one} for one in raw])).column("properties")

    assert [dict(row) for row in found.to_pylist()] == [
        {"n": str(number), "\ufffd": "\ufffd"} for number in range(50)
    ]
