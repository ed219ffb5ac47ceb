"""Ids and keys of messages on their way to the task that sees all copies of each.

A task collects a row for each id and key, with the place of the message, and hands them out by a hash of the
text as Arrow bytes: what Spark moves is a few large pieces. Rows of equal text are joined before, so that a
key that stands in every message costs no more than others.

RocketMQ's producers give all messages of a client batch one id. Such messages lie side by side: same queue,
same times, no byte between their records. They count as one copy of that id, a batch.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.format.columns import Ints
from orbitmq.spark.jobs.audit.tally import born_ms
from orbitmq.spark.source.row_columns import RowColumns
from orbitmq.units import MiB

ID: Final = 0
KEY: Final = 1
NO_ID: Final = 2
"""A message without an id of its own, by its offset id, under which traces know it. It has no copies."""

SCHEMA: Final = pa.schema(
    {
        "by": pa.int8(),
        "topic": pa.string(),
        "text": pa.string(),
        "copies": pa.int64(),  # for which the row stands, of which only the first has its place here
        "messages": pa.int64(),  # of these copies together
        "broker": pa.string(),
        "queue_id": pa.int32(),
        "queue_offset": pa.int64(),
        "log_offset": pa.int64(),
        "end_offset": pa.int64(),
        "born_ms": pa.int64(),
        "store_ms": pa.int64(),
    }
)
PLACES_SHOWN: Final = 5
PLACES_MAX: Final = PLACES_SHOWN + 1
"""Places of copies of one text that a task remembers: the first ones, and the last, with which the batch that
the next task begins with may go on."""
ROWS_MAX: Final = 131_072
BYTES_MAX: Final = 128 * MiB
"""So much waits before it is handed out: a key may be as long as all properties together."""

_WEIGHTS: Final = (np.random.default_rng(7).integers(1, 2**31, 256, dtype=np.uint32)) | 1

Sides = npt.NDArray[np.bool_]


class KeyedRows:
    """Collects the rows of one task. Not thread-safe."""

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets
        self._tables: list[pa.Table] = []
        self._rows = self._bytes = 0

    def add(self, topic: str, broker: str, columns: RowColumns) -> None:
        """Take the ids and keys of messages of one topic."""
        if len(columns.rows):
            places = _places(columns)
            self._put(topic, broker, *_ids(columns, places))
            self._put(topic, broker, *_no_ids(columns, places))
            self._put(topic, broker, *_keys(columns, places))

    def _put(self, topic: str, broker: str, by: int, rows: pa.Table) -> None:
        count = rows.num_rows
        if count:
            fixed = {"by": pa.array(np.full(count, by, dtype=np.int8))}
            fixed |= {n: pa.repeat(t, count) for n, t in (("topic", topic), ("broker", broker))}
            given = {name: rows[name] for name in rows.column_names}
            table = pa.table(given | fixed).select(SCHEMA.names).cast(SCHEMA)
            self._tables.append(table)
            self._rows += count
            self._bytes += table.nbytes

    def full(self) -> bool:
        return self._rows >= ROWS_MAX or self._bytes >= BYTES_MAX

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield what waits, by bucket, and forget it."""
        if not self._tables:
            return
        table = joined_rows(pa.concat_tables(self._tables))
        self._tables, self._rows, self._bytes = [], 0, 0
        buckets = bucket_of(table["text"].combine_chunks(), self._buckets)
        order = np.argsort(buckets, kind="stable")
        table, ends = table.take(order), np.cumsum(np.bincount(buckets, minlength=self._buckets))
        for bucket in np.unique(buckets).tolist():
            start = int(ends[bucket - 1]) if bucket else 0
            yield bucket, packed(table.slice(start, int(ends[bucket]) - start))


def packed(table: pa.Table) -> bytes:
    """Return a table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    found: bytes = sink.getvalue().to_pybytes()
    return found


def unpacked(data: bytes) -> pa.Table:
    """Return the table that these bytes are."""
    return pa.ipc.open_stream(data).read_all()


def bucket_of(texts: pa.Array, buckets: int) -> Ints:
    """Return for each text a number below `buckets`: the same one wherever it turns up. None is empty."""
    count = len(texts)
    if not count:
        return np.zeros(0, dtype=np.int64)
    ends = np.frombuffer(texts.buffers()[1], dtype=np.int32)[
        texts.offset : texts.offset + count + 1
    ]
    data = np.frombuffer(texts.buffers()[2], dtype=np.uint8)[ends[0] : ends[-1]]
    starts = (ends[:-1] - ends[0]).astype(np.int64)
    at = np.arange(len(data)) - np.repeat(starts, np.diff(ends))
    # Sums of 32 bits that run over are as good as any.
    parts = (data.astype(np.uint32) + np.uint32(1)) * _WEIGHTS[at & 0xFF]
    sums = np.add.reduceat(parts, starts, dtype=np.uint32)
    found: Ints = ((sums ^ (sums >> np.uint32(15))) % np.uint32(buckets)).astype(np.int64)
    return found


def group_numbers(table: pa.Table) -> Ints:
    """Return a number for each row, equal for equal kind, topic and text."""
    topics, texts = (table[name].combine_chunks().dictionary_encode() for name in ("topic", "text"))
    numbers = table["by"].to_numpy().astype(np.int64) * len(topics.dictionary)
    numbers = (numbers + topics.indices.to_numpy()) * len(texts.dictionary)
    found: Ints = numbers + texts.indices.to_numpy()
    return found


def joined_rows(table: pa.Table) -> pa.Table:
    """Return at most PLACES_MAX rows for each text: of more copies the first ones and the last."""
    numbers = group_numbers(table)
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    starts = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))
    counts = np.diff(np.append(starts, len(numbers)))
    rank = np.arange(len(numbers)) - np.repeat(starts, counts)
    behind = np.repeat(counts, counts) - rank
    keep = (rank < PLACES_MAX - 1) | (behind == 1)
    if keep.all():
        return table
    table = table.take(order)
    sums = {}
    for name in ("copies", "messages"):
        values = table[name].to_numpy().copy()
        left_out = np.add.reduceat(np.where(keep, 0, values), starts)
        long = counts > PLACES_MAX
        values[starts[long] + PLACES_MAX - 2] += left_out[long]
        sums[name] = pa.array(values)
    for name, array in sums.items():
        table = table.set_column(table.schema.get_field_index(name), name, array)
    return table.filter(pa.array(keep))


def continues(log_offset: Ints, end_offset: Ints, *same: npt.NDArray[np.generic]) -> Sides:
    """Return which rows are of the batch that the row before them is of; `same` must be equal in both."""
    sides: Sides = np.zeros(len(log_offset), dtype=np.bool_)
    sides[1:] = log_offset[1:] == end_offset[:-1]
    for values in same:
        sides[1:] &= values[1:] == values[:-1]
    return sides


# --- rows of one chunk ---

_Places = dict[str, Ints]
"""Columns of numbers, by their names in SCHEMA."""


def _places(columns: RowColumns) -> _Places:
    rows, born = columns.rows, born_ms(columns)[0]
    return {
        "queue_id": rows["queue_id"],
        "queue_offset": rows["queue_offset"],
        "log_offset": rows["log_offset"],
        "end_offset": rows["log_offset"] + rows["size"],
        "born_ms": born,
        "store_ms": rows["store_ms"],
    }


def _table(texts: pa.Array, messages: Ints, places: _Places, at: Ints) -> pa.Table:
    arrays = {name: np.ascontiguousarray(values[at]) for name, values in places.items()}
    counts = {"copies": np.ones(len(at), dtype=np.int64), "messages": messages}
    return pa.table({"text": texts, **counts, **arrays})


def _ids(columns: RowColumns, places: _Places) -> tuple[int, pa.Table]:
    ids = columns.column("message_id")
    has = np.flatnonzero(ids.is_valid().to_numpy(zero_copy_only=False))
    texts, mine = ids.take(has), {name: values[has] for name, values in places.items()}
    codes = texts.dictionary_encode().indices.to_numpy()
    sides = continues(
        mine["log_offset"],
        mine["end_offset"],
        *(codes, mine["queue_id"], mine["born_ms"], mine["store_ms"]),
    )
    first = np.flatnonzero(~sides)
    counts = np.diff(np.append(first, len(has)))
    ends = mine["end_offset"][first + counts - 1] if len(first) else first
    table = _table(texts.take(first), counts, mine, first)
    return ID, table.set_column(
        table.schema.get_field_index("end_offset"), "end_offset", pa.array(ends)
    )


def _no_ids(columns: RowColumns, places: _Places) -> tuple[int, pa.Table]:
    has_none = np.flatnonzero(columns.column("message_id").is_null().to_numpy(zero_copy_only=False))
    left = RowColumns(columns.kernels, columns.buffer, columns.rows[has_none])
    texts = left.column("offset_id") if len(has_none) else pa.array([], pa.string())
    return NO_ID, _table(texts, np.ones(len(has_none), dtype=np.int64), places, has_none)


def _keys(columns: RowColumns, places: _Places) -> tuple[int, pa.Table]:
    lists = columns.column("keys")
    texts, parents = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
    coded = texts.dictionary_encode()
    # A key that a message has twice is no duplicate, and what lies between two spaces is no key.
    pairs = parents.astype(np.int64) * max(len(coded.dictionary), 1) + coded.indices.to_numpy()
    at = np.sort(np.unique(pairs, return_index=True)[1])
    at = at[pc.binary_length(texts.take(at)).to_numpy() > 0]
    return KEY, _table(texts.take(at), np.ones(len(at), dtype=np.int64), places, parents[at])
