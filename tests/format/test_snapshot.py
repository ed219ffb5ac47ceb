"""The snapshot of queues and index files."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import FormatError
from orbitmq.format.snapshot import (
    QUEUE_ROW,
    IndexState,
    QueueKind,
    QueueState,
    Snapshot,
    decode,
    encode_rows,
)
from snapshot_bytes import encode_snapshot as encode

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
queues = st.builds(QueueState, st.sampled_from(QueueKind), names, int32, int64, int64, int64, int64)
index_files = st.builds(IndexState, st.text("0123456789", min_size=17, max_size=17), int32, int64)
snapshots = st.builds(
    Snapshot,
    int64,
    int64,
    st.lists(queues, max_size=8),
    st.lists(index_files, max_size=4),
)
SMALL = Snapshot(
    generation=3,
    dispatched_offset=4096,
    queues=[
        QueueState(QueueKind.SIMPLE, "TopicA", 0, 0, 10, 4000),
        QueueState(QueueKind.SIMPLE, "TopicA", 1, 5, 10, 4096, ext_end=340),
        QueueState(QueueKind.BATCH, "批", 0, -1, 0, 0),
    ],
    index_files=[IndexState("20261115185321254", 400, 3900)],
)


def with_crc(content):
    return content + zlib.crc32(content).to_bytes(4, "big")


@given(snapshots)
def test_round_trip(snapshot):
    assert decode(encode(snapshot)) == snapshot


def test_empty_snapshot():
    empty = Snapshot(1, 0, [], [])

    assert decode(encode(empty)) == empty
    assert len(encode(empty)) == 52


def test_a_topic_is_written_once():
    raw = encode(SMALL)

    assert raw.count(b"TopicA") == 1
    assert len(raw) == 48 + 3 * 44 + 2 * 2 + 6 + 3 + 29 + 4


def test_rows_give_the_same_bytes():
    rows = np.zeros(3, QUEUE_ROW)
    rows["topic_no"], rows["queue_id"], rows["kind"] = [0, 0, 1], [0, 1, 0], [0, 0, 1]
    rows["min_offset"], rows["next_offset"] = [0, 5, -1], [10, 10, 0]
    rows["end_log_offset"], rows["ext_end"] = [4000, 4096, 0], [-1, 340, -1]

    assert encode_rows(3, 4096, rows, ["TopicA", "批"], SMALL.index_files) == encode(SMALL)


@given(st.data())
def test_any_changed_byte_is_found(data):
    raw = bytearray(encode(SMALL))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))

    with pytest.raises(FormatError):
        decode(bytes(raw))


@given(st.integers(0, len(encode(SMALL)) - 1))
def test_any_cut_is_found(length):
    with pytest.raises(FormatError):
        decode(encode(SMALL)[:length])


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (48, b"\0\0\0\x02", "no topic name"),
        (48, b"\xff\xff\xff\xff", "no topic name"),
        (56, b"\0\0\0\x02", "kind"),
        (24, b"\0\0\0\x04", "says"),
        (24, b"\xff\xff\xff\xff", "says"),
        (180, b"\0\x07", "add up"),
        (184, b"\xff", "UTF-8"),
        (193, b"x", "index file"),
    ],
)
def test_a_right_crc_over_wrong_content_does_not_help(at, value, reason):
    content = bytearray(encode(SMALL)[:-4])
    content[at : at + len(value)] = value

    with pytest.raises(FormatError, match=reason):
        decode(with_crc(bytes(content)))


@pytest.mark.parametrize(
    "snapshot",
    [
        Snapshot(2**63, 0),
        Snapshot(0, 0, [QueueState(QueueKind.SIMPLE, "x" * 65536, 0, 0, 0, 0)]),
        Snapshot(0, 0, [QueueState(QueueKind.SIMPLE, "\ud800", 0, 0, 0, 0)]),
        Snapshot(0, 0, [], [IndexState("wrong", 1, 0)]),
        Snapshot(0, 0, [], [IndexState("0" * 17, 2**31, 0)]),
    ],
)
def test_values_that_do_not_fit(snapshot):
    with pytest.raises(FormatError):
        encode(snapshot)


def test_eighty_thousand_queues():
    many = Snapshot(
        1,
        10**12,
        [
            QueueState(QueueKind.SIMPLE, f"topic-{n // 8:05d}", n % 8, 0, n, n * 1000)
            for n in range(80_000)
        ],
        [],
    )

    raw = encode(many)

    assert len(raw) < 4_000_000
    assert decode(raw) == many
