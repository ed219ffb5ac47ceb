"""The words of recovery: repairs, notes, and how a log is read for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import Kernels
from orbitmq.log_read import Prepare, Progress
from orbitmq.store.recovery.lost_records import FillStyle, LostRecord
from orbitmq.store.recovery.queue_counts import Queue
from orbitmq.store.recovery.torn_records import NOWHERE
from orbitmq.store.topic_types import TopicTypes, all_simple


class RepairKind(Enum):
    """What is done to a bad place."""

    FILL = "fill"  # records were lost there: fillers take their place
    BLANK = "blank"  # only the end-of-segment record was lost: it is written again
    CUT = "cut"  # torn tail: the log ends here


@dataclass(frozen=True, slots=True)
class Repair:
    """One bad place and its mending. `start` and `end` are log offsets inside one segment.

    `data` is written at `start`; with `zero_rest` everything behind it up to `end` becomes zeros.
    `removed` are later segments that hold nothing (CUT). `resume` is where the log goes on.
    """

    kind: RepairKind
    path: Path
    base_offset: int
    start: int
    end: int
    resume: int
    cause: str
    data: bytes = b""
    zero_rest: bool = False
    lost: tuple[LostRecord, ...] = ()
    left_out: tuple[LostRecord, ...] = ()
    removed: tuple[Path, ...] = ()

    @property
    def position(self) -> int:
        return self.start - self.base_offset


@dataclass(frozen=True, slots=True)
class Note:
    """Something odd that stays as it is."""

    path: Path
    position: int
    log_offset: int
    cause: str


UnitsBetween = Callable[[int, int], list[LostRecord]]
"""Returns the records that queue files on disk place at log offsets from the first up to the second."""


def no_units(start: int, end: int) -> list[LostRecord]:
    """For a log without queue files."""
    return []


@dataclass(frozen=True, slots=True)
class WalkOptions:
    """How a log is read. `known_next` is what the queues already have where the walk starts.

    From log offset `whole_from` on all records are known to be ours, and a torn one is bad.
    """

    kernels: Kernels
    scan: ScanOptions = field(default_factory=lambda: ScanOptions(check_crc=True))
    style: FillStyle = field(default_factory=FillStyle)
    units_between: UnitsBetween = no_units
    known_next: Mapping[Queue, int] = field(default_factory=dict)
    topic_type: TopicTypes = all_simple
    whole_from: int = NOWHERE
    progress: Progress | None = None
    prepare: Prepare | None = None
