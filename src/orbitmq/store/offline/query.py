"""Find messages by key in a store directory: by the index files, and by the log where they do not reach.

Each index file covers the log from its first to its last entry. Between two files, before the first
and behind the last one only records without keys should lie. A gap with keyed records in it is a missing
or an unfinished file, and is read from the log. So is the range of a file whose chain is broken.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from orbitmq.errors import CorruptRecordError, FormatError
from orbitmq.format.columns import Bytes, as_bytes_array
from orbitmq.format.index_file import (
    FIRST_ITEM,
    SLOT,
    IndexHeader,
    decode_entry,
    decode_header,
    entry_position,
    index_keys,
    key_hash,
    slot_position,
)
from orbitmq.format.segment_name import is_index_file_name
from orbitmq.store.offline.reader import OFFSET_MAX, Found, OfflineStore, Selection
from orbitmq.store.verify.index_entries import list_index_files


class IndexFile(NamedTuple):
    """One index file, mapped for reading."""

    path: Path
    header: IndexHeader
    data: Bytes


class Chain(NamedTuple):
    """The log offsets of one key hash in one file, newest first; `whole` unless the chain is broken."""

    log_offsets: list[int]
    whole: bool
    walked: int = 0  # entries of the chain, those of other hashes too


def open_index_files(store: OfflineStore) -> list[IndexFile]:
    """Return the usable index files in the order of what they cover; others are named to `say`."""
    files = []
    for path in list_index_files(store.layout):
        if is_index_file_name(path.name):
            file = _open_index_file(store, path)
            if file is not None and file.header.next_item > FIRST_ITEM:
                files.append(file)
    return sorted(files, key=lambda file: file.header.begin_log_offset)


def query(store: OfflineStore, selection: Selection, key: str, count_max: int) -> list[Found]:
    """Return the newest messages with exactly this key, in log order.

    `selection.topic` must be set: the same key of another topic is another key.
    """
    assert selection.topic is not None
    found: dict[int, Found] = {}
    for part in _newest_first(store, selection, key):
        for hit in part:
            found.setdefault(hit.log_offset, hit)
        if len(found) >= count_max:
            break
    newest = sorted(found)[-count_max:]
    return [found[log_offset] for log_offset in newest]


def by_index(store: OfflineStore, selection: Selection, key: str) -> tuple[list[Found], Chain]:
    """Return the messages that the index files alone lead to, and all that had to be walked for them."""
    assert selection.topic is not None
    wanted, hits = key_hash(selection.topic, key), []
    total = Chain([], whole=True)
    for file in open_index_files(store):
        chain = follow_chain(file, store.layout.index_slots, wanted)
        found = (
            _hit(store, store.record_at, selection, key, offset) for offset in chain.log_offsets
        )
        hits += [one for one in found if one is not None]
        total = Chain(
            total.log_offsets + chain.log_offsets,
            whole=total.whole and chain.whole,
            walked=total.walked + chain.walked,
        )
    return hits, total


def by_scan(store: OfflineStore, selection: Selection, key: str) -> list[Found]:
    """Return the messages with this key, by reading the whole log."""
    return _scan(store, selection, key, 0, OFFSET_MAX)[0]


def follow_chain(file: IndexFile, slots: int, wanted: int) -> Chain:
    """Return where the entries with this key hash point.

    Entries point at older ones only, so every step goes down and the walk ends, whatever the bytes are.
    """
    offsets: list[int] = []
    walked = 0
    item: int = SLOT.unpack_from(file.data.data, slot_position(wanted, slots))[0]
    below = file.header.next_item
    while item:
        if not FIRST_ITEM <= item < below:
            return Chain(offsets, whole=False, walked=walked)
        walked += 1
        try:
            entry = decode_entry(file.data.data, entry_position(item, slots))
        except FormatError:
            return Chain(offsets, whole=False, walked=walked)
        if entry.key_hash == wanted:
            offsets.append(entry.log_offset)
        below, item = item, entry.previous
    return Chain(offsets, whole=True, walked=walked)


def _open_index_file(store: OfflineStore, path: Path) -> IndexFile | None:
    length = path.stat().st_size
    if length != store.layout.index_file_bytes:
        expected = store.layout.index_file_bytes
        store.say(
            f"{path}: has {length} bytes instead of {expected} and is not used. Give the broker's"
            " maxHashSlotNum and maxIndexNum with --config."
        )
        return None
    fd = store.disk.open(path, writable=False)
    try:
        data = as_bytes_array(store.disk.map(path, fd, length, writable=False))
    finally:
        store.disk.close(path, fd)
    try:
        return IndexFile(path, decode_header(data), data)
    except FormatError as error:
        store.say(f"{path}: {error.reason}; the file is not used")
        return None


def _newest_first(store: OfflineStore, selection: Selection, key: str) -> Iterator[list[Found]]:
    """Yield the hits of each file and each gap, from the end of the log to its start."""
    gap_end = OFFSET_MAX
    for file in reversed(open_index_files(store)):
        header = file.header
        # The keys of one record may lie in two files: the last record of a file belongs to the gap too.
        yield _scan_gap(store, selection, key, header.end_log_offset, gap_end)
        yield _ask_file(store, selection, key, file)
        gap_end = min(gap_end, header.begin_log_offset)
    yield _scan_gap(store, selection, key, store.log.min_offset, gap_end)


def _ask_file(store: OfflineStore, selection: Selection, key: str, file: IndexFile) -> list[Found]:
    header = file.header
    if header.end_ms < selection.start_ms or header.begin_ms >= selection.end_ms:
        return []
    assert selection.topic is not None
    chain = follow_chain(file, store.layout.index_slots, key_hash(selection.topic, key))
    if not chain.whole:
        store.say(f"{file.path}: the chain of this key is broken: reading the log instead")
        return _scan(store, selection, key, header.begin_log_offset, header.end_log_offset + 1)[0]
    read = store.record_at  # an entry may lead to where no record starts
    return [
        hit for offset in chain.log_offsets if (hit := _hit(store, read, selection, key, offset))
    ]


def _hit(
    store: OfflineStore,
    read: Callable[[int], Found | None],
    selection: Selection,
    key: str,
    log_offset: int,
) -> Found | None:
    if not selection.start <= log_offset < selection.end:
        return None
    try:
        found = read(log_offset)
    except CorruptRecordError as error:
        store.say(str(error))
        return None
    return found if found is not None and _has_key(found, selection, key) else None


def _has_key(found: Found, selection: Selection, key: str) -> bool:
    record = found.record
    in_time = selection.start_ms <= record.store_ms < selection.end_ms
    keys = index_keys(record.unique_key, record.keys, record.sys_flag)
    return in_time and record.topic == selection.topic and key in keys


def _scan_gap(
    store: OfflineStore, selection: Selection, key: str, start: int, end: int
) -> list[Found]:
    hits, keyed = _scan(store, selection, key, start, end)
    if keyed:
        until = "the end" if end == OFFSET_MAX else str(end)
        store.say(
            f"the index files do not cover the log from {start} to {until}: reading the log there"
        )
    return hits


def _scan(
    store: OfflineStore, selection: Selection, key: str, start: int, end: int
) -> tuple[list[Found], int]:
    """Return the hits of a range of the log, and how many of its records beyond the first have keys."""
    part = replace(selection, start=max(start, selection.start), end=min(end, selection.end))
    if part.start >= part.end:
        return [], 0
    wanted, hits, keyed = key.encode(), [], 0
    for segment, rows in store.iter_rows(part):
        with_keys = rows[rows["key_count"] > 0]
        keyed += int(np.count_nonzero(with_keys["log_offset"] > start))
        for row in with_keys:
            at = int(row["properties_at"])
            if wanted in segment.data[at : at + int(row["properties_length"])].tobytes():
                hit = _hit(store, store.decode_at, selection, key, int(row["log_offset"]))
                hits += [hit] if hit else []
    return hits, keyed
