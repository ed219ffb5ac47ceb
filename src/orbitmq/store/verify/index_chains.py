"""Check each index file by itself: chains and slots are made again from the entries' own hashes."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.files.layout import StoreLayout
from orbitmq.format.columns import ITEM
from orbitmq.format.index_file import (
    ENTRY_BYTES,
    ENTRY_DTYPE,
    FIRST_ITEM,
    HEADER_BYTES,
    entry_position,
)
from orbitmq.format.kernels import Kernels
from orbitmq.store.verify.findings import Findings, Kind
from orbitmq.store.verify.index_entries import (
    IndexFileFacts,
    IndexFileView,
    Ints,
    index_facts,
    lies_inside,
    open_index_file,
)

_CHAIN_STEP: Final = 1 << 20
_NAMED_MAX: Final = 3  # entries of one file or part of it that get a finding each

_LIVE_TRIES: Final = 5
_LIVE_WAIT_SECONDS: Final = 0.2


class IndexFileResult(NamedTuple):
    """What a look at one file gave; no facts: it is no index file."""

    facts: IndexFileFacts | None
    findings: Findings


def check_index_file(
    path: Path,
    layout: StoreLayout,
    kernels: Kernels,
    *,
    live: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> IndexFileResult:
    """Check chains, slots and header of one file.

    In a file that is being written the slots follow the header a little later: what is wrong with it
    must stay wrong.
    """
    for _ in range(_LIVE_TRIES - 1 if live else 0):
        result = _look(path, layout, kernels)
        if not len(result.findings):
            return result
        sleep(_LIVE_WAIT_SECONDS)
    return _look(path, layout, kernels)


def _look(path: Path, layout: StoreLayout, kernels: Kernels) -> IndexFileResult:
    findings = Findings()
    try:
        file = open_index_file(path, layout)
    except FormatError as error:
        findings.add(Kind.FILE, path, error.position, error.reason)
        return IndexFileResult(None, findings)
    _ChainCheck(file, layout.index_items, kernels, findings).run()
    return IndexFileResult(index_facts(file), findings)


def check_order(files: Sequence[IndexFileFacts], layout: StoreLayout, findings: Findings) -> None:
    """Report files that are not full although another one follows."""
    for path, header, *_ in files[:-1]:
        if header.next_item < layout.index_items:
            cause = f"has only {header.next_item - 1} entries, but a newer file follows"
            findings.note(Kind.INDEX, path, 36, cause)


def report_entries(file: IndexFileView, numbers: Ints, cause: str, findings: Findings) -> None:
    """Report entries that have the same fault; one finding names the first."""
    if len(numbers):
        report_entry(file, int(numbers[0]), len(numbers), cause, findings)


def report_entry(
    file: IndexFileView, item: int, count: int, cause: str, findings: Findings
) -> None:
    """Report an entry, the first of `count` that have the same fault."""
    more = f" ({count - 1} more like it)" if count > 1 else ""
    position = entry_position(item, len(file.slots))
    offset = int(file.entries["log_offset"][item])
    findings.add(Kind.INDEX, file.path, position, f"entry {item} {cause}{more}", log_offset=offset)


class _ChainCheck:
    """One file. Not thread-safe."""

    def __init__(
        self, file: IndexFileView, items_max: int, kernels: Kernels, findings: Findings
    ) -> None:
        self._file = file
        self._items_max = items_max
        self._kernels = kernels
        self._findings = findings

    def run(self) -> None:
        slots = np.zeros(len(self._file.slots), dtype=np.int32)
        state = np.zeros(6, dtype=np.int64)
        state[5] = FIRST_ITEM
        for first in range(FIRST_ITEM, self._file.header.next_item, _CHAIN_STEP):
            self._check_step(first, slots, state)
        self._check_slots(slots)
        self._check_header(int(state[4]))

    def _check_step(self, first: int, slots: npt.NDArray[np.int32], state: Ints) -> None:
        stored = self._file.entries[first : first + _CHAIN_STEP]
        items = np.zeros(len(stored), dtype=ITEM)
        items["log_offset"] = stored["log_offset"]
        items["key_hash"] = stored["key_hash"] & 0x7FFFFFFF
        made = np.zeros(len(stored) * ENTRY_BYTES, dtype=np.uint8)
        self._kernels.index_insert(items, 0, slots, made, first, state, self._items_max)
        outside = np.flatnonzero(~lies_inside(stored["log_offset"], self._file.header))
        cause = "leads to a record outside of its file's range"
        report_entries(self._file, first + outside, cause, self._findings)
        previous = made.view(ENTRY_DTYPE)["previous"]
        for index in np.flatnonzero(previous != stored["previous"]).tolist()[:_NAMED_MAX]:
            self._report_chain(first + index, stored[index], int(previous[index]))

    def _report_chain(self, item: int, stored: np.void, expected: int) -> None:
        position = entry_position(item, len(self._file.slots)) + 16
        cause = f"entry {item}: its chain goes on at {stored['previous']} instead of {expected}"
        offset = int(stored["log_offset"])
        self._findings.add(Kind.CHAIN, self._file.path, position, cause, log_offset=offset)

    def _check_slots(self, slots: npt.NDArray[np.int32]) -> None:
        found = self._file.slots
        wrong = np.flatnonzero(found != slots).tolist()
        for slot in wrong[:_NAMED_MAX]:
            more = f" ({len(wrong)} slots in all)" if len(wrong) > 1 else ""
            cause = f"slot {slot} starts at entry {found[slot]} instead of {slots[slot]}{more}"
            self._findings.add(Kind.CHAIN, self._file.path, HEADER_BYTES + 4 * slot, cause)

    def _check_header(self, slot_count: int) -> None:
        header, entries, path = self._file.header, self._file.entries, self._file.path
        if header.slot_count != slot_count:
            cause = f"the header counts {header.slot_count} slots, {slot_count} are in use"
            self._findings.add(Kind.CHAIN, path, 32, cause)
        if header.next_item <= FIRST_ITEM:
            return
        for at, name, found, entry in (
            (16, "begins", header.begin_log_offset, entries[FIRST_ITEM]),
            (24, "ends", header.end_log_offset, entries[-1]),
        ):
            if found != entry["log_offset"]:
                cause = (
                    f"the header {name} at log offset {found}, the entries at {entry['log_offset']}"
                )
                self._findings.add(Kind.CHAIN, path, at, cause)
