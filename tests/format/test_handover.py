"""The two small files between a store and the job that dispatches for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import FormatError
from orbitmq.format.handover import (
    DispatchedOffset,
    ReadableOffset,
    decode_dispatched_offset,
    decode_readable_offset,
)
from orbitmq.format.index_file import IndexHeader

NUMBER = st.integers(0, 2**63 - 1)
DONE = DispatchedOffset(7, 4096, "20260102030405678", IndexHeader(1, 2, 3, 4, 5, 6))


@given(epoch=NUMBER, log_offset=NUMBER, told_ms=NUMBER, closed=st.booleans())
def test_what_a_store_shows_comes_back(epoch, log_offset, told_ms, closed):
    shown = ReadableOffset(epoch, log_offset, told_ms, closed)

    assert decode_readable_offset(shown.encode()) == shown


@pytest.mark.parametrize(
    "done", [DONE, DispatchedOffset(1, 0)], ids=["with an index", "without one"]
)
def test_what_a_job_has_done_comes_back(done):
    assert decode_dispatched_offset(done.encode()) == done


@given(position=st.integers(0, 91), bit=st.integers(0, 7))
def test_a_changed_bit_is_noticed(position, bit):
    raw = bytearray(DONE.encode())
    raw[position] ^= 1 << bit

    with pytest.raises(FormatError):
        decode_dispatched_offset(bytes(raw))


@pytest.mark.parametrize("length", [0, 1, 39, 41, 91])
def test_a_part_is_nothing(length):
    raw = DONE.encode()[:length]

    with pytest.raises(FormatError):
        decode_dispatched_offset(raw)
    with pytest.raises(FormatError):
        decode_readable_offset(raw)


def test_an_index_file_has_a_name_of_digits():
    raw = DispatchedOffset(1, 2, "../../etc/passwd").encode()

    with pytest.raises(FormatError, match="index file"):
        decode_dispatched_offset(raw)
