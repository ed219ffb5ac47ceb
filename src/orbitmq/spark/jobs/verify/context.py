"""What every task of a verification has to know of the store."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from orbitmq.files.layout import StoreLayout
from orbitmq.format.columns import ScanOptions
from orbitmq.format.index_file import IndexHeader
from orbitmq.store.recovery.torn_records import whole_from
from orbitmq.store.verify.basis import CheckBasis
from orbitmq.store.verify.facts import batch_topics
from orbitmq.store.verify.index_entries import BlockBounds, IndexEntries, open_index_file


class IndexFileFacts(NamedTuple):
    """An index file as the first look at it found it: later entries are a writer's."""

    path: Path
    header: IndexHeader
    bounds: BlockBounds


@dataclass(frozen=True, slots=True)
class VerifyContext:
    """One store at the moment when its verification started. Travels to tasks."""

    layout: StoreLayout
    scan: ScanOptions
    whole_from: int  # from this log offset on all records are ours
    log_min: int
    live: bool
    has_queues: bool
    light_queues: bool
    batch_topics: frozenset[bytes]
    queues_from: int  # from this record on units may be missing
    index_from: int
    index_files: tuple[IndexFileFacts, ...] = ()  # empty: the index is not compared

    def with_index(self, files: tuple[IndexFileFacts, ...]) -> "VerifyContext":
        return replace(self, index_files=files)

    def open_index(self, start: int, end: int) -> dict[int, IndexEntries]:
        """Map the index files that may lead to these log offsets; return them by number."""
        return {
            number: IndexEntries(open_index_file(path, self.layout, header), bounds, self.log_min)
            for number, (path, header, bounds) in enumerate(self.index_files)
            if header.begin_log_offset < end and header.end_log_offset >= start
        }


def context_of(basis: CheckBasis, log_min: int) -> VerifyContext:
    """Return what tasks need, without the index."""
    return VerifyContext(
        layout=basis.layout,
        scan=basis.scan,
        whole_from=whole_from(basis.checkpoint),
        log_min=log_min,
        live=basis.live,
        has_queues=basis.has_queues,
        light_queues=basis.config.enable_multi_dispatch,
        batch_topics=frozenset(batch_topics(basis.layout)),
        queues_from=basis.queues_from,
        index_from=basis.index_from,
    )
