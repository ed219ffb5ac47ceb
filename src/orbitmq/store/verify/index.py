"""Compare index files with the log, both ways.

Each stretch of the log is compared with the entries of the same range of log offsets, as sets of (record,
key hash). What is wrong is tallied per file: how the log was cut into stretches makes no difference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from orbitmq.files.layout import StoreLayout
from orbitmq.format.index_file import FIRST_ITEM
from orbitmq.store.verify.findings import Findings, Kind
from orbitmq.store.verify.index_chains import report_entries, report_entry
from orbitmq.store.verify.index_entries import IndexEntries, IndexFileView, Ints

_HASH_BITS: Final = 31

NO_RECORD: Final = "belongs to no record of the log"
OTHER_TIME: Final = "has another time than its record"


@dataclass(slots=True)
class IndexTally:
    """What is wrong between a part of the log and the index. Travels from tasks.

    `entries`: (number of the file, fault) -> (its first entry, how many).
    """

    lagging: int = 0
    missing: int = 0  # keys that are in no file
    first_missing: int = 0  # log offset, if any are missing
    entries: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)

    def merge(self, other: "IndexTally") -> None:
        """Add what another part of the log gave."""
        self.lagging += other.lagging
        self.add_missing(other.missing, other.first_missing)
        for (number, cause), (item, count) in other.entries.items():
            self.add_entries(number, cause, item, count)

    def add_missing(self, count: int, first: int) -> None:
        if count:
            self.first_missing = min(self.first_missing, first) if self.missing else first
            self.missing += count

    def add_entries(self, number: int, cause: str, item: int, count: int) -> None:
        known_item, known_count = self.entries.get((number, cause), (item, 0))
        self.entries[number, cause] = (min(item, known_item), known_count + count)


class IndexComparison:
    """Compares stretches of the log with the entries of all files, by number. Not thread-safe.

    Entries of records from `lag_from` on, and of those before `kept_from`, may be missing.
    """

    def __init__(
        self, files: Mapping[int, IndexEntries], *, lag_from: int, kept_from: int = 0
    ) -> None:
        self._files = files
        self._lag_from, self._kept_from = lag_from, kept_from

    def compare(self, items: npt.NDArray[np.void], start: int, end: int, tally: IndexTally) -> None:
        """Expect these items and no others from log offset `start` to `end`, all in one segment."""
        expected = _pairs(items["log_offset"], items["key_hash"], start)
        times = items["store_ms"]
        found = [(number, *file.take(start, end)) for number, file in self._files.items()]
        found = [part for part in found if len(part[1])]
        stored = [_pairs(part[2], part[3], start) for part in found]
        everything = np.concatenate(stored) if stored else expected[:0]
        if not np.array_equal(expected, everything):  # it is, unless something is wrong
            self._find_missing(expected, start, everything, tally)
            order = np.argsort(expected, kind="stable")
            expected, times = expected[order], times[order]
            for (number, numbers, *_), pairs in zip(found, stored, strict=True):
                self._check_entries(number, numbers, pairs, expected, times, tally)
            return
        at = 0
        for number, numbers, *_ in found:
            self._check_times(number, numbers, times[at : at + len(numbers)], tally)
            at += len(numbers)

    def _find_missing(
        self, expected: Ints, start: int, everything: Ints, tally: IndexTally
    ) -> None:
        missing = expected[~np.isin(expected, everything)]
        offsets = (missing >> _HASH_BITS) + start
        late = offsets >= self._lag_from
        tally.lagging += int(late.sum())
        offsets = offsets[~late & (offsets >= self._kept_from)]
        if len(offsets):
            tally.add_missing(len(offsets), int(offsets[0]))

    def _check_entries(
        self,
        number: int,
        numbers: Ints,
        pairs: Ints,
        expected: Ints,
        times: Ints,
        tally: IndexTally,
    ) -> None:
        at = np.searchsorted(expected, pairs)
        known = at < len(expected)
        known[known] = expected[at[known]] == pairs[known]
        _add(tally, number, numbers[~known], NO_RECORD)
        self._check_times(number, numbers[known], times[at[known]], tally)

    def _check_times(self, number: int, numbers: Ints, times: Ints, tally: IndexTally) -> None:
        """Compare the seconds of these entries with the store times of their records."""
        file = self._files[number].file
        seconds = np.maximum((times - file.header.begin_ms) // 1000, 0)
        # The first entry's seconds count from the end of the file before.
        wrong = (file.entries["seconds"][numbers] != seconds) & (numbers > FIRST_ITEM)
        _add(tally, number, numbers[wrong], OTHER_TIME)


def _add(tally: IndexTally, number: int, items: Ints, cause: str) -> None:
    if len(items):
        tally.add_entries(number, cause, int(items.min()), len(items))


def report_index(
    tally: IndexTally,
    files: Mapping[int, IndexEntries],
    layout: StoreLayout,
    findings: Findings,
    *,
    log_end: int | None,
) -> None:
    """Report a tally, and entries that lead behind `log_end` (None: a writer is adding some)."""
    findings.lagging += tally.lagging
    for (number, cause), (item, count) in tally.entries.items():
        report_entry(files[number].file, item, count, cause, findings)
    if tally.missing:
        first = tally.first_missing
        cause = f"{tally.missing} key(s) of records are in no index file"
        path = _file_for(first, [entries.file for entries in files.values()], layout)
        findings.add(
            Kind.INDEX, path, 0, f"{cause}, the first at log offset {first}", log_offset=first
        )
    if log_end is not None:
        for entries in files.values():
            numbers, *_ = entries.take(log_end, 2**63 - 1)
            cause = "leads behind the end of the log"
            report_entries(entries.file, numbers, cause, findings)


def _file_for(log_offset: int, files: Sequence[IndexFileView], layout: StoreLayout) -> Path:
    """Return the file that should hold this record's keys, the directory if there is none."""
    for file in files:
        if file.header.begin_log_offset <= log_offset <= file.header.end_log_offset:
            return file.path
    return layout.index_directory


def _pairs(offsets: npt.NDArray[np.int64], hashes: npt.NDArray[Any], start: int) -> Ints:
    """Return (record, key) as one number each; a chunk lies in one segment, so 62 bits are enough."""
    relative = offsets.astype(np.int64) - start
    pairs: Ints = (relative << _HASH_BITS) | hashes.astype(np.int64)
    return np.where(hashes < 0, -1, pairs)  # no hash is negative: such an entry is nobody's
