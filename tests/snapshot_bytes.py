"""Snapshots as bytes, from what recovery reads of them."""

import numpy as np

from orbitmq.format.snapshot import QUEUE_ROW, Snapshot, encode_rows


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return the file that a store with these queues and index files writes."""
    numbers: dict[str, int] = {}
    rows = [
        (numbers.setdefault(topic, len(numbers)), queue_id, kind, low, high, end, ext)
        for kind, topic, queue_id, low, high, end, ext in snapshot.queues
    ]
    return encode_rows(
        snapshot.generation,
        snapshot.dispatched_offset,
        np.array(rows, dtype=QUEUE_ROW),
        list(numbers),
        snapshot.index_files,
    )
