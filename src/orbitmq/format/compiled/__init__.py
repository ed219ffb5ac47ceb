"""The kernels in numba: the same results as the plain ones at the speed of memory.

Importing this loads every kernel from numba's cache (or compiles them once, for half a minute), so that
no call stalls later. All of them release the GIL.
"""

import numpy as np

from orbitmq.format.columns import APPEND, ITEM, ROW, Bytes, Rows, ScanOptions
from orbitmq.format.compiled import crc, jit
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
from orbitmq.format.compiled.queues import FIRST_SLOTS, QueueTable, pack_units
from orbitmq.format.compiled.scan import find_record, scan, skip_records
from orbitmq.format.compiled.waiting import publish_due, read_waiting, walk_slot, write_due
from orbitmq.format.plain import Kernels
from orbitmq.format.waiting import WAITED_FOR, WAITING


def crc32(buffer: Bytes) -> int:
    checksum: int = crc.crc32(frozen(buffer))
    return checksum


class CompiledKernels(Kernels):
    """The fast kernels."""

    name = "compiled"

    crc32 = staticmethod(crc32)
    scan = staticmethod(scan)
    find_record = staticmethod(find_record)
    skip_records = staticmethod(skip_records)
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
    read_waiting = staticmethod(read_waiting)
    write_due = staticmethod(write_due)
    publish_due = staticmethod(publish_due)
    walk_slot = staticmethod(walk_slot)


KERNELS = CompiledKernels()


def _warm() -> None:
    """Call every kernel once on next to nothing, so that all are loaded or compiled, and no other later."""
    nothing = np.empty(0, dtype=np.uint8)
    no_rows = np.empty(0, dtype=ROW)
    crc32(nothing)
    crc.crc32_by_tables(frozen(nothing))
    scan(nothing, 0, 0, 0, ScanOptions())
    find_record(nothing, 0, 0, 0)
    skip_records(nothing, 0, 0, 0)
    _warm_queues(no_rows)
    index_items(nothing, no_rows)
    _warm_index_file()
    _warm_gather(nothing, no_rows)
    _warm_waiting(nothing)
    shared = np.zeros(1, dtype=APPEND)
    shared["version"] = 1
    encode_client_batch(nothing, 0, 0, 0, shared, b"", nothing, b"")
    jit.close(__name__)


def _warm_queues(no_rows: Rows) -> None:
    table = QueueTable()
    for queue_id in range(FIRST_SLOTS):  # grows once
        table.add(b"", queue_id)
    numbers = table.resolve(np.empty(0, dtype=np.uint8), no_rows)
    pack_units(no_rows, numbers)


def _warm_gather(nothing: Bytes, no_rows: Rows) -> None:
    none = np.empty(0, dtype=np.int64)
    gather(nothing, none, none, nothing, none)
    text_spans(nothing, no_rows)
    property_pairs(nothing, no_rows)
    split_parts(nothing, none, none, 0)
    bodies_match(nothing, no_rows)


def _warm_waiting(nothing: Bytes) -> None:
    none, host = np.empty(0, dtype=np.int64), np.frombuffer(bytes(8), dtype=np.uint8)
    rows, queues = np.empty(0, dtype=WAITING), np.empty(0, dtype=WAITED_FOR)
    read_waiting(nothing, none, none, none, 0, 0, rows, queues, check_crc=True)
    write_due(nothing, 0, 0, 0, host, 0, frozen(nothing), rows, 0, queues)
    publish_due(nothing, 0, rows, 0)
    walk_slot(nothing, 0, -1, 0, none, none)


def _warm_index_file() -> None:
    slots = np.zeros(1, dtype=np.int32)
    entries, state = np.empty(0, dtype=np.uint8), np.zeros(6, dtype=np.int64)
    index_insert(np.empty(0, dtype=ITEM), 0, slots, entries, 0, state, 0)
    index_chain(np.zeros(100, dtype=np.uint8), 1, 0, 0, 0, 1)


_warm()
