"""Texts and bodies of many records at once: both forms of the kernels agree with the records themselves."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_stores import STORES
from kernel_cases import golden_scans, make_log, properties
from orbitmq.errors import FormatError
from orbitmq.format.columns import ROW, Bytes, Lists, Rows, ScanOptions, as_bytes_array
from orbitmq.format.kernels import Kernels, compiled, plain
from orbitmq.format.plain.gather import record_starts
from orbitmq.format.record import decode_record
from rounds import rounds

PLAIN, COMPILED = plain(), compiled()
MANY = settings(max_examples=rounds(300), deadline=None)

names = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"TAG", b"KEYSX", b"a", b""])
pieces = st.tuples(
    st.one_of(names, st.binary(max_size=9)),
    st.sampled_from([b"\x01", b"", b"\x01\x01"]),
    st.one_of(st.binary(max_size=40), st.sampled_from([b"", b" ", b"k1 k2", b" a  b "])),
    st.sampled_from([b"\x02", b"", b"\x02\x02"]),
).map(b"".join)
messages = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=300),
        "properties": st.lists(pieces, max_size=8).map(b"".join),
        "sys_flag": st.sampled_from([0, 0x10, 0x20, 0x30]),
        "version": st.sampled_from([1, 2]),
    }
)
ints = st.one_of(st.integers(-3, 80), st.sampled_from([-(2**63), 2**63 - 1, 2**31]))


def _scan(log: Bytes) -> Rows:
    return PLAIN.scan(log, 0, len(log), 0, ScanOptions()).rows


def _lists(found: Lists) -> tuple[list[int], list[Any]]:
    return found.ends.tolist(), found.elements.tolist()


def _text(log: Bytes, at: int, length: int) -> str:
    return log[at : at + length].tobytes().decode("utf-8", "replace")


@MANY
@given(given_messages=st.lists(messages, max_size=5))
def test_both_kernels_find_the_same_texts(given_messages: list[dict[str, Any]]) -> None:
    log = make_log(given_messages)
    rows = _scan(log)

    spans = PLAIN.text_spans(log, rows)
    pairs = PLAIN.property_pairs(log, rows)

    assert len(rows) == len(given_messages)
    assert COMPILED.text_spans(log, rows).tolist() == spans.tolist()
    assert _lists(COMPILED.property_pairs(log, rows)) == _lists(pairs)
    at, lengths = (spans[name].astype(np.int64) for name in ("keys_at", "keys_length"))
    parts = PLAIN.split_parts(log, at, lengths, 0x20)
    assert _lists(COMPILED.split_parts(log, at, lengths, 0x20)) == _lists(parts)


@MANY
@given(given_messages=st.lists(messages, max_size=5), data=st.data())
def test_both_kernels_see_the_same_bodies_as_damaged(
    given_messages: list[dict[str, Any]], data: st.DataObject
) -> None:
    log = make_log(given_messages)
    rows = _scan(log)
    damaged = log.copy()
    for place in data.draw(st.lists(st.integers(0, max(0, len(log) - 1)), max_size=3)):
        damaged[place : place + 1] ^= 0x5A

    expected = PLAIN.bodies_match(damaged, rows)

    assert PLAIN.bodies_match(log, rows).all()
    assert COMPILED.bodies_match(damaged, rows).tolist() == expected.tolist()


@MANY
@given(
    numbers=st.lists(st.tuples(ints, ints, ints), max_size=6),
    buffer=st.binary(max_size=64),
    room=st.integers(0, 64),
)
def test_gather_copies_inside_and_refuses_outside(
    numbers: list[tuple[int, int, int]], buffer: bytes, room: int
) -> None:
    columns = np.array(numbers, dtype=np.int64).reshape(-1, 3)
    outs = []
    for kernels in (PLAIN, COMPILED):
        out = np.zeros(room, dtype=np.uint8)
        try:
            kernels.gather(as_bytes_array(buffer), *columns[:, :2].T, out, columns[:, 2])
        except FormatError:
            assert not out.any()
            outs.append(None)
        else:
            outs.append(out.tolist())

    fits = all(
        size >= 0 and 0 <= at <= len(buffer) - size and 0 <= to <= room - size
        for at, size, to in numbers
    )
    assert (outs[0] is not None) == fits
    assert outs[0] == outs[1]


@pytest.mark.parametrize("name", STORES)
def test_texts_of_golden_records_are_those_of_the_decoded_record(
    name: str, kernels: Kernels
) -> None:
    for log, found in golden_scans(kernels, name):
        rows = found.rows
        spans = kernels.text_spans(log, rows)
        pairs = kernels.property_pairs(log, rows)
        starts = record_starts(rows).tolist()

        assert kernels.bodies_match(log, rows).all()
        for index, start in enumerate(starts):
            record = decode_record(log.data, start)
            tags_at, tags_length, *_, unique_at, unique_length = spans[index].tolist()
            assert _text(log, tags_at, tags_length) == (record.tags or "")
            assert _text(log, unique_at, unique_length) == (record.unique_key or "")
            listed = pairs.elements[pairs.ends[index] : pairs.ends[index + 1]].tolist()
            found_map = {_text(log, *pair[:2]): _text(log, *pair[2:]) for pair in listed}
            assert found_map == record.property_map


def test_of_equal_names_the_last_value_counts_in_the_first_place(kernels: Kernels) -> None:
    raw = b"a\x01one\x02" + properties(b="two") + b"a\x01three\x02a\x01\x02"
    log = make_log([{"properties": raw}])

    pairs = kernels.property_pairs(log, _scan(log))

    texts = [(_text(log, *pair[:2]), _text(log, *pair[2:])) for pair in pairs.elements.tolist()]
    assert texts == [("a", "three"), ("b", "two")]


def test_rows_outside_of_the_buffer_are_refused(kernels: Kernels) -> None:
    rows = np.zeros(1, dtype=ROW)
    rows["properties_at"], rows["properties_length"] = 90, 11
    rows["body_at"], rows["body_length"] = 88, 13
    buffer = np.zeros(100, dtype=np.uint8)

    for act in (kernels.text_spans, kernels.property_pairs, kernels.bodies_match):
        with pytest.raises(FormatError):
            act(buffer, rows)
    far = np.array([2**62], dtype=np.int64)
    with pytest.raises(FormatError):
        kernels.split_parts(buffer, far, far, 0)


def test_positions_without_lengths_are_refused(kernels: Kernels) -> None:
    one, none = np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    buffer = np.zeros(4, dtype=np.uint8)

    with pytest.raises(FormatError):
        kernels.gather(buffer, one, none, buffer, one)
    with pytest.raises(FormatError):
        kernels.gather(buffer, one, one, buffer, none)
    with pytest.raises(FormatError):
        kernels.split_parts(buffer, one, none, 0)
