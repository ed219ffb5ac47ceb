"""A segment of the default size, 1 GiB, full of the largest messages: several tasks share it.

The file is sparse: bodies of zeros are holes, so writing it takes no gigabyte of disk.
"""

from pathlib import Path
from typing import BinaryIO

import pytest

from log_builder import HOST, fake_record
from orbitmq.files.layout import SEGMENT_BYTES
from orbitmq.format.record import BLANK_BYTES, BODY_AT, encode_blank, encode_record
from orbitmq.message import AppendRequest
from orbitmq.units import GiB, KiB, MiB
from spark.table_world import read_tasks, table_reader

BODY_BYTES = 4 * MiB
CUT_BYTES = 64 * MiB
FAKE_BYTES = 60 * KiB
ZEROS = bytes(BODY_BYTES)


def _fakes(start: int) -> bytes:
    """Return a body that is full of records which name their own places, if its record starts here."""
    step = len(fake_record(0, b"x" * FAKE_BYTES))
    count = BODY_BYTES // step
    places = (start + BODY_AT + number * step for number in range(count))
    return b"".join(fake_record(at, b"x" * FAKE_BYTES) for at in places).ljust(BODY_BYTES, b"~")


def _write_record(file: BinaryIO, base: int, start: int, number: int, body: bytes) -> int:
    """Write a record, of zeros in its body only the ends; return where the next one starts."""
    request = AppendRequest("Large", 0, body)
    raw = encode_record(
        request, log_offset=start, queue_offset=number, store_ms=1_700_000_000_000, store_host=HOST
    )
    parts = (0, BODY_AT), (BODY_AT + BODY_BYTES, len(raw))
    for low, high in parts if body is ZEROS else ((0, len(raw)),):
        file.seek(start - base + low)
        file.write(raw[low:high])
    return start + len(raw)


def _write_store(root: Path) -> list[int]:
    """Write a full segment and the first record of a second one; return where the records start.

    Where a split starts, in each 64 MiB, lies a body full of fakes.
    """
    offsets: list[int] = []
    (root / "commitlog").mkdir(parents=True)
    with (root / "commitlog" / f"{0:020d}").open("wb") as file:
        file.truncate(SEGMENT_BYTES)
        at = size = 0
        while at + size + BLANK_BYTES <= SEGMENT_BYTES:
            holds_a_cut = at // CUT_BYTES != (at + BODY_BYTES) // CUT_BYTES
            body = _fakes(at) if holds_a_cut else ZEROS
            offsets.append(at)
            at = _write_record(file, 0, at, len(offsets) - 1, body)
            size = at - offsets[-1]
        file.seek(at)
        file.write(encode_blank(SEGMENT_BYTES - at))
    with (root / "commitlog" / f"{SEGMENT_BYTES:020d}").open("wb") as file:
        file.truncate(SEGMENT_BYTES)
        _write_record(file, SEGMENT_BYTES, SEGMENT_BYTES, len(offsets), ZEROS)
    return [*offsets, SEGMENT_BYTES]


@pytest.mark.feature("P1")
def test_tasks_share_a_segment_whose_bodies_hold_forged_records(tmp_path: Path) -> None:
    expected = _write_store(tmp_path / "store")
    reader = table_reader(path=tmp_path / "store", includeBody="false")

    tasks = reader.partitions()
    rows = read_tasks(reader, tasks)

    assert GiB == SEGMENT_BYTES
    assert len(expected) > 250
    assert len(tasks) == 1 * GiB // (64 * MiB) + 1
    assert [(row["log_offset"], row["topic"], row["queue_offset"]) for row in rows] == [
        (offset, "Large", number) for number, offset in enumerate(expected)
    ]
