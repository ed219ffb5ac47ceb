"""What tasks tell the driver of the records that they made."""

from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

ENTRY: Final = np.dtype([("size", "i4"), ("queue", "i4")])
"""One record of a part: its size, and the number of its queue in `PartFacts.queues`."""

Entries = npt.NDArray[np.void]  # of ENTRY


class PartQueue(NamedTuple):
    """A queue that rows of one partition went to."""

    topic: str
    queue_id: int
    records: int
    chosen: bool  # by us: in turn or by a key, so that the topic has all the queues to choose from


class PartFacts(NamedTuple):
    """The records of one partition: their files (none in a dry run) and how many went where."""

    partition: int
    records: int
    record_bytes: int
    records_path: str
    entries_path: str
    queues: list[PartQueue]


def to_bytes(facts: PartFacts) -> bytes:
    """Return facts as a task gives them to Spark."""
    return msgspec.json.encode(facts)


def from_bytes(data: bytes) -> PartFacts:
    return msgspec.json.decode(data, type=PartFacts)
