"""Find keys in index files: where their records lie, and which stretches of the log the index does not cover.

An index file covers the log from the record of its first entry to that of its last one; between two files
lie only records without keys, unless a file is missing there, is damaged or was never finished. Nothing
tells these cases apart but the log, so those stretches are given back to be read. The records of a file's
first and last entries belong to them: their other keys may have been entered elsewhere, or not at all.

A chain can be cut without a trace (a previous item of 0), and a running broker writes entries and header
before the slots that lead to them. So all entries of an index are looked at where they are few enough; a
larger index is walked by its chains, and of its last file the newest entries are looked at as well.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError, StoreError
from orbitmq.files.layout import StoreLayout
from orbitmq.format.index_file import (
    ENTRY_BYTES,
    ENTRY_DTYPE,
    FIRST_ITEM,
    HEADER_BYTES,
    SLOT_BYTES,
    decode_header,
    entry_position,
)
from orbitmq.format.segment_name import is_index_file_name
from orbitmq.log_read import Segment
from orbitmq.spark.source.segment import open_segment
from orbitmq.store.offline.query import IndexFile, follow_chain
from orbitmq.units import MiB

WHOLE_BYTES_MAX: Final = 16 * MiB
"""So many bytes of entries are read in full rather than by their chains."""
NEWEST_ENTRIES: Final = 400_000
"""Of the last file: slots lag by what a broker enters between two flushes of its index, a second's work."""

Entries = npt.NDArray[np.void]  # of ENTRY_DTYPE
OnRead = Callable[[int], None]
"""Told how many bytes of files were looked at."""


class KeyOffsets(NamedTuple):
    """Log offsets that may be those of the keys, and the covered stretches [start, end) of the log."""

    log_offsets: list[int]
    covered: list[tuple[int, int]]


class _CoveringFile(NamedTuple):
    file: IndexFile
    entries: Entries
    first: int  # log offset of the first entry's record
    last: int
    segment: Segment


def find_keys(layout: StoreLayout, hashes: frozenset[int], on_read: OnRead) -> KeyOffsets | None:
    """Return what the index says about these key hashes; None: there is no index that can be used."""
    files = _covering_files(layout)
    if not files:
        return None
    read_whole = sum(file.entries.nbytes for file in files) <= WHOLE_BYTES_MAX
    offsets: list[int] = []
    covered: list[tuple[int, int]] = []
    before: int | None = None  # last record of the file before, if that could be used
    for file in files:
        if read_whole:
            found = _all_entries(file.entries, hashes, on_read)
        else:
            found = _chains(file, layout.index_slots, hashes, on_read)
            if file is files[-1] and found is not None:
                newest = _all_entries(file.entries[-NEWEST_ENTRIES:], hashes, on_read)
                found = None if newest is None else found + newest
        if found is not None:
            offsets += found
            # A record's keys may lie in two files: its first ones then need the file before.
            covered.append((file.first if file.first == before else file.first + 1, file.last))
        before = file.last if found is not None else None
    return KeyOffsets(offsets, covered)


def _covering_files(layout: StoreLayout) -> list[_CoveringFile]:
    directory = layout.index_directory
    paths = sorted(directory.iterdir()) if directory.is_dir() else []
    opened = [_open(path, layout) for path in paths if is_index_file_name(path.name)]
    return sorted((file for file in opened if file is not None), key=lambda file: file.first)


def _open(path: Path, layout: StoreLayout) -> _CoveringFile | None:
    """Return a file whose header and ends make sense, None for any other: the log is read instead."""
    try:
        segment = open_segment(str(path), 0)
        data = segment.bring(0, HEADER_BYTES)
        header = decode_header(data)
    except (StoreError, FormatError):
        return None
    # Read from the header before any entry: the entries it counts are there.
    count = header.next_item - FIRST_ITEM
    if len(data) != layout.index_file_bytes or not 0 < count < layout.index_items:
        return None
    at = entry_position(FIRST_ITEM, layout.index_slots)
    segment.bring(at, at + count * ENTRY_BYTES)
    entries: Entries = np.frombuffer(data, ENTRY_DTYPE, count, at)
    first, last = int(entries[0]["log_offset"]), int(entries[-1]["log_offset"])
    if not 0 <= first <= last:
        return None
    return _CoveringFile(IndexFile(path, header, data), entries, first, last, segment)


def _all_entries(entries: Entries, hashes: frozenset[int], on_read: OnRead) -> list[int] | None:
    """Return the offsets of all entries with these hashes, None if the entries are not in log order."""
    on_read(entries.nbytes)
    offsets = entries["log_offset"].astype(np.int64)
    if (np.diff(offsets) < 0).any():
        return None
    wanted = np.isin(entries["key_hash"].astype(np.int32), np.fromiter(hashes, np.int32))
    found: list[int] = offsets[wanted].tolist()
    return found


def _chains(
    file: _CoveringFile, slots: int, hashes: Iterable[int], on_read: OnRead
) -> list[int] | None:
    offsets: list[int] = []
    file.segment.bring(0, entry_position(FIRST_ITEM, slots))  # the slots, too
    for wanted in hashes:
        chain = follow_chain(file.file, slots, wanted)
        on_read(SLOT_BYTES + chain.walked * ENTRY_BYTES)
        newest_first = all(newer >= older for newer, older in pairwise(chain.log_offsets))
        if not chain.whole or not newest_first:
            return None
        offsets += chain.log_offsets
    return offsets
