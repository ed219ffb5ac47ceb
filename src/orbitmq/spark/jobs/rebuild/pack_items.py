"""Keys of records on their way from the task that scans to the task that builds an index file.

An item of the kernels takes 24 bytes; here a record with two keys takes 18: what its keys share is held
once, and offsets and times count from those of the first record. Only a split of more than 4 GiB, or one
whose store times lie weeks apart, needs wider numbers.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import ITEM

Items = npt.NDArray[np.void]  # of ITEM
Numbers = npt.NDArray[np.integer]


class PackedItems(NamedTuple):
    """The keys of one split, in log order."""

    base_offset: int
    base_ms: int
    offsets: Numbers  # per record: log offset, less base_offset
    times: Numbers  # per record: store time, less base_ms
    counts: Numbers  # per record: how many keys it has
    hashes: Numbers  # per key

    @property
    def item_count(self) -> int:
        return len(self.hashes)

    @property
    def columns(self) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        return self.offsets, self.times, self.counts, self.hashes

    def unpack(self) -> Items:
        """Return what the kernels take."""
        items: Items = np.empty(len(self.hashes), dtype=ITEM)
        counts = self.counts.astype(np.intp)
        items["key_hash"] = self.hashes
        items["log_offset"] = np.repeat(self.offsets.astype(np.int64) + self.base_offset, counts)
        items["store_ms"] = np.repeat(self.times.astype(np.int64) + self.base_ms, counts)
        return items


NO_ITEMS: Final = PackedItems(
    0,
    0,
    np.zeros(0, np.uint32),
    np.zeros(0, np.int32),
    np.zeros(0, np.uint16),
    np.zeros(0, np.int32),
)


def pack_items(parts: Sequence[Items]) -> PackedItems:
    """Pack items that stand in log order over all parts."""
    items = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype=ITEM), *parts])
    if not len(items):
        return NO_ITEMS
    log_offsets = items["log_offset"]
    first = np.flatnonzero(np.concatenate(([True], log_offsets[1:] != log_offsets[:-1])))
    offsets = log_offsets[first]
    times = items["store_ms"][first]
    counts = np.diff(first, append=len(items))
    base_offset, base_ms = int(offsets[0]), int(times[0])
    return PackedItems(
        base_offset,
        base_ms,
        _narrow(offsets - base_offset, np.uint32),
        _narrow(times - base_ms, np.int32),
        _narrow(counts, np.uint16),
        items["key_hash"].astype(np.int32),
    )


def _narrow(values: npt.NDArray[np.int64], kind: npt.DTypeLike) -> Numbers:
    """Return the values in the small type, if all of them fit."""
    narrow: Numbers = values.astype(kind)
    return narrow if bool((narrow.astype(np.int64) == values).all()) else values
