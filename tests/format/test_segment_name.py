"""Names of segments and index files."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import FormatError
from orbitmq.format.segment_name import (
    index_file_name,
    is_index_file_name,
    parse_segment_name,
    segment_name,
)


@pytest.mark.parametrize(
    ("offset", "name"),
    [
        (0, "00000000000000000000"),
        (1 << 30, "00000000001073741824"),
        (2**63 - 1, "09223372036854775807"),
    ],
)
def test_known_names(offset, name):
    assert segment_name(offset) == name
    assert parse_segment_name(name) == offset


@given(st.integers(0, 2**63 - 1))
def test_round_trip(offset):
    assert parse_segment_name(segment_name(offset)) == offset


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_names_sort_as_their_offsets(a, b):
    assert (segment_name(a) < segment_name(b)) == (a < b)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0",
        "0" * 19,
        "0" * 21,
        "0000000000000000000x",
        "-0000000000000000001",
        "+0000000000000000001",
        " 0000000000000000001",
        "1_000000000000000000",
        "٠" * 20,
        "²" * 20,
        "09223372036854775808",
        "00000000000000000000\n",
        "00000000000000000000.bak",
    ],
)
def test_what_is_no_segment_name(name):
    assert parse_segment_name(name) is None


@given(st.text(max_size=24))
def test_any_text_is_a_name_or_is_not(text):
    offset = parse_segment_name(text)

    assert offset is None or segment_name(offset) == text


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_offsets_that_name_nothing(offset):
    with pytest.raises(FormatError):
        segment_name(offset)


@pytest.mark.parametrize(
    ("zone", "name"), [("UTC", "20261115185321254"), ("Asia/Shanghai", "20261116025321254")]
)
def test_index_file_name_is_local_time(monkeypatch, zone, name):
    monkeypatch.setenv("TZ", zone)
    time.tzset()

    found = index_file_name(1794768801254)
    monkeypatch.undo()
    time.tzset()

    assert found == name
    assert is_index_file_name(found)


@pytest.mark.parametrize("name", ["", "2026111518532125", "20261115185321254.index", "x" * 17])
def test_what_is_no_index_file_name(name):
    assert not is_index_file_name(name)
