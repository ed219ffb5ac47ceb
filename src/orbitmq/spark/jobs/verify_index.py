"""Index files of a verification: each by itself, before the log is compared with them."""

from pathlib import Path
from typing import NamedTuple

from orbitmq.format.kernels import compiled
from orbitmq.spark.jobs.verify_context import IndexFileFacts, VerifyContext
from orbitmq.store.offline.findings import Findings
from orbitmq.store.offline.index_chains import check_index_file
from orbitmq.store.offline.index_entries import block_bounds


class IndexFileResult(NamedTuple):
    """What a look at one file gave; no facts: it is no index file."""

    facts: IndexFileFacts | None
    findings: Findings


def look_at_index_file(path: Path, context: VerifyContext) -> IndexFileResult:
    """Check chains, slots and header of one file."""
    file, findings = check_index_file(path, context.layout, compiled(), live=context.live)
    if file is None:
        return IndexFileResult(None, findings)
    return IndexFileResult(IndexFileFacts(path, file.header, block_bounds(file)), findings)
