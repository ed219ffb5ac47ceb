"""Rows of records as they travel from a task to the driver, without the bodies.

The driver dispatches with the store's own dispatcher, which wants a chunk: rows, and the bytes that they
lead to. Of those it only looks at topics, and at the properties of records for several queues; so these
are all that goes with the rows, with the index items, which the task makes.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import ITEM, ROW, Bytes, Mark, Rows, as_bytes_array
from orbitmq.format.kernels import Kernels
from orbitmq.log_read import Chunk


class PackedChunk(NamedTuple):
    """A chunk in three byte strings."""

    rows: bytes  # of ROW; positions count in `texts`
    texts: bytes
    items: bytes  # of ITEM


def pack_chunk(buffer: Bytes, rows: Rows, kernels: Kernels, *, with_items: bool) -> PackedChunk:
    """Take what the driver needs out of a segment."""
    items = kernels.index_items(buffer, rows).tobytes() if with_items else b""
    packed = rows.copy()
    topics = _gather(buffer, rows["topic_at"], rows["topic_length"])
    packed["topic_at"] = _starts(rows["topic_length"])
    many = rows["marks"] & Mark.MULTI_DISPATCH != 0
    packed["properties_length"] = np.where(many, rows["properties_length"], 0)
    properties = _gather(buffer, rows["properties_at"], packed["properties_length"])
    packed["properties_at"] = len(topics) + _starts(packed["properties_length"])
    packed["body_at"] = packed["body_length"] = 0
    return PackedChunk(packed.tobytes(), topics.tobytes() + properties.tobytes(), items)


def unpack_chunk(packed: PackedChunk) -> Chunk:
    """Return the chunk that was packed."""
    rows = np.frombuffer(packed.rows, ROW)
    return Chunk(as_bytes_array(packed.texts), rows, np.frombuffer(packed.items, ITEM))


def _starts(lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Return where each piece starts when they lie one after another."""
    ends: npt.NDArray[np.int64] = np.cumsum(lengths, dtype=np.int64)
    return ends - lengths


def _gather(buffer: Bytes, places: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]) -> Bytes:
    """Return the pieces of a buffer, one after another."""
    shifts = np.repeat(places - _starts(lengths), lengths)
    return buffer[shifts + np.arange(len(shifts))]
