"""Where an export's messages come from, as the job sees it."""

from dataclasses import dataclass
from typing import Any, Protocol

from orbitmq.spark.jobs.export.covered import Covered
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.notes import Anchor
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles
from orbitmq.spark.progress import StageCounter


@dataclass(frozen=True, slots=True)
class Round:
    """What is to be read now, and what the lake holds afterwards."""

    tasks: list[Any]
    covered: Covered
    bytes: int
    end_offset: int
    reads: Any


class Source(Protocol):
    """Where messages come from."""

    @property
    def kind(self) -> str: ...

    def look(self, held: Covered, anchor: Anchor | None) -> Round: ...

    def work(
        self, round_: Round, rows: LakeRows, files: AttemptFiles, counter: StageCounter
    ) -> Any: ...

    def sample(
        self, round_: Round, known: frozenset[str], files: AttemptFiles, counter: StageCounter
    ) -> Any: ...
