"""A row for each key of a message (option `rowPerKey`), so that filters on keys can be pushed down.

Spark hands no filter on an array to a source, but it does hand over `key = 'k'`. The rows are those of
`explode_outer(array_distinct(keys))`: a message without keys is one row whose key is null. Bodies repeat
with their rows, so a batch is cut into pieces of bounded size.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.format.columns import Ints
from orbitmq.spark.source.pushdown import Predicate
from orbitmq.spark.source.row_columns import pieces
from orbitmq.spark.source.schemas import KEY

BATCH_BYTES_MAX: Final = 16 * 1024 * 1024


def key_rows(
    messages: pa.RecordBatch, schema: pa.Schema, predicates: Sequence[Predicate]
) -> Iterator[pa.RecordBatch]:
    """Yield a row for each key that the filters let pass.

    `messages` has `keys`, and all columns of the schema but the key.
    """
    parents, texts = _keys_of(messages.column("keys"))
    wanted = np.ones(len(texts), dtype=np.bool_)
    for predicate in predicates:
        wanted &= predicate.passes(texts)
    places = np.flatnonzero(wanted)
    weights = _row_bytes(messages)[parents[places]]
    for piece in pieces(places, weights, BATCH_BYTES_MAX):
        rows = messages.take(pa.array(parents[piece]))
        key = texts.take(pa.array(piece))
        arrays = [key if name == KEY else rows.column(name) for name in schema.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _keys_of(lists: pa.Array) -> tuple[Ints, pa.Array]:
    """Return of each row its message's number, and its key: each once, null for a message without any."""
    parents = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
    texts = lists.flatten()
    codes = texts.dictionary_encode().indices.to_numpy().astype(np.int64)
    _, first = np.unique(parents * max(len(texts), 1) + codes, return_index=True)
    without = np.setdiff1d(np.arange(len(lists)), parents)
    owners = np.concatenate((parents[first], without))
    keys = pa.concat_arrays([texts.take(pa.array(first)), pa.nulls(len(without), texts.type)])
    order = np.lexsort((np.concatenate((first, without)), owners))
    return owners[order], keys.take(pa.array(order))


def _row_bytes(messages: pa.RecordBatch) -> Ints:
    """Return about how large each row is; only bodies differ much."""
    names = [name for name in messages.schema.names if name != "body"]
    rest = messages.select(names).nbytes // max(messages.num_rows, 1)
    if "body" not in messages.schema.names:
        return np.full(messages.num_rows, rest, dtype=np.int64)
    bodies = pc.fill_null(pc.binary_length(messages.column("body")), 0)
    found: Ints = bodies.to_numpy().astype(np.int64) + rest
    return found
