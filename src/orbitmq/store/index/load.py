"""Bring the index of a store into memory as the last snapshot knows it."""

import logging
from collections.abc import Sequence

import numpy as np

from orbitmq.format.index_file import FIRST_ITEM, IndexHeader
from orbitmq.format.snapshot import IndexState
from orbitmq.store.index.files import FullIndex, IndexFiles, StoreMsOf
from orbitmq.store.index.open import OpenIndex

log = logging.getLogger(__name__)


def load_index_states(
    index: IndexFiles,
    states: Sequence[IndexState],
    log_min: int,
    store_ms_of: StoreMsOf | None = None,
) -> bool:
    """Take the index as a snapshot knows it; return False if the files do not bear that out.

    Files that were begun after the snapshot are removed, and the last one that it names is cut to what
    it had then: all that came later is dispatched again. Files at the front may be gone if the records
    they lead to are, or where only the newest files are kept.
    """
    on_disk = {name: path for name, path, size in index.list_files() if _fits(index, size)}
    wanted = list(states)
    if on_disk and not wanted:
        return False  # the snapshot was taken while the index was switched off
    while wanted and wanted[0].name not in on_disk:
        if wanted[0].end_log_offset >= log_min and not index.files_max:
            break
        wanted.pop(0)
    if any(state.name not in on_disk for state in wanted):
        return False
    full = _full_files(index, wanted[:-1], on_disk)
    if full is None:
        return False
    current = _last_file(index, wanted[-1], on_disk, store_ms_of) if wanted else None
    if wanted and current is None:
        return False
    _remove_others(index, {state.name for state in wanted})
    if current is not None and current.is_full:
        full.append(FullIndex(current.name, current.path, current.header))
        current.write()
        current = None
    index.reset(full, current)
    return True


def keep_full_files(index: IndexFiles, full_ms: int) -> None:
    """Keep only the files that are full and known to be on disk; all others are removed.

    `full_ms` is the checkpoint's index time. Dispatch has to begin with the record of the last entry.
    """
    kept = [file for file in index.full if file.header.end_ms <= full_ms]
    _remove_others(index, {file.name for file in kept})
    index.reset(kept)


def _remove_others(index: IndexFiles, names: set[str]) -> None:
    for name, path, _ in index.list_files():  # those too that a power cut left without their bytes
        if name not in names:
            index.remove(path)


def _fits(index: IndexFiles, length: int) -> bool:
    return length == index.layout.index_file_bytes


def _full_files(
    index: IndexFiles, states: Sequence[IndexState], on_disk: dict[str, str]
) -> list[FullIndex] | None:
    full = []
    for state in states:
        header = index.read_header(on_disk[state.name])
        if header is None or header.next_item != state.next_item:
            return None
        full.append(FullIndex(state.name, on_disk[state.name], header))
    return full


def _last_file(
    index: IndexFiles,
    state: IndexState,
    on_disk: dict[str, str],
    store_ms_of: StoreMsOf | None,
) -> OpenIndex | None:
    header = index.read_header(on_disk[state.name])
    if header is None or not FIRST_ITEM <= state.next_item <= header.next_item:
        return None
    file = index.open_file(state.name)
    if state.next_item == FIRST_ITEM:
        file.load_prefix(_preset(header, state))
        return file
    newest = file.read_entries(state.next_item - 1, 1)
    if not len(newest) or newest["log_offset"][0] != state.end_log_offset:
        return None
    if header.next_item == state.next_item:
        file.load(header)
        if not (file.slots >= state.next_item).any():
            return file
    file.load_prefix(_header_at(header, state.next_item, newest[0], store_ms_of))
    return file


def _preset(header: IndexHeader, state: IndexState) -> IndexHeader:
    """Return the header of a file that had no entry yet when the snapshot was taken."""
    if header.next_item == FIRST_ITEM:
        return header
    # Its preset times are gone; they only matter for the seconds of the first entry.
    return IndexHeader(0, 0, state.end_log_offset, state.end_log_offset)


def _header_at(
    header: IndexHeader, next_item: int, last: np.void, store_ms_of: StoreMsOf | None
) -> IndexHeader:
    """Return the header that a file had when `last` was its newest entry."""
    log_offset = int(last["log_offset"])
    store_ms = store_ms_of(log_offset) if store_ms_of is not None else None
    if store_ms is None:
        store_ms = header.begin_ms + int(last["seconds"]) * 1000
    return header._replace(end_ms=store_ms, end_log_offset=log_offset, next_item=next_item)
