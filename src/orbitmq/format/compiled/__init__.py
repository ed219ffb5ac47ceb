"""The kernels in numba: the same results as the plain ones at the speed of memory.

Importing this loads every kernel from numba's cache (or compiles them once, for half a minute), so that
no call stalls later. All of them release the GIL.
"""

from typing import TYPE_CHECKING

from orbitmq.format.columns import Bytes
from orbitmq.format.compiled import crc
from orbitmq.format.compiled.arrays import frozen
from orbitmq.format.compiled.encode import client_batch_sizes, encode_client_batch
from orbitmq.format.compiled.gather import (
    bodies_match,
    gather,
    property_pairs,
    split_parts,
    text_spans,
)
from orbitmq.format.compiled.index import index_chain, index_insert, index_items
from orbitmq.format.compiled.queues import QueueTable, pack_units
from orbitmq.format.compiled.scan import find_record, scan
from orbitmq.format.compiled.warm import warm

if TYPE_CHECKING:
    from orbitmq.format.kernels import Kernels


def crc32(buffer: Bytes) -> int:
    checksum: int = crc.crc32(frozen(buffer))
    return checksum


class CompiledKernels:
    """The fast kernels."""

    name = "compiled"

    crc32 = staticmethod(crc32)
    scan = staticmethod(scan)
    find_record = staticmethod(find_record)
    queue_table = QueueTable
    pack_units = staticmethod(pack_units)
    index_items = staticmethod(index_items)
    index_insert = staticmethod(index_insert)
    index_chain = staticmethod(index_chain)
    gather = staticmethod(gather)
    text_spans = staticmethod(text_spans)
    property_pairs = staticmethod(property_pairs)
    split_parts = staticmethod(split_parts)
    bodies_match = staticmethod(bodies_match)
    encode_client_batch = staticmethod(encode_client_batch)
    client_batch_sizes = staticmethod(client_batch_sizes)


warm()
KERNELS: "Kernels" = CompiledKernels()
