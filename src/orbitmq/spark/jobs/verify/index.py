"""Index files of a verification: each by itself, before the log is compared with them."""

from pathlib import Path
from typing import NamedTuple

from orbitmq.errors import FormatError
from orbitmq.files.layout import StoreLayout
from orbitmq.format.index_file import HEADER_BYTES, decode_header, entry_position
from orbitmq.format.kernels import compiled
from orbitmq.spark.jobs.verify.context import IndexFileFacts, VerifyContext
from orbitmq.store.verify.findings import Findings
from orbitmq.store.verify.index_chains import check_index_file
from orbitmq.store.verify.index_entries import block_bounds


class IndexFileResult(NamedTuple):
    """What a look at one file gave; no facts: it is no index file."""

    facts: IndexFileFacts | None
    findings: Findings


def used_bytes(path: Path, layout: StoreLayout) -> int:
    """Return how much of an index file there is to read: header, slots, and the entries that it has."""
    try:
        with path.open("rb") as file:
            header = decode_header(file.read(HEADER_BYTES))
    except (OSError, FormatError):
        return 0
    end = entry_position(header.next_item, layout.index_slots)
    return min(max(end, 0), layout.index_file_bytes)


def look_at_index_file(path: Path, context: VerifyContext) -> IndexFileResult:
    """Check chains, slots and header of one file."""
    file, findings = check_index_file(path, context.layout, compiled(), live=context.live)
    if file is None:
        return IndexFileResult(None, findings)
    return IndexFileResult(IndexFileFacts(path, file.header, block_bounds(file)), findings)
