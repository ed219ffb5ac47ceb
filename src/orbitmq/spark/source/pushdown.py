"""Filters that Spark pushes down: which of them a read can do itself, and what they let it leave out.

A pushed filter is computed over the very column that the table would show, with SQL's rules for null, so that
results are the same with and without it. What a filter says about offsets, times, topics, tags, keys and ids
also narrows the options of the read (`narrowed`): fewer segments, or places found through an index.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.row_columns import ARROW_SCHEMA, RowColumns
from orbitmq.spark.source.schemas import KEY

NUMBER_COLUMNS: Final = (
    "queue_id",
    "queue_offset",
    "log_offset",
    "size",
    "sys_flag",
    "reconsume_times",
    "body_length",
)
TIME_COLUMNS: Final = ("store_time", "born_time")
TEXT_COLUMNS: Final = ("topic", "tags", "message_id", KEY)
PUSHED_COLUMNS: Final = NUMBER_COLUMNS + TIME_COLUMNS + TEXT_COLUMNS
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_INT64: Final = (-(2**63), 2**63 - 1)

Mask = npt.NDArray[np.bool_]
_Compare = Callable[[pa.Array, Any], pa.Array]

_ORDER: Final[dict[type[Filter], _Compare]] = {
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}


@dataclass(frozen=True, slots=True)
class Predicate:
    """One filter on one column, with values as Arrow compares them: numbers, microseconds, texts."""

    column: str
    kind: type[Filter]
    values: tuple[Any, ...] = ()
    negated: bool = False

    def matches(self, columns: RowColumns) -> Mask:
        """Return which rows the filter lets pass; null is no."""
        return self.passes(columns.column(self.column))

    def accepts_bad_place(self, log_offset: int, size: int) -> bool:
        """Return whether the filter lets the row of a bad place pass: all but these two are null."""
        value = {"log_offset": log_offset, "size": size}.get(self.column)
        kind = ARROW_SCHEMA.field(self.column).type
        return bool(self.passes(pa.array([value], type=kind))[0])

    def passes(self, array: pa.Array) -> Mask:
        """Return which elements of the column the filter lets pass; null is no."""
        found = self._compared(array)
        if self.negated:
            found = pc.invert(found)
        mask: Mask = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
        return mask

    def _compared(self, array: pa.Array) -> pa.Array:
        """Return true, false or null for each element, as SQL has it."""
        if self.kind is IsNull:
            return pc.is_null(array)
        if self.kind is IsNotNull:
            return pc.is_valid(array)
        comparable = array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array
        if pa.types.is_integer(comparable.type):
            comparable = comparable.cast(pa.int64())
        values = pa.array(self.values, type=comparable.type)
        if self.kind in _ORDER:
            return _ORDER[self.kind](comparable, values[0])
        if self.kind is StringStartsWith:
            return pc.starts_with(comparable, self.values[0])
        found = pc.is_in(comparable, value_set=values)
        if self.kind is EqualNullSafe:
            return found  # null is not equal to a value, and that is no null
        return pc.if_else(pc.is_valid(comparable), found, pa.scalar(None, pa.bool_()))


class TableReader(DataSourceReader):
    """A table that takes filters, where it may. Travels to tasks; not thread-safe."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._predicates: tuple[Predicate, ...] = ()
        if options.pushdown:
            self.pushFilters = _PushFilters(self)  # type: ignore[method-assign]

    def push(self, filters: Sequence[Filter]) -> list[Filter]:
        """Take filters; return those that Spark must do."""
        predicates, left = pushed(filters)
        self._predicates = tuple(predicates)
        self._options = narrowed(self._options, predicates)
        return left


class _PushFilters:
    """The reader's `pushFilters`, which Spark takes for the one that every reader inherits.

    A reader that overrides the method fails where push-down is off, and the process that makes the reader
    is not told whether it is. With this one it works either way: Spark calls it if push-down is on, and
    finds nothing overridden if it is off.
    """

    __func__: Any = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, table: TableReader) -> None:
        self._table = table

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._table.push(filters)


def pushed(filters: Sequence[Filter]) -> tuple[list[Predicate], list[Filter]]:
    """Return the filters that a read does itself, and those that are left to Spark."""
    predicates: list[Predicate] = []
    left: list[Filter] = []
    for one in filters:
        predicate = _predicate(one)
        if predicate is None:
            left.append(one)
        else:
            predicates.append(predicate)
    return predicates, left


def _predicate(one: Filter) -> Predicate | None:
    negated = isinstance(one, Not)
    inner = one.child if isinstance(one, Not) else one
    path = getattr(inner, "attribute", None)
    if path is None or len(path) != 1 or path[0] not in PUSHED_COLUMNS:
        return None
    column = path[0]
    if isinstance(inner, IsNull | IsNotNull):
        return Predicate(column, type(inner), (), negated)
    values = _values(column, inner)
    if values is None:
        return None
    return Predicate(column, type(inner), values, negated)


def _values(column: str, one: Filter) -> tuple[Any, ...] | None:
    """Return the filter's values in comparable form, None if this filter is not for us."""
    if isinstance(one, EqualTo | EqualNullSafe):
        given: Iterable[Any] = (one.value,)
    elif isinstance(one, In):
        given = one.value
    elif isinstance(one, StringStartsWith) and column in TEXT_COLUMNS:
        given = (one.value,)
    elif type(one) in _ORDER and column not in TEXT_COLUMNS:
        given = (one.value,)  # type: ignore[attr-defined]
    else:
        return None
    values = [_comparable(column, value) for value in given]
    # A null among the values makes SQL's answer unknown in ways that are not worth a copy here.
    return None if None in values or not values else tuple(values)


def _comparable(column: str, value: Any) -> int | str | None:
    if column in TEXT_COLUMNS:
        return value if isinstance(value, str) else None
    if column in TIME_COLUMNS:
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        return (value - _EPOCH) // _MICROSECOND
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if _INT64[0] <= value <= _INT64[1] else None


def narrowed(options: ReadOptions, predicates: Iterable[Predicate]) -> ReadOptions:
    """Return options that leave out what no row that passes the filters can need.

    They may select more than the filters, never less.
    """
    for predicate in predicates:
        if not predicate.negated and predicate.values:
            options = _narrowed(options, predicate)
    return options


def _narrowed(options: ReadOptions, predicate: Predicate) -> ReadOptions:
    column, values = predicate.column, predicate.values
    if column in _RANGES:
        return _narrowed_range(options, predicate)
    if predicate.kind not in (EqualTo, EqualNullSafe, In):
        return options
    name = _LISTS.get(column)
    if name and not getattr(options, name) and all(map(_is_exact, values)):
        found: dict[str, Any] = {name: values}
        return replace(options, **found)
    if column == "queue_id" and options.queue_id is None and len(values) == 1:
        return replace(options, queue_id=values[0])
    return options


def _is_exact(text: str) -> bool:
    """Return whether only one byte string is shown as this text."""
    return bool(text) and "\ufffd" not in text


_LISTS: Final = {"topic": "topics", "tags": "tags", "message_id": "ids", KEY: "keys"}
"""By column: the option that lists its wanted values."""


_RANGES: Final = {
    "log_offset": ("start_offset", "end_offset", 1),
    "queue_offset": ("start_queue_offset", "end_queue_offset", 1),
    "store_time": ("start_ms", "end_ms", 1000),
}
"""By column: the options that bound it, and how many of its units make one of theirs."""


def _narrowed_range(options: ReadOptions, predicate: Predicate) -> ReadOptions:
    start_name, end_name, scale = _RANGES[predicate.column]
    low, high = min(predicate.values) // scale, -(-max(predicate.values) // scale)
    start, end = getattr(options, start_name), getattr(options, end_name)
    if predicate.kind not in (LessThan, LessThanOrEqual):
        start = low if start is None else max(start, low)
    if predicate.kind not in (GreaterThan, GreaterThanOrEqual):
        end = high + 1 if end is None else min(end, high + 1)
    return replace(options, **{start_name: start, end_name: end})
