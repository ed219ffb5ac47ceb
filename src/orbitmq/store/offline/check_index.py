"""Compare index files with the log, both ways, and each file with itself.

Entries stand in log order, except that the Java store enters the last message before a crash twice.
Each chunk of the log is compared with the entries of the same range of log offsets, as sets of (record,
key hash); chains and slots are checked by making them again from the entries' own hashes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError, io_error
from orbitmq.files.layout import StoreLayout
from orbitmq.format.columns import ITEM
from orbitmq.format.index_file import (
    ENTRY_BYTES,
    ENTRY_DTYPE,
    FIRST_ITEM,
    HEADER_BYTES,
    IndexHeader,
    decode_header,
    entry_position,
)
from orbitmq.format.kernels import Kernels
from orbitmq.format.segment_name import is_index_file_name
from orbitmq.store.dispatch import Chunk
from orbitmq.store.offline.findings import LOOK_STEP, Findings, Kind, Severity

_HASH_BITS: Final = 31
_CHAIN_STEP: Final = 1 << 20
_NAMED_MAX: Final = 3  # entries that one finding names

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class IndexFileView:
    """One index file, mapped. `offsets` and `order` are made when the log reaches it."""

    path: Path
    header: IndexHeader
    entries: npt.NDArray[np.void]  # from entry 0 on, up to the header's next item
    slots: npt.NDArray[np.int32]  # big-endian, as in the file


class IndexCheck:
    """The index of one store. `add` every chunk of the log in order, then `finish`. Not thread-safe.

    Entries of records from `lag_from` on may be missing.
    """

    def __init__(
        self,
        layout: StoreLayout,
        kernels: Kernels,
        findings: Findings,
        *,
        log_min: int,
        lag_from: int,
    ) -> None:
        self.lagging = 0
        self._layout = layout
        self._kernels = kernels
        self._findings = findings
        self._log_min = log_min
        self._lag_from = lag_from
        self.files = list(self._open_files())
        self._cursors = [_Cursor(file, log_min) for file in self.files]
        self._missing: list[tuple[int, int]] = []  # (log offset, count), bounded
        self._missing_count = 0
        for file in self.files:
            self._check_chains(file)
        self._check_order()

    def _open_files(self) -> Iterator[IndexFileView]:
        for path in _list(self._layout.index_directory):
            try:
                yield self._open(path)
            except FormatError as error:
                self._findings.add(Kind.FILE, path, error.position, error.reason)

    def _open(self, path: Path) -> IndexFileView:
        if not is_index_file_name(path.name):
            raise FormatError("is not named as an index file is (17 digits)")
        length = path.stat().st_size
        if length != self._layout.index_file_bytes:
            raise FormatError(f"has {length} bytes instead of {self._layout.index_file_bytes}")
        data = np.memmap(path, dtype=np.uint8, mode="r")
        header = decode_header(data[:HEADER_BYTES].tobytes())
        if header.next_item > self._layout.index_items:
            raise FormatError(f"the header counts {header.next_item} entries, too many", 36)
        slots_end = HEADER_BYTES + 4 * self._layout.index_slots
        entries_end = slots_end + ENTRY_BYTES * header.next_item
        return IndexFileView(
            path,
            header,
            data[slots_end:entries_end].view(ENTRY_DTYPE),
            data[HEADER_BYTES:slots_end].view(">i4"),
        )

    # --- each file by itself ---

    def _check_chains(self, file: IndexFileView) -> None:
        """Make slots and chains again from the hashes and compare."""
        slots = np.zeros(self._layout.index_slots, dtype=np.int32)
        state = np.zeros(6, dtype=np.int64)
        state[5] = FIRST_ITEM
        for first in range(FIRST_ITEM, file.header.next_item, _CHAIN_STEP):
            stored = file.entries[first : first + _CHAIN_STEP]
            items = np.zeros(len(stored), dtype=ITEM)
            items["log_offset"] = stored["log_offset"]
            items["key_hash"] = stored["key_hash"] & 0x7FFFFFFF
            made = np.zeros(len(stored) * ENTRY_BYTES, dtype=np.uint8)
            self._kernels.index_insert(
                items, 0, slots, made, first, state, self._layout.index_items
            )
            self._report_outside(file, first, stored)
            previous = made.view(ENTRY_DTYPE)["previous"]
            for index in np.flatnonzero(previous != stored["previous"]).tolist()[:_NAMED_MAX]:
                self._chain_finding(file, first + index, stored[index], int(previous[index]))
        self._check_slots(file, slots)
        self._check_header(file, int(state[4]))

    def _report_outside(
        self, file: IndexFileView, first: int, stored: npt.NDArray[np.void]
    ) -> None:
        outside = np.flatnonzero(~_lies_inside(stored["log_offset"], file.header))
        self._report_entries(file, first + outside, "leads to a record outside of its file's range")

    def _chain_finding(
        self, file: IndexFileView, item: int, stored: np.void, expected: int
    ) -> None:
        position = entry_position(item, self._layout.index_slots) + 16
        cause = f"entry {item}: its chain goes on at {stored['previous']} instead of {expected}"
        self._findings.add(
            Kind.CHAIN, file.path, position, cause, log_offset=int(stored["log_offset"])
        )

    def _check_slots(self, file: IndexFileView, slots: npt.NDArray[np.int32]) -> None:
        wrong = np.flatnonzero(file.slots != slots).tolist()
        for slot in wrong[:_NAMED_MAX]:
            more = f" ({len(wrong)} slots in all)" if len(wrong) > 1 else ""
            cause = f"slot {slot} starts at entry {file.slots[slot]} instead of {slots[slot]}{more}"
            self._findings.add(Kind.CHAIN, file.path, HEADER_BYTES + 4 * slot, cause)

    def _check_header(self, file: IndexFileView, slot_count: int) -> None:
        header = file.header
        if header.slot_count != slot_count:
            cause = f"the header counts {header.slot_count} slots, {slot_count} are in use"
            self._findings.add(Kind.CHAIN, file.path, 32, cause)
        if header.next_item <= FIRST_ITEM:
            return
        first, last = file.entries[FIRST_ITEM], file.entries[-1]
        for at, name, found, entry in (
            (16, "begins", header.begin_log_offset, first),
            (24, "ends", header.end_log_offset, last),
        ):
            if found != entry["log_offset"]:
                cause = (
                    f"the header {name} at log offset {found}, the entries at {entry['log_offset']}"
                )
                self._findings.add(Kind.CHAIN, file.path, at, cause)

    def _check_order(self) -> None:
        """A file that is not full must be the last one."""
        for file in self.files[:-1]:
            if file.header.next_item < self._layout.index_items:
                cause = f"has only {file.header.next_item - 1} entries, but a newer file follows"
                self._findings.add(
                    Kind.INDEX, file.path, 36, cause, advice=LOOK_STEP, severity=Severity.NOTE
                )

    # --- against the log ---

    def add(self, chunk: Chunk) -> None:
        """Expect an entry for every key of the chunk's records."""
        rows = chunk.rows
        if not len(rows):
            return
        start = int(rows["log_offset"][0])
        end = int(rows["log_offset"][-1]) + int(rows["size"][-1])
        items = chunk.items
        if items is None:
            items = self._kernels.index_items(chunk.buffer, rows)
        expected = _pairs(items["log_offset"], items["key_hash"], start)
        times = items["store_ms"]
        for cursor in self._cursors:
            cursor.release(start)
        found = [(cursor, *cursor.take(start, end)) for cursor in self._cursors]
        found = [part for part in found if len(part[1])]
        stored = [_pairs(part[2], part[3], start) for part in found]
        everything = np.concatenate(stored) if stored else expected[:0]
        if not np.array_equal(expected, everything):  # it is, unless something is wrong
            self._find_missing(expected, start, everything)
            order = np.argsort(expected, kind="stable")
            expected, times = expected[order], times[order]
            for (cursor, numbers, *_), pairs in zip(found, stored, strict=True):
                self._check_entries(cursor.file, numbers, pairs, expected, times)
            return
        at = 0
        for cursor, numbers, *_ in found:
            self._check_times(cursor.file, numbers, times[at : at + len(numbers)])
            at += len(numbers)

    def _find_missing(self, expected: Ints, start: int, everything: Ints) -> None:
        missing = expected[~np.isin(expected, everything)]
        if not len(missing):
            return
        offsets = (missing >> _HASH_BITS) + start
        late = offsets >= self._lag_from
        self.lagging += int(late.sum())
        offsets = offsets[~late]
        if len(offsets):
            self._missing_count += len(offsets)
            self._missing.append((int(offsets[0]), len(offsets)))

    def _check_entries(
        self, file: IndexFileView, numbers: Ints, pairs: Ints, expected: Ints, times: Ints
    ) -> None:
        at = np.searchsorted(expected, pairs)
        known = at < len(expected)
        known[known] = expected[at[known]] == pairs[known]
        self._report_entries(file, numbers[~known], "belongs to no record of the log")
        self._check_times(file, numbers[known], times[at[known]])

    def _check_times(self, file: IndexFileView, numbers: Ints, times: Ints) -> None:
        """Compare the seconds of these entries with the store times of their records."""
        seconds = np.maximum((times - file.header.begin_ms) // 1000, 0)
        # The first entry's seconds count from the end of the file before.
        wrong = (file.entries["seconds"][numbers] != seconds) & (numbers > FIRST_ITEM)
        self._report_entries(file, numbers[wrong], "has another time than its record")

    def _report_entries(self, file: IndexFileView, numbers: Ints, cause: str) -> None:
        if not len(numbers):
            return
        item = int(numbers[0])
        more = f" ({len(numbers) - 1} more like it)" if len(numbers) > 1 else ""
        position = entry_position(item, self._layout.index_slots)
        offset = int(file.entries["log_offset"][item])
        self._findings.add(
            Kind.INDEX, file.path, position, f"entry {item} {cause}{more}", log_offset=offset
        )

    def finish(self, log_end: int) -> None:
        """Report what is missing, and entries that lead behind the end of the log."""
        if self._missing_count:
            first = self._missing[0][0]
            cause = f"{self._missing_count} key(s) of records are in no index file"
            path = self._file_for(first)
            self._findings.add(
                Kind.INDEX, path, 0, f"{cause}, the first at log offset {first}", log_offset=first
            )
        for cursor in self._cursors:
            numbers, *_ = cursor.take(log_end, 2**63 - 1)
            self._report_entries(cursor.file, numbers, "leads behind the end of the log")

    def _file_for(self, log_offset: int) -> Path:
        """Return the file that should hold this record's keys, the directory if there is none."""
        for file in self.files:
            if file.header.begin_log_offset <= log_offset <= file.header.end_log_offset:
                return file.path
        return self._layout.index_directory


class _Cursor:
    """The entries of one file by log offset, taken range by range in rising order."""

    def __init__(self, file: IndexFileView, log_min: int) -> None:
        self.file = file
        self._log_min = log_min
        self._offsets: Ints | None = None  # of the live entries, rising
        self._numbers = _NONE
        self._hashes = _NONE

    def take(self, start: int, end: int) -> tuple[Ints, Ints, Ints]:
        """Return (entry numbers, log offsets, hashes) of this range of log offsets."""
        if self._offsets is None:
            if not self._may_hold(end):
                return _NONE, _NONE, _NONE
            self._sort()
        assert self._offsets is not None
        first, last = np.searchsorted(self._offsets, (start, end)).tolist()
        return self._numbers[first:last], self._offsets[first:last], self._hashes[first:last]

    def _may_hold(self, end: int) -> bool:
        return self.file.header.begin_log_offset < end or self.file.header.next_item <= FIRST_ITEM

    def _sort(self) -> None:
        offsets = self.file.entries["log_offset"].astype(np.int64)
        numbers = np.arange(len(offsets), dtype=np.int64)
        live = (offsets >= self._log_min) & _lies_inside(offsets, self.file.header)
        live[:FIRST_ITEM] = False
        offsets, numbers = offsets[live], numbers[live]
        if len(offsets) and (offsets[1:] < offsets[:-1]).any():  # damaged: normally they rise
            order = np.argsort(offsets, kind="stable")
            offsets, numbers = offsets[order], numbers[order]
        self._offsets, self._numbers = offsets, numbers
        self._hashes = self.file.entries["key_hash"][numbers].astype(np.int64)

    def release(self, start: int) -> None:
        """Give back the memory of a file that lies wholly before `start`."""
        if self._offsets is not None and len(self._offsets) and self._offsets[-1] < start:
            self._offsets = self._numbers = self._hashes = _NONE


_NONE: Final = np.zeros(0, dtype=np.int64)


def _lies_inside(offsets: npt.NDArray[Any], header: IndexHeader) -> npt.NDArray[np.bool_]:
    """Return which entries lead to where their file's header says; others are reported by themselves."""
    inside: npt.NDArray[np.bool_] = (offsets >= header.begin_log_offset) & (
        offsets <= header.end_log_offset
    )
    return inside


def _pairs(offsets: npt.NDArray[np.int64], hashes: npt.NDArray[Any], start: int) -> Ints:
    """Return (record, key) as one number each; a chunk lies in one segment, so 62 bits are enough."""
    relative = offsets.astype(np.int64) - start
    pairs: Ints = (relative << _HASH_BITS) | hashes.astype(np.int64)
    return np.where(hashes < 0, -1, pairs)  # no hash is negative: such an entry is nobody's


def _list(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if not path.is_dir())
    except FileNotFoundError:
        return []
    except OSError as cause:
        raise io_error(directory, "list", cause) from cause
