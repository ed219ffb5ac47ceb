"""The parts of a verification run one after another in this process, for tests of many small stores."""

import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from orbitmq.files.disk import Disk
from orbitmq.format.kernels import compiled
from orbitmq.log_read import Split, open_log
from orbitmq.spark.jobs.verify.runner import TaskRunner, compare_queues, partition_of
from orbitmq.spark.jobs.verify.scan import Scanned, Stretch, StretchRow, scan_split
from orbitmq.store.verify.facts import StoreFacts, look_at
from orbitmq.store.verify.findings import Findings
from orbitmq.store.verify.index_chains import IndexFileResult, check_index_file
from orbitmq.store.verify.queues import QueueRow
from orbitmq.store.verify.verification import CheckReport, Verification

PARTITIONS = 3

Thing = TypeVar("Thing")


def travelled(thing: Thing) -> Thing:
    """Return it as it arrives in another process."""
    copy: Thing = pickle.loads(pickle.dumps(thing))
    return copy


class LocalRunner(TaskRunner):
    """As `SparkRunner`, without Spark."""

    def __init__(self, split_bytes: int) -> None:
        super().__init__(compiled(), split_bytes=split_bytes)
        self.scanned: list[Scanned] = []
        self.exact: list[Split] = []

    def check_index_files(
        self, paths: Sequence[Path], facts: StoreFacts
    ) -> Sequence[IndexFileResult]:
        layout = travelled(facts).layout
        return [
            travelled(check_index_file(path, layout, compiled(), live=facts.live)) for path in paths
        ]

    def scan(self, splits: Sequence[Split], facts: StoreFacts, *, exact: bool) -> Sequence[Stretch]:
        if exact:
            self.exact += splits
        found = [
            travelled(item)
            for split in splits
            for item in scan_split(split, travelled(facts), exact=exact)
        ]
        self.scanned += found
        return [item for item in found if isinstance(item, Stretch)]

    def compare_queues(
        self, accepted: frozenset[int], rows: Sequence[QueueRow], facts: StoreFacts, log_end: int
    ) -> Iterable[Findings]:
        read = [item for item in self.scanned if isinstance(item, StretchRow)]
        everything = [*rows, *(item.row for item in read if item.start in accepted)]
        for number in range(PARTITIONS):
            mine = [row for row in everything if partition_of(row.order) % PARTITIONS == number]
            mine.sort(key=lambda row: row.order)
            yield travelled(compare_queues(iter(mine), facts, log_end))


def verify_here(
    root: Path,
    settings: Mapping[str, str] | None = None,
    *,
    split_bytes: int,
    runner: LocalRunner | None = None,
) -> CheckReport:
    """Verify a store in this process, with splits of this size."""
    facts, findings = look_at(root, settings)
    with open_log(facts.layout, Disk(), missing_allowed=True) as log:
        return Verification(facts, findings, log, runner or LocalRunner(split_bytes)).run()
