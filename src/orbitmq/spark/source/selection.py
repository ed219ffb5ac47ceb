"""Which records a read wants: whole columns are compared at once, the cheap ones first.

Options and pushed filters meet here. A tag is compared by its hash first, which every row has; only where
that fits is the text looked at. Fillers, which stand where a damaged record was, are never wanted.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.format.columns import Bytes, Ints, Mark, Rows
from orbitmq.format.java_hash import java_hash
from orbitmq.format.kernels import Kernels
from orbitmq.spark.source.held import is_held
from orbitmq.spark.source.options import OFFSET_MAX, ReadOptions
from orbitmq.spark.source.pushdown import Predicate
from orbitmq.spark.source.row_columns import RowColumns, gathered
from orbitmq.spark.source.schemas import KEY

Mask = npt.NDArray[np.bool_]
_SPACE: Final = ord(" ")


@dataclass(frozen=True, slots=True)
class RowSelection:
    """What options and pushed filters select. Immutable; travels to tasks."""

    options: ReadOptions
    predicates: tuple[Predicate, ...] = ()

    @property
    def key_predicates(self) -> tuple[Predicate, ...]:
        """The filters of rows, not of messages: see `key_rows`."""
        return tuple(one for one in self.predicates if one.column == KEY)

    @property
    def _message_predicates(self) -> tuple[Predicate, ...]:
        return tuple(one for one in self.predicates if one.column != KEY)

    def select(self, kernels: Kernels, buffer: Bytes, rows: Rows) -> Rows:
        """Return the rows that are wanted; the same array if all are."""
        mask = self.matches(kernels, buffer, rows)
        return rows if mask.all() else rows[mask]

    def matches(self, kernels: Kernels, buffer: Bytes, rows: Rows) -> Mask:
        """Return of each row whether it is wanted. `buffer` is what the rows were read from."""
        mask, options = self._by_numbers(rows), self.options
        tests = (
            (options.topics, self._by_topic),
            (options.without, self._by_place),
            (options.tags, self._by_tag),
            (options.ids, self._by_id),
            (options.keys, self._by_key),
            (self._message_predicates, self._by_predicates),
            (options.sql92, self._by_sql92),
        )
        for wanted, test in tests:
            if wanted:
                left = np.flatnonzero(mask)
                if not len(left):
                    break
                mask[left] = test(RowColumns(kernels, buffer, rows[left]))
        return mask

    def covers(self, log_offset: int) -> bool:
        """Return whether a bad place at this offset concerns the read: what it held is not known."""
        start, end = self.options.start_offset, self.options.end_offset
        return (start is None or log_offset >= start) and (end is None or log_offset < end)

    def shows_bad_place(self, log_offset: int, size: int) -> bool:
        """Return whether the row that stands for a bad place passes the filters, most of it null."""
        return all(one.accepts_bad_place(log_offset, size) for one in self.predicates)

    def _by_numbers(self, rows: Rows) -> Mask:
        options = self.options
        mask: Mask = (rows["marks"] & Mark.FILLER) == 0
        mask &= _in_range(rows["log_offset"], options.start_offset, options.end_offset)
        mask &= _in_range(rows["store_ms"], options.start_ms, options.end_ms)
        if options.queue_id is not None:
            mask &= rows["queue_id"] == options.queue_id
        mask &= _in_range(rows["queue_offset"], None, options.end_queue_offset)
        if options.start_queue_offset is not None:
            # An inner batch is wanted if one of its messages is.
            further = np.maximum(rows["batch_count"].astype(np.int64), 1) - 1
            mask &= rows["queue_offset"] >= options.start_queue_offset - further
        return mask

    def _by_topic(self, columns: RowColumns) -> Mask:
        at, lengths = (columns.rows[name] for name in ("topic_at", "topic_length"))
        return _is_one_of(columns, at, lengths, self.options.topics)

    def _by_place(self, columns: RowColumns) -> Mask:
        """Leave out what is held elsewhere."""
        held, rows = self.options.without, columns.rows
        assert held is not None
        topics = columns.column("topic").dictionary_encode()
        codes = topics.indices.to_numpy()
        mask = np.ones(len(rows), dtype=np.bool_)
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            mine = codes == code
            numbers = (rows[name][mine] for name in ("log_offset", "store_ms"))
            mask[mine] = ~is_held(held.of_topic(topic), *numbers)
        return mask

    def _by_tag(self, columns: RowColumns) -> Mask:
        # What a filter of RocketMQ compares too, and what all rows have at hand.
        hashes = np.array([java_hash(tag) for tag in self.options.tags], dtype=np.int64)
        mask = np.isin(columns.rows["tag_hash"], hashes)
        left = RowColumns(columns.kernels, columns.buffer, columns.rows[mask])
        mask[mask] = _span_is_one_of(left, "tags", self.options.tags)
        return mask

    def _by_key(self, columns: RowColumns) -> Mask:
        spans = columns.kernels.text_spans(columns.buffer, columns.rows)
        at, lengths = (spans[name].astype(np.int64) for name in ("keys_at", "keys_length"))
        parts = columns.kernels.split_parts(columns.buffer, at, lengths, _SPACE)
        elements = parts.elements
        hits = _is_one_of(columns, elements["at"], elements["length"], self.options.keys)
        # How many hits lie before each row's first key and before its last one's end.
        before = np.concatenate(([0], np.cumsum(hits)))[parts.ends]
        mask: Mask = before[1:] > before[:-1]
        return mask

    def _by_id(self, columns: RowColumns) -> Mask:
        words = self.options.index_words
        mask = _span_is_one_of(columns, "unique", words)
        offsets = np.array(list(self.options.named_offsets), dtype=np.int64)
        named = np.isin(columns.rows["log_offset"], offsets)
        if named.any():
            left = RowColumns(columns.kernels, columns.buffer, columns.rows[named])
            wanted = pa.array([word for word in words if word.isascii()], pa.string())
            found = pc.is_in(left.column("offset_id"), value_set=wanted)
            mask[named] |= found.to_numpy(zero_copy_only=False)
        return mask

    def _by_predicates(self, columns: RowColumns) -> Mask:
        mask = np.ones(len(columns.rows), dtype=np.bool_)
        for predicate in self._message_predicates:
            left = RowColumns(columns.kernels, columns.buffer, columns.rows[mask])
            mask[mask] = predicate.matches(left)
        return mask

    def _by_sql92(self, columns: RowColumns) -> Mask:
        # With its parser only where there is an expression.
        from orbitmq.sql92.expression import compiled
        from orbitmq.sql92.fast import kernels

        expression, rows = compiled(self.options.sql92), columns.rows
        chosen = kernels.plain() if columns.kernels.name == "plain" else kernels.compiled()
        at, lengths = (rows[f"properties_{part}"].astype(np.int64) for part in ("at", "length"))
        return expression.matches_many(chosen, columns.buffer, at, lengths)


def _in_range(numbers: Ints, start: int | None, end: int | None) -> Mask:
    mask = np.ones(len(numbers), dtype=np.bool_)
    if start is not None:
        mask &= numbers >= start
    if end is not None and end <= OFFSET_MAX:  # numpy compares with 64 bits only
        mask &= numbers < end
    return mask


def _span_is_one_of(columns: RowColumns, name: str, wanted: Collection[str]) -> Mask:
    spans = columns.kernels.text_spans(columns.buffer, columns.rows)
    return _is_one_of(columns, spans[f"{name}_at"], spans[f"{name}_length"], wanted)


def _is_one_of(columns: RowColumns, at: Ints, lengths: Ints, wanted: Collection[str]) -> Mask:
    """Return which pieces of the buffer are one of these texts; nothing is equal to an empty piece."""
    texts = pa.array([text.encode("utf-8", "replace") for text in wanted], type=pa.binary())
    pieces = gathered(columns.kernels, columns.buffer, at, lengths).array(pa.binary())
    mask: Mask = pc.is_in(pieces, value_set=texts).to_numpy(zero_copy_only=False)
    return mask & (lengths > 0)
