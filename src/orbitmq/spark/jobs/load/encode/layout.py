"""Messages as columns, and what the kernels that make records of them have in common."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.format.columns import Bytes, Ints
from orbitmq.format.record import OVERHEAD_BYTES
from orbitmq.message import PROPERTIES_BYTES_MAX, RETRY_TOPIC_BYTES_MAX, TOPIC_BYTES_MAX, SysFlag

MESSAGE: Final = np.dtype(
    [
        ("queue_offset", "i8"),
        ("born_ms", "i8"),
        ("queue_id", "i4"),
        ("flag", "i4"),
        ("sys_flag", "i4"),
        ("reconsume_times", "i4"),
    ],
    align=True,
)
"""What a record says of its message beside topic, body and properties. Both hosts are IPv4."""

Messages = npt.NDArray[np.void]  # of MESSAGE

HOSTS_BYTES: Final = 16
RECORD_BYTES_MAX: Final = 2**31 - 1
_V6: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)


class Texts(NamedTuple):
    """A column of texts as Arrow has it: text i is data[ends[i]:ends[i + 1]]."""

    data: Bytes
    ends: Ints

    @property
    def lengths(self) -> Ints:
        return np.diff(self.ends)


class Columns(NamedTuple):
    """Messages that become records, one after the other."""

    messages: Messages
    topics: Texts
    bodies: Texts
    properties: Texts


class EncodeKernels(NamedTuple):
    """The hot loops of a load, in one of two forms.

    encode(out, columns, store_ms, hosts): write the records, log offsets from 0 on; `hosts` are those of
    producer and store, packed, one behind the other. Returns their sizes. FormatError before the first byte.
    hashes(texts): Java's hash of each text.
    """

    name: str
    encode: Callable[[Bytes, Columns, int, bytes], Ints]
    hashes: Callable[[Texts], npt.NDArray[np.int32]]


def record_sizes(columns: Columns) -> Ints:
    """Return how long each record will be. FormatError: a text lies outside, or does not fit a record."""
    for texts in columns[1:]:
        require_inside(texts, len(columns.messages))
    if (columns.messages["sys_flag"] & _V6).any():
        raise FormatError("the hosts of these records are IPv4")
    topics, properties = columns.topics.lengths, columns.properties.lengths
    _require_most(topics, RETRY_TOPIC_BYTES_MAX, "topic")
    _require_most(properties, PROPERTIES_BYTES_MAX, "properties")
    sizes = OVERHEAD_BYTES + topics + columns.bodies.lengths + properties
    sizes += topics > TOPIC_BYTES_MAX  # version 2: one byte more for the length
    _require_most(sizes, RECORD_BYTES_MAX, "record")
    return sizes


def require_inside(texts: Texts, count: int) -> None:
    """Raise FormatError unless there are so many texts, one behind the other inside of their bytes."""
    ends = texts.ends
    if len(ends) != count + 1:
        raise FormatError(f"{len(ends)} ends for {count} texts")
    if ends[0] < 0 or ends[-1] > len(texts.data) or (np.diff(ends) < 0).any():
        raise FormatError(f"a text lies outside of its {len(texts.data)} bytes")


def require_room(out: Bytes, sizes: Ints, hosts: bytes) -> None:
    """Raise FormatError unless the records and both hosts fit."""
    if len(hosts) != HOSTS_BYTES:
        raise FormatError(f"two IPv4 hosts have {HOSTS_BYTES} bytes, not {len(hosts)}")
    if int(sizes.sum()) > len(out):
        raise FormatError(f"{int(sizes.sum())} bytes of records do not fit into {len(out)}")


def _require_most(lengths: Ints, most: int, what: str) -> None:
    if len(lengths) and int(lengths.max()) > most:
        row = int(lengths.argmax())
        raise FormatError(f"{what} of {int(lengths[row])} bytes, limit {most}", row)
