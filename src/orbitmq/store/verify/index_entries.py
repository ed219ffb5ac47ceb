"""The entries of one index file by log offset, without reading all of the file for each question.

Entries stand in log order, except that the Java store enters the last message before a crash twice. So
for each block of entries the lowest and the highest log offset is known, and only blocks that can hold
what is asked for are read; a damaged file just has more of them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError, io_error
from orbitmq.files.layout import StoreLayout
from orbitmq.format.index_file import (
    ENTRY_BYTES,
    ENTRY_DTYPE,
    FIRST_ITEM,
    HEADER_BYTES,
    IndexHeader,
    decode_header,
    entry_position,
)
from orbitmq.format.segment_name import is_index_file_name

Ints = npt.NDArray[np.int64]

BLOCK_ENTRIES: Final = 4096
_STEP_BLOCKS: Final = 64
_NONE: Final = np.zeros(0, dtype=np.int64)
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


@dataclass(slots=True)
class IndexFileView:
    """One index file, mapped."""

    path: Path
    header: IndexHeader
    entries: npt.NDArray[np.void]  # from entry 0 on, up to the header's next item
    slots: npt.NDArray[np.int32]  # big-endian, as in the file


class IndexFileFacts(NamedTuple):
    """An index file as the first look at it found it: later entries are a writer's. Travels to tasks.

    `lows` and `highs` are the lowest and highest log offset of each block of its entries.
    """

    path: Path
    header: IndexHeader
    lows: Ints
    highs: Ints


def list_index_files(layout: StoreLayout) -> list[Path]:
    """Return the files of the index directory, oldest first."""
    directory = layout.index_directory
    try:
        return sorted(path for path in directory.iterdir() if not path.is_dir())
    except FileNotFoundError:
        return []
    except OSError as cause:
        raise io_error(directory, "list", cause) from cause


def open_index_file(
    path: Path, layout: StoreLayout, header: IndexHeader | None = None
) -> IndexFileView:
    """Map a file; `header` is what was read of it before. FormatError: it is no index file."""
    if not is_index_file_name(path.name):
        raise FormatError("is not named as an index file is (17 digits)")
    length = path.stat().st_size
    if length != layout.index_file_bytes:
        raise FormatError(f"has {length} bytes instead of {layout.index_file_bytes}")
    data = np.memmap(path, dtype=np.uint8, mode="r")
    header = header or decode_header(data[:HEADER_BYTES].tobytes())
    if header.next_item > layout.index_items:
        raise FormatError(f"the header counts {header.next_item} entries, too many", 36)
    slots_end = HEADER_BYTES + 4 * layout.index_slots
    entries_end = slots_end + ENTRY_BYTES * header.next_item
    return IndexFileView(
        path,
        header,
        data[slots_end:entries_end].view(ENTRY_DTYPE),
        data[HEADER_BYTES:slots_end].view(">i4"),
    )


def read_header(path: Path) -> IndexHeader | None:
    """Return the header of a file, None if it has none."""
    try:
        with path.open("rb") as file:
            return decode_header(file.read(HEADER_BYTES))
    except (OSError, FormatError):
        return None


def used_bytes(path: Path, layout: StoreLayout) -> int:
    """Return how much of an index file there is to read: header, slots, and the entries that it has."""
    header = read_header(path)
    if header is None:
        return 0
    end = entry_position(header.next_item, layout.index_slots)
    return min(max(end, 0), layout.index_file_bytes)


def lies_inside(offsets: npt.NDArray[Any], header: IndexHeader) -> npt.NDArray[np.bool_]:
    """Return which entries lead to where their file's header says; others are reported by themselves."""
    inside: npt.NDArray[np.bool_] = (offsets >= header.begin_log_offset) & (
        offsets <= header.end_log_offset
    )
    return inside


def index_facts(file: IndexFileView) -> IndexFileFacts:
    """Read all entries once; those outside of the header's range do not count."""
    lows: list[Ints] = []
    highs: list[Ints] = []
    step = BLOCK_ENTRIES * _STEP_BLOCKS
    for first in range(0, len(file.entries), step):
        offsets = file.entries["log_offset"][first : first + step].astype(np.int64)
        outside = ~lies_inside(offsets, file.header)
        outside[: max(FIRST_ITEM - first, 0)] = True
        starts = np.arange(0, len(offsets), BLOCK_ENTRIES)
        lows.append(np.minimum.reduceat(np.where(outside, _HIGHEST, offsets), starts))
        highs.append(np.maximum.reduceat(np.where(outside, _LOWEST, offsets), starts))
    return IndexFileFacts(file.path, file.header, np.concatenate(lows), np.concatenate(highs))


class IndexEntries:
    """The live entries of one file: those that lead to `log_min` or behind it. Not thread-safe."""

    def __init__(self, facts: IndexFileFacts, layout: StoreLayout, log_min: int) -> None:
        self.file = open_index_file(facts.path, layout, facts.header)
        self._facts = facts
        self._log_min = log_min

    def take(self, start: int, end: int) -> tuple[Ints, Ints, Ints]:
        """Return (entry numbers, log offsets, hashes) of this range of log offsets, in its order."""
        start = max(start, self._log_min)
        blocks = np.flatnonzero((self._facts.highs >= start) & (self._facts.lows < end))
        if not len(blocks):
            return _NONE, _NONE, _NONE
        parts = [
            self._of_blocks(blocks[at : at + _STEP_BLOCKS], start, end)
            for at in range(0, len(blocks), _STEP_BLOCKS)
        ]
        numbers = np.concatenate(parts)
        offsets = self.file.entries["log_offset"][numbers].astype(np.int64)
        if len(offsets) and (offsets[1:] < offsets[:-1]).any():  # damaged: normally they rise
            order = np.argsort(offsets, kind="stable")
            numbers, offsets = numbers[order], offsets[order]
        return numbers, offsets, self.file.entries["key_hash"][numbers].astype(np.int64)

    def _of_blocks(self, blocks: npt.NDArray[np.intp], start: int, end: int) -> Ints:
        first, last = int(blocks[0]), int(blocks[-1]) + 1
        if last - first == len(blocks):  # they follow one another, as they should
            numbers = np.arange(first * BLOCK_ENTRIES, last * BLOCK_ENTRIES, dtype=np.int64)
        else:
            inside = np.arange(BLOCK_ENTRIES, dtype=np.int64)
            numbers = (blocks[:, None] * BLOCK_ENTRIES + inside).ravel()
        numbers = numbers[(numbers >= FIRST_ITEM) & (numbers < len(self.file.entries))]
        offsets = self.file.entries["log_offset"][numbers].astype(np.int64)
        wanted = (offsets >= start) & (offsets < end) & lies_inside(offsets, self.file.header)
        found: Ints = numbers[wanted]
        return found
