"""The task that scans splits of the log for a rebuild."""

from collections.abc import Iterator
from dataclasses import dataclass

from orbitmq.format.kernels import compiled
from orbitmq.log_read import Split
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles
from orbitmq.spark.jobs.rebuild.pack import PackOptions, pack_split
from orbitmq.spark.jobs.rebuild.parts import SplitFacts, facts_of, write_part
from orbitmq.spark.progress import StageCounter
from orbitmq.spark.shared_paths import require_seen


@dataclass(frozen=True, slots=True)
class Scan:
    """Packs splits into files of their own. Travels to executors.

    Without units and items only the facts are gathered: no file is written.
    """

    options: PackOptions
    files: AttemptFiles
    counter: StageCounter | None
    with_units: bool = True
    with_items: bool = True

    def __call__(self, _number: int, groups: Iterator[list[Split]]) -> Iterator[SplitFacts]:
        if self.with_units or self.with_items:
            require_seen(self.files.directory)
        for splits in groups:
            yield from map(self.scan, splits)

    def scan(self, split: Split, *, at_record: bool = False) -> SplitFacts:
        """Scan one split, on the driver too."""
        packed = pack_split(split, compiled(), self.options, at_record=at_record)
        part = write_part(
            packed, self.files, with_units=self.with_units, with_items=self.with_items
        )
        if self.counter is not None:
            self.counter.add(split.end - split.start, packed.records)
        return facts_of(packed, part)
