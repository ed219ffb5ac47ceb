"""Ask a filter about the records of many queue units at once, where they lie in the log."""

from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import Ints
from orbitmq.store.log.log_reader import RecordReader
from orbitmq.store.reads.tag_filter import RecordFilter

LEAST: Final = 8
"""Fewer are asked one by one: that is as fast."""

_OFFSET_MAX: Final = (1 << 63) - (1 << 32)
"""So much more than any size below what a number can be."""

Mask = npt.NDArray[np.bool_]


def matches(log: RecordReader, wanted: RecordFilter, at: Ints, sizes: Ints) -> Mask | None:
    """Return what a filter says of the records at these log offsets; None: one of them cannot be read.

    They are asked together if they lie in one piece of the log, else the two halves of them are.
    """
    start, last = int(at.min()), int(at.max())
    if start < 0 or last >= _OFFSET_MAX or int(sizes.min()) < 0:  # who knows what a unit holds
        return None
    span = log.read(start, int((at + sizes).max()) - start)
    if span is not None:
        return wanted.by_records(np.frombuffer(span, dtype=np.uint8), at - start, sizes)
    half = len(at) // 2
    if not half:
        return None
    first = matches(log, wanted, at[:half], sizes[:half])
    if first is None:
        return None
    rest = matches(log, wanted, at[half:], sizes[half:])
    return None if rest is None else np.concatenate((first, rest))
