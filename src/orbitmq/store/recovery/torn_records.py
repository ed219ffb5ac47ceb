"""Records of ours that a power cut tore although every check of the format passes.

A disk writes sectors of 512 bytes, each wholly or not at all, in any order. Lost ones read as zeros: a
segment is zeros before it is written. Lost headers and lengths do not fit together any more, and the
body has its CRC; but nothing covers topic and properties. There our appender helps (`append_rules`): it
never writes a topic with a zero byte, properties that end with one, or so many zeros in a row in them
that a whole sector could be zeros. So each of these is the mark of a lost sector.

A Java broker promises nothing of the kind: where it may have written, its own rule holds, and it
accepts such a record.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.format.checkpoint import Checkpoint
from orbitmq.format.columns import Bytes, Rows
from orbitmq.format.ordinary import ZEROS_MAX

NOWHERE: Final = 2**63 - 1
"""As `whole_from`: no record is known to be ours."""
SECTOR_BYTES: Final = ZEROS_MAX + 2


def whole_from(checkpoint: Checkpoint | None) -> int:
    """Return from which log offset on all records are ours, by what the checkpoint says."""
    extension = checkpoint.extension if checkpoint is not None else None
    return extension.own_from if extension is not None else NOWHERE


def first_torn(buffer: Bytes, rows: Rows, start: int) -> int | None:
    """Return which row is the first torn record at or behind log offset `start`, or None.

    `buffer` is a whole segment: sectors are counted from its start.
    """
    first = int(np.searchsorted(rows["log_offset"], start))
    if first == len(rows):
        return None
    rows = rows[first:]
    topic_ends = rows["topic_at"] + rows["topic_length"]
    ends = rows["properties_at"] + rows["properties_length"]
    torn = (rows["topic_length"] > 0) & (buffer[topic_ends - 1] == 0)
    torn |= (rows["properties_length"] > 0) & (buffer[ends - 1] == 0)
    torn |= _has_lost_sector(buffer, rows["properties_at"], ends)
    found = np.flatnonzero(torn)
    return first + int(found[0]) if len(found) else None


def _has_lost_sector(
    buffer: Bytes, starts: npt.NDArray[np.int32], ends: npt.NDArray[np.int32]
) -> npt.NDArray[np.bool_]:
    """Tell which properties hold a sector of zeros; the length field's last byte may be its first."""
    lost = np.zeros(len(starts), dtype=np.bool_)
    sectors = -(-(starts - 1) // SECTOR_BYTES) * SECTOR_BYTES
    left = np.flatnonzero(sectors + SECTOR_BYTES <= ends)
    while len(left):
        for index in left[buffer[sectors[left]] == 0].tolist():
            at = int(sectors[index])
            lost[index] |= not buffer[at : at + SECTOR_BYTES].any()
        sectors[left] += SECTOR_BYTES
        left = left[sectors[left] + SECTOR_BYTES <= ends[left]]
    return lost
