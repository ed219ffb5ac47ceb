"""ScanRanges of records in the log that were found without reading it: what a look-up tells a reader."""

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScanRanges:
    """Where records that match a selection may lie; none lies elsewhere.

    A place promises nothing: its record is read and compared with the selection. `offsets` are the log
    offsets of single records, ascending; `ranges` are stretches (start, end) of the log that have to be
    read as a whole, ascending and apart, for example what no index file covers yet.
    """

    offsets: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    read_bytes: int = 0  # of queue and index files, to find this out

    def single_offsets(self) -> tuple[int, ...]:
        """Return the offsets that no range covers, each once."""
        starts = [start for start, _ in self.ranges]
        ends = [0, *(end for _, end in self.ranges)]  # by how many ranges begin before an offset
        return tuple(
            offset
            for offset in dict.fromkeys(self.offsets)
            if offset >= ends[bisect_right(starts, offset)]
        )
