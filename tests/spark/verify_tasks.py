"""The parts of a verification run one after another in this process, for tests of many small stores."""

import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from orbitmq.files.disk import Disk
from orbitmq.format.kernels import compiled
from orbitmq.log_read import Split, open_log
from orbitmq.spark.jobs.verify.context import VerifyContext
from orbitmq.spark.jobs.verify.index import IndexFileResult, look_at_index_file
from orbitmq.spark.jobs.verify.queues import QueueResult, QueueRow, compare_queues, partition_of
from orbitmq.spark.jobs.verify.scan import Scanned, Stretch, StretchRow, scan_split
from orbitmq.spark.jobs.verify.store import StoreVerification
from orbitmq.store.verify.basis import look_at
from orbitmq.store.verify.check import CheckReport

PARTITIONS = 3

Thing = TypeVar("Thing")


def travelled(thing: Thing) -> Thing:
    """Return it as it arrives in another process."""
    copy: Thing = pickle.loads(pickle.dumps(thing))
    return copy


class LocalTasks:
    """As `SparkTasks`, without Spark."""

    def __init__(self) -> None:
        self.scanned: list[Scanned] = []
        self.exact: list[Split] = []

    def look_at_index(
        self, paths: Sequence[Path], context: VerifyContext
    ) -> Sequence[IndexFileResult]:
        return [travelled(look_at_index_file(path, travelled(context))) for path in paths]

    def scan(
        self, splits: Sequence[Split], context: VerifyContext, *, exact: bool
    ) -> Sequence[Stretch]:
        if exact:
            self.exact += splits
        found = [
            travelled(item)
            for split in splits
            for item in scan_split(split, travelled(context), exact=exact)
        ]
        self.scanned += found
        return [item for item in found if isinstance(item, Stretch)]

    def compare_queues(
        self,
        accepted: frozenset[int],
        rows: Sequence[QueueRow],
        context: VerifyContext,
        log_end: int,
    ) -> Iterable[QueueResult]:
        read = [item for item in self.scanned if isinstance(item, StretchRow)]
        everything = [*rows, *(item.row for item in read if item.start in accepted)]
        for number in range(PARTITIONS):
            mine = [row for row in everything if partition_of(row.order) % PARTITIONS == number]
            mine.sort(key=lambda row: row.order)
            yield travelled(compare_queues(iter(mine), context, log_end))


def verify_here(
    root: Path,
    settings: Mapping[str, str] | None = None,
    *,
    split_bytes: int,
    tasks: LocalTasks | None = None,
) -> CheckReport:
    """Verify a store in this process, with splits of this size."""
    basis = look_at(root, settings)
    with open_log(basis.layout, Disk(), missing_allowed=True) as log:
        verification = StoreVerification(
            basis, log, tasks or LocalTasks(), compiled(), split_bytes=split_bytes
        )
        return verification.run()
