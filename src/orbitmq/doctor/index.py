"""Key queries that are slow or find nothing: chains of the index files, keys that no index file has.

A key's hash chooses a slot; the slot leads to a chain of entries, which a query follows to its end. Entries
of other hashes in it are foreign: they are walked in vain. Each entry that has the right hash costs a
read of its record.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from orbitmq.doctor.report import Finding, Numbers, Severity, share

SUBJECT = "index"
LONGEST_MAX: Final = 1_000
MEAN_MAX: Final = 16.0
FOREIGN_MIN: Final = 50.0
"""Per cent: with more, a long chain is the fault of too few slots; with fewer, of one key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """The chains of one index file; the mean is over slots in use."""

    file: str
    entries: int
    slots: int
    slots_used: int
    longest: int = 0
    longest_foreign_per_cent: float = (
        0.0  # of that chain's entries, other hashes than its commonest
    )
    foreign_per_cent: float = 0.0  # of all entries that queries for each key would walk
    commonest_hash: int = -1  # of the longest chain
    begin_ms: int = 0

    @property
    def mean(self) -> float:
        return round(self.entries / self.slots_used, 2) if self.slots_used else 0.0

    @property
    def load_per_cent(self) -> float:
        """Slots in use."""
        return share(self.slots_used, self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unindexed:
    """Records with keys that no index file leads to."""

    records: int
    bytes_behind: int  # from the index's end to that of the log
    first_ms: int
    first_log_offset: int
    enabled: bool  # the store is to have an index


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexAdvice:
    """The commands that help."""

    more_slots: str
    rebuild: str
    look_up: Callable[[Chains], str]
    show_keys: str


def measure(
    file: str, hashes: npt.NDArray[np.integer[Any]], slots: int, begin_ms: int = 0
) -> Chains:
    """Return the chains that the entries of a file make, by their key hashes."""
    if not len(hashes):
        return Chains(file=file, entries=0, slots=slots, slots_used=0, begin_ms=begin_ms)
    kinds, per_hash = np.unique(hashes.astype(np.int64), return_counts=True)
    used, place = np.unique(kinds % slots, return_inverse=True)
    lengths = np.bincount(place, weights=per_hash).astype(np.int64)
    at = int(np.argmax(lengths))
    longest = int(lengths[at])
    there = np.flatnonzero(place == at)
    most = int(there[np.argmax(per_hash[there])])
    commonest = int(per_hash[most])
    walked = int((lengths**2).sum())
    own = int((per_hash.astype(np.int64) ** 2).sum())
    return Chains(
        file=file,
        entries=len(hashes),
        slots=slots,
        slots_used=len(used),
        longest=longest,
        longest_foreign_per_cent=share(longest - commonest, longest),
        foreign_per_cent=share(walked - own, walked),
        commonest_hash=int(kinds[most]),
        begin_ms=begin_ms,
    )


def examine(
    files: Sequence[Chains], unindexed: Unindexed | None, advice: IndexAdvice
) -> Iterator[Finding]:
    """Yield index files with long chains, and the part of the log that has no index."""
    for file in files:
        if file.longest > LONGEST_MAX or file.mean > MEAN_MAX:
            yield _long(file, advice)
    if unindexed is not None and unindexed.records:
        yield _behind(unindexed, advice)


def summary(files: Sequence[Chains]) -> str:
    """Return in a few words what the chains are like."""
    if not files:
        return "no index files"
    entries = sum(file.entries for file in files)
    longest = max(file.longest for file in files)
    mean = max(file.mean for file in files)
    load = max(file.load_per_cent for file in files)
    chains = f"chains of {mean:g} on average, {longest} at most"
    return f"{len(files)} files with {entries} entries, {chains}, {load:g} % of slots in use"


def _long(file: Chains, advice: IndexAdvice) -> Finding:
    numbers: Numbers = {
        "longest": file.longest,
        "mean": file.mean,
        "slot_load_per_cent": file.load_per_cent,
        "foreign_per_cent": max(file.foreign_per_cent, file.longest_foreign_per_cent),
        "entries": file.entries,
        "slots": file.slots,
    }
    by_header = not file.longest
    if by_header or max(file.foreign_per_cent, file.longest_foreign_per_cent) >= FOREIGN_MIN:
        what = "key queries are slow: the index has too few slots"
        meaning = f"each query walks {file.mean:g} entries on average, most of them of other keys"
        command = advice.more_slots
    else:
        what = "key queries are slow: one key has very many messages"
        meaning = (
            f"a query for it walks {file.longest} entries; a range of time bounds what it reads"
        )
        command = advice.look_up(file)
    return Finding(
        severity=Severity.WARNING,
        subject=SUBJECT,
        what=what,
        where=file.file,
        since_ms=file.begin_ms or None,
        numbers=numbers,
        meaning=meaning,
        command=command,
    )


def _behind(found: Unindexed, advice: IndexAdvice) -> Finding:
    if found.enabled:
        severity, what = Severity.CRITICAL, "the index is behind the log"
        command = advice.rebuild
    else:
        command = advice.show_keys
        severity, what = Severity.WARNING, "keys are not indexed (messageIndexEnable=false)"
    return Finding(
        severity=severity,
        subject=SUBJECT,
        what=what,
        where=f"log offset {found.first_log_offset} and behind",
        since_ms=found.first_ms,
        numbers={"records_with_keys": found.records, "bytes_behind": found.bytes_behind},
        meaning="a broker does not find these messages by their keys; a scan of the log does",
        command=command,
    )
