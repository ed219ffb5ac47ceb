"""The kernels in plain Python and numpy: readable, ready at once, and what the compiled ones must equal."""

from collections.abc import Callable

from orbitmq.format.columns import QueueTable
from orbitmq.format.crc import masked_crc32
from orbitmq.format.plain.encode import client_batch_sizes, encode_client_batch
from orbitmq.format.plain.gather import (
    bodies_match,
    gather,
    property_pairs,
    split_parts,
    text_spans,
)
from orbitmq.format.plain.index import index_chain, index_insert, index_items
from orbitmq.format.plain.queues import DictTable, pack_units
from orbitmq.format.plain.scan import find_record, scan, skip_records
from orbitmq.format.plain.waiting import publish_due, read_waiting, walk_slot, write_due


class Kernels:
    """One set of hot loops: these, or another with the same signatures (`compiled`)."""

    name = "plain"

    crc32 = staticmethod(masked_crc32)
    scan = staticmethod(scan)
    find_record = staticmethod(find_record)
    skip_records = staticmethod(skip_records)
    queue_table: Callable[[], QueueTable] = DictTable  # a new empty table
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
