"""The checkpoint page and OrbitMQ's extension in it."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_bytes import files
from golden_stores import STORES, row
from orbitmq.errors import FormatError
from orbitmq.format.checkpoint import EXTENSION_AT, Checkpoint, Extension, decode, encode

int64 = st.integers(-(2**63), 2**63 - 1)
checkpoints = st.builds(
    Checkpoint,
    int64,
    int64,
    int64,
    int64,
    int64,
    st.none() | st.builds(Extension, int64, int64, int64, int64),
)
OURS = Checkpoint(10_000, 9_000, 8_000, 7, 6, Extension(5, 4, 3, 2))


@given(checkpoints)
def test_round_trip(checkpoint):
    page = encode(checkpoint)

    assert len(page) == 4096
    assert decode(page) == checkpoint


@pytest.mark.feature("F68")
def test_page_has_4096_bytes_and_the_five_fields():
    page = encode(OURS)

    assert len(page) == 4096
    assert struct.unpack_from(">5q", page) == (10_000, 9_000, 8_000, 7, 6)
    assert page[40:EXTENSION_AT] == bytes(EXTENSION_AT - 40)
    assert page[EXTENSION_AT : EXTENSION_AT + 8] == b"ORBITMQ1"


@pytest.mark.feature("F68")
@pytest.mark.parametrize("store", STORES)
def test_golden_checkpoints(store):
    page = files(store, "checkpoint")["."]
    expected = row(store, "checkpointAsShipped")

    checkpoint = decode(page)

    assert checkpoint == Checkpoint(
        expected["physicMsgTimestamp"],
        expected["logicsMsgTimestamp"],
        expected["indexMsgTimestamp"],
        expected["masterFlushedOffset"],
        expected["confirmPhyOffset"],
    )
    assert encode(checkpoint) == page


def test_an_extension_counts_only_until_java_rewrites_the_fields():
    page = bytearray(encode(OURS))
    struct.pack_into(">q", page, 0, 10_001)

    changed = decode(page)

    assert changed.physic_ms == 10_001
    assert changed.extension is None


@given(st.integers(0, 39) | st.integers(EXTENSION_AT, EXTENSION_AT + 43), st.integers(1, 255))
def test_any_changed_byte_takes_the_extension_away(at, change):
    page = bytearray(encode(OURS))
    page[at] ^= change

    assert decode(page).extension is None


@pytest.mark.parametrize("length", [0, 39, 40, 4095])
def test_short_page(length):
    with pytest.raises(FormatError, match="4096"):
        decode(bytes(length))


def test_zeros_are_an_empty_checkpoint():
    assert decode(bytes(4096)) == Checkpoint()


def test_values_that_do_not_fit():
    with pytest.raises(FormatError):
        encode(Checkpoint(2**63))
