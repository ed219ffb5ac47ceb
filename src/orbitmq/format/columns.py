"""Columns that the kernels exchange: one row per record, index item or run of units.

A position (`*_at`) counts from the start of the scanned buffer; an offset counts from the start of
the commit log.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]  # one dimension, contiguous
Rows = npt.NDArray[np.void]  # of ROW
Ints = npt.NDArray[np.int64]

ROW: Final = np.dtype(
    [
        ("log_offset", "i8"),  # where the record really lies, not what it says of itself
        ("store_ms", "i8"),
        ("queue_offset", "i8"),  # INNER_BASE for an inner batch, else the record's own field
        (
            "tag_hash",
            "i8",
        ),  # what the queue unit holds: tag hash, or due time in the schedule topic
        ("size", "i4"),
        ("queue_id", "i4"),
        ("sys_flag", "i4"),
        ("batch_count", "i4"),  # INNER_NUM for an inner batch, else 1
        ("topic_at", "i4"),
        ("topic_length", "i4"),
        ("body_at", "i4"),
        ("body_length", "i4"),
        ("properties_at", "i4"),
        ("properties_length", "i4"),
        ("key_count", "i4"),  # index items: UNIQ_KEY plus parts of KEYS; 0 for a rollback
        ("marks", "i4"),  # Mark bits
    ],
    align=True,
)


class Mark:
    """Bits of ROW.marks: what a driver must know beyond the columns."""

    CRC_CHECKED: Final = 2
    OFFSET_WRONG: Final = 4  # the record names another log offset than its place
    MULTI_DISPATCH: Final = 8  # has INNER_MULTI_DISPATCH: extra units, made by the driver
    FILLER: Final = 16  # stands where a damaged record was
    NO_UNIT: Final = 32  # prepared or rollback: no queue unit


class Stop(IntEnum):
    """Why a scan ended."""

    END = 0  # the next record would start at the end of the range, or there is no room for one
    BLANK = 1  # an end-of-segment record lies at `stop_at`
    BAD = 2  # no valid record at `stop_at`
    FULL = 3  # as many rows as asked for; go on at `stop_at`
    CUT = 4  # a record starts at `stop_at` and reaches past the range


@dataclass(frozen=True, slots=True)
class ScanResult:
    """Rows of the records from the start of the scan, and where and why it ended.

    `stop_size` is the size field found at `stop_at`, 0 if unreadable. For BLANK it should be what is left
    of the segment: the caller, who knows the segment, compares.
    """

    rows: Rows
    stop: Stop
    stop_at: int
    stop_size: int


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """How a scan reads.

    `delay_ms[level]` is the delay of each level for the schedule topic (index 0 unused; below 0: not
    known, a second is taken). Without any, records of that topic keep their tag hash.
    `max_rows` bounds the memory of one call.
    """

    check_crc: bool = False  # a record whose body CRC is wrong stops the scan (BAD)
    check_property_crc: bool = False  # forceVerifyPropCRC: that CRC in place of the body's
    check_offset: bool = False  # a record that names another offset stops the scan (BAD)
    delay_ms: tuple[int, ...] = ()
    max_rows: int = 1 << 20


SPANS: Final = np.dtype(
    [
        ("tags_at", "i4"),
        ("tags_length", "i4"),
        ("keys_at", "i4"),
        ("keys_length", "i4"),
        ("unique_at", "i4"),  # UNIQ_KEY
        ("unique_length", "i4"),
    ],
    align=True,
)
"""Where the values of three properties lie in the buffer; both numbers 0 where there is none."""

PAIR: Final = np.dtype(
    [("name_at", "i4"), ("name_length", "i4"), ("value_at", "i4"), ("value_length", "i4")],
    align=True,
)
"""Where name and value of one property lie in the buffer."""

PART: Final = np.dtype([("at", "i4"), ("length", "i4")], align=True)
"""Where one part of a text lies in the buffer."""


@dataclass(frozen=True, slots=True)
class Lists:
    """Several elements per row: those of row i are elements[ends[i]:ends[i + 1]]."""

    ends: npt.NDArray[np.int32]  # one more than there are rows, the first is 0
    elements: npt.NDArray[np.void]


RUN: Final = np.dtype(
    [
        ("queue_no", "i4"),
        ("count", "i4"),
        ("first_queue_offset", "i8"),
        ("first_unit", "i8"),  # index of the run's first unit in PackedUnits.units
        ("end_log_offset", "i8"),  # end of the run's last record
        ("last_store_ms", "i8"),
    ],
    align=True,
)


@dataclass(frozen=True, slots=True)
class PackedUnits:
    """Queue units grouped by queue, in log order inside each queue.

    A run is a stretch of one queue with consecutive queue offsets; a gap or a repeat starts a new run.
    `units` is the packed 20-byte form, one after another, in run order.
    `row_index[i]` is the row that unit i came from.
    """

    units: Bytes
    runs: npt.NDArray[np.void]  # of RUN
    row_index: npt.NDArray[np.int64]


ITEM: Final = np.dtype([("log_offset", "i8"), ("store_ms", "i8"), ("key_hash", "i4")], align=True)
"""One key of one record: what goes into an index file, in order of insertion."""

APPEND: Final = np.dtype(
    [
        ("queue_offset", "i8"),
        ("born_ms", "i8"),
        ("prepared_offset", "i8"),
        ("queue_id", "i4"),
        ("sys_flag", "i4"),  # host bits already set
        ("reconsume_times", "i4"),
        ("version", "i4"),  # 1 or 2
        ("born_host", "V20"),  # packed host: 8 or 20 bytes used, by sys_flag
        ("store_host", "V20"),
    ],
    align=True,
)
"""What the records of a client batch have in common."""


class QueueTable(Protocol):
    """Numbers every (topic, queue id) of a store: 0, 1, 2, ... in order of `add`. Not thread-safe."""

    def add(self, topic: bytes, queue_id: int) -> int:
        """Return the number of this queue, a new one if it was not known."""

    def find(self, topic: bytes, queue_id: int) -> int:
        """Return the number of this queue, or -1."""

    def resolve(self, buffer: Bytes, rows: Rows) -> npt.NDArray[np.int32]:
        """Return the queue number of each row, -1 where the queue is not in the table."""

    def __len__(self) -> int: ...


def as_bytes_array(buffer: Any) -> Bytes:
    """Return the buffer as a uint8 array without copying."""
    return np.frombuffer(buffer, dtype=np.uint8)
