"""The index files of a store directory: their chains, and up to which record they lead."""

from pathlib import Path

import numpy as np

from orbitmq.doctor.index import Chains, measure
from orbitmq.errors import FormatError
from orbitmq.files.layout import StoreLayout
from orbitmq.format.index_file import FIRST_ITEM
from orbitmq.store.verify.facts import StoreFacts
from orbitmq.store.verify.findings import Findings, Kind
from orbitmq.store.verify.index_entries import IndexFileView, list_index_files, open_index_file


def measure_files(
    facts: StoreFacts, findings: Findings, *, thorough: bool
) -> tuple[list[Chains], int]:
    """Return the chains of each file and the log offset of the last entry (-1: there is none).

    All entries are read of the newest file only, unless `thorough`; of the others the headers tell.
    """
    views = []
    for path in list_index_files(facts.layout):
        try:
            views.append(open_index_file(path, facts.layout))
        except FormatError as error:
            findings.add(Kind.FILE, path, error.position, error.reason)
    used = [view for view in views if view.header.next_item > FIRST_ITEM]
    newest = {id(view) for view in (used if thorough else used[-1:])}
    chains = [_measured(view) if id(view) in newest else _by_header(view) for view in used]
    return chains, max((view.header.end_log_offset for view in used), default=-1)


def _measured(view: IndexFileView) -> Chains:
    hashes = view.entries["key_hash"][FIRST_ITEM:]
    return measure(str(view.path), hashes, len(view.slots), view.header.begin_ms)


def _by_header(view: IndexFileView) -> Chains:
    header = view.header
    return Chains(
        file=str(view.path),
        entries=header.next_item - FIRST_ITEM,
        slots=len(view.slots),
        slots_used=header.slot_count,
        begin_ms=header.begin_ms,
    )


def first_entry(chains: Chains, layout: StoreLayout) -> int | None:
    """Return the log offset of a record with the commonest hash of the longest chain."""
    entries = open_index_file(Path(chains.file), layout).entries[FIRST_ITEM:]
    found = np.flatnonzero(entries["key_hash"] == chains.commonest_hash)
    return int(entries["log_offset"][found[0]]) if len(found) else None
