"""What a check finds: each finding says where, what, and what to do next."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from orbitmq.errors import WrongFileError

FINDINGS_PER_KIND_MAX: Final = 100

OPEN_STEP: Final = "Run `orbitmq store repair`; a broker that finds it at start mends it too."
REBUILD_STEP: Final = "Run `orbitmq store rebuild`; it makes queues and index anew from the log."
LOOK_STEP: Final = "Nothing has to be done; a broker accepts it."


class Severity(StrEnum):
    """ERROR: something is damaged or missing. NOTE: odd, but nothing is lost and nothing has to be done."""

    ERROR = "error"
    NOTE = "note"


class Kind(StrEnum):
    """The kinds of findings, in the order of a report; the value is what the command line prints."""

    FILE = "file"  # wrong name, length or kind; a gap in the segments
    RECORD = "record"  # a place of the log that holds no valid record, though the log goes on
    TAIL = "tail"  # a torn end of the log
    BLANK = "blank"  # the end-of-segment record is lost
    STORED_OFFSET = "stored-offset"  # a record names another offset than its place
    STORE_TIME = "store-time"  # a record is older than the one before it
    PROPERTIES = "properties"  # properties that are torn, or do not match their CRC
    QUEUE_OFFSET = "queue-offset"  # queue offsets in the log that repeat or leave a gap
    QUEUE = "queue"  # queue units that are missing, wrong or too many
    INDEX = "index"  # index entries that are missing, wrong or too many
    CHAIN = "chain"  # slots, chains and headers of index files
    CHECKPOINT = "checkpoint"
    TIMER = "timer"  # wheel, timer log or their checkpoint lead to what is not there
    STATE = "state"  # a JSON file of config/
    FILLER = "filler"  # stands where a damaged record was


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `position` is a byte in `path`; `log_offset` is None where no record is meant."""

    path: Path
    position: int
    log_offset: int | None
    kind: Kind
    cause: str
    advice: str
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return f"{self.path}: position {self.position}: {self.cause}. {self.advice}"


class Findings:
    """Collects findings, a bounded number of each kind; the rest is only counted. Not thread-safe.

    They come out by kind and place, and those kept are the first by place: who looks at a store in
    parts, in any order, and merges what each part gave has the same as who looks at it in one go.
    """

    def __init__(self) -> None:
        self.lagging = 0  # units and index entries that were not written yet, and need not be
        self._found: dict[Kind, list[Finding]] = {}
        self._counts: Counter[Kind] = Counter()

    def add(
        self,
        kind: Kind,
        path: Path | str,
        position: int,
        cause: str,
        *,
        advice: str = REBUILD_STEP,
        log_offset: int | None = None,
    ) -> None:
        """Report something that is damaged or missing."""
        self._counts[kind] += 1
        self._keep(Finding(Path(path), position, log_offset, kind, cause, advice))

    def note(
        self, kind: Kind, path: Path | str, position: int, cause: str, log_offset: int | None = None
    ) -> None:
        """Report something odd that a broker accepts."""
        self._counts[kind] += 1
        note = Severity.NOTE
        self._keep(Finding(Path(path), position, log_offset, kind, cause, LOOK_STEP, note))

    def add_problem(self, problem: WrongFileError) -> None:
        """Report a file that does not belong where it is, or not as it is."""
        self.add(Kind.FILE, problem.path, 0, problem.what, advice=problem.next_step)

    def count(self, kind: Kind, count: int) -> None:
        """Count more of a kind of which so many are named that these would be left out."""
        self._counts[kind] += count

    def merge(self, other: "Findings") -> None:
        """Take what another look at the same store found."""
        self.lagging += other.lagging
        self._counts.update(other._counts)
        for finding in other:
            self._keep(finding)

    def _keep(self, finding: Finding) -> None:
        kept = self._found.setdefault(finding.kind, [])
        kept.append(finding)
        if len(kept) >= 2 * FINDINGS_PER_KIND_MAX:
            kept.sort(key=_place)
            del kept[FINDINGS_PER_KIND_MAX:]

    def __iter__(self) -> Iterator[Finding]:
        for kind in Kind:
            yield from sorted(self._found.get(kind, ()), key=_place)[:FINDINGS_PER_KIND_MAX]

    def __len__(self) -> int:
        return sum(min(count, FINDINGS_PER_KIND_MAX) for count in self._counts.values())

    @property
    def left_out(self) -> dict[Kind, int]:
        """How many of each kind were found beyond those that are listed."""
        over = {kind: self._counts[kind] - FINDINGS_PER_KIND_MAX for kind in Kind}
        return {kind: count for kind, count in over.items() if count > 0}


def _place(finding: Finding) -> tuple[str, int, int, str]:
    offset = -1 if finding.log_offset is None else finding.log_offset
    return str(finding.path), finding.position, offset, finding.cause
