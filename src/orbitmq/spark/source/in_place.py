"""Bodies that stay in the file: a batch says where they are, and its reader maps the file itself.

Beside the column of bodies such a batch has two more: where in its file each body starts (-1: it is in the
column, as any other) and its length. Which stretch of which file that is, the metadata of its schema say.
"""

from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from orbitmq.format.columns import Ints
from orbitmq.log_read import Segment
from orbitmq.spark.source.schemas import BODY

AT: Final = f"{BODY}.at"
LENGTH: Final = f"{BODY}.length"
FIELDS: Final = (pa.field(AT, pa.int64(), nullable=False), pa.field(LENGTH, pa.int32(), False))
SENT: Final = -1
STRETCH_BYTES_MAX: Final = 2**31 - 1
"""So much of a file Java maps at once."""
_FILE: Final = b"file"


class Stretch(msgspec.Struct, frozen=True):
    """A part of a file. Places of bodies count from its start."""

    path: str
    start: int
    length: int


def stretch_of(segment: Segment, at: Ints, lengths: Ints) -> Stretch | None:
    """Return what holds these bodies; None: they are not all in one stretch of a file."""
    if not len(at) or not segment.is_file:
        return None
    start, end = int(at.min()), int((at + lengths).max())
    length = end - start
    return Stretch(str(segment.path), start, length) if length <= STRETCH_BYTES_MAX else None


def in_stretch(stretch: Stretch, at: Ints, lengths: Ints, sent: list[int]) -> dict[str, pa.Array]:
    """Return both columns for bodies in a stretch, but for those that are sent (their indices)."""
    counted = at - stretch.start
    counted[sent] = SENT
    return {AT: pa.array(counted), LENGTH: pa.array(lengths.astype(np.int32))}


def all_sent(count: int) -> dict[str, pa.Array]:
    """Return both columns for bodies that are all sent."""
    return {
        AT: pa.array(np.full(count, SENT, dtype=np.int64)),
        LENGTH: pa.array(np.zeros(count, dtype=np.int32)),
    }


def marked(schema: pa.Schema, stretch: Stretch) -> pa.Schema:
    """Return the schema of a batch with bodies in this stretch."""
    return schema.with_metadata({_FILE: msgspec.json.encode(stretch)})


def mark_of(batch: pa.RecordBatch) -> bytes | None:
    """Return, as JSON, the stretch that a batch has bodies in."""
    metadata = batch.schema.metadata
    found: bytes | None = metadata.get(_FILE) if metadata else None
    return found
