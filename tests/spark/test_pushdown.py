"""Pushed filters: rows as if Spark had filtered, whatever the filters; the rest is left to it."""

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
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
    StringContains,
    StringStartsWith,
)

from log_builder import FIRST_MS, LogBuilder, write_log
from orbitmq.message import Property
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.pushdown import narrowed, pushed
from spark.reading_world import Row, rows_of, table

pytestmark = [pytest.mark.feature("P4")]

START = datetime.fromtimestamp(FIRST_MS / 1000, tz=UTC)
ORDERS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


@cache
def _store() -> Path:
    """Return a log of two segments in which every pushed column has several values, and a bad place."""
    builder = LogBuilder(segment_bytes=2048)
    for number in range(24):
        tags = {"TAGS": ("Aa", "BB", "Aa?", "Aab")[number % 4]} if number % 5 else {}
        named = {Property.UNIQ_KEY: f"ID{number % 7}"} if number % 3 else {}
        # One has a time that no timestamp can show.
        builder.store_ms = 2**62 if number == 3 else FIRST_MS + number
        builder.append(topic=("T", "Tx", "U")[number % 3], queue_id=number % 2, **tags, **named)
    malformed = builder.records[2]
    builder.overwrite(malformed.start + malformed.raw.index(b"Aa?") + 2, b"\xff")
    builder.overwrite(builder.records[7].start + 4, b"\0\0\0\0")  # nothing can be known of this one
    return write_log(builder, Path(mkdtemp(prefix="orbitmq-pushdown-")) / "store")


@cache
def _all_rows() -> list[Row]:
    rows = rows_of(table(_store(), badRecords="keep"))
    assert len(rows) == 24
    assert sum(row["error"] is not None for row in rows) == 1
    assert sum(row["store_time"] is None for row in rows) == 2
    assert any(row["tags"] == "Aa\ufffd" for row in rows)
    return rows


def _truth(one: Filter, row: Row) -> bool | None:
    """Return what SQL says of a filter and a row: None is unknown."""
    if isinstance(one, Not):
        inner = _truth(one.child, row)
        return None if inner is None else not inner
    value = row[one.attribute[0]]  # type: ignore[attr-defined]
    if isinstance(one, IsNull | IsNotNull):
        return (value is None) == isinstance(one, IsNull)
    if isinstance(one, EqualNullSafe):
        return bool(value == one.value)
    if value is None:
        return None
    if isinstance(one, In):
        return True if value in one.value else None if None in one.value else False
    wanted = one.value  # type: ignore[attr-defined]
    if wanted is None:
        return None
    if isinstance(one, EqualTo):
        return bool(value == wanted)
    if isinstance(one, StringStartsWith):
        return bool(value.startswith(wanted))
    if isinstance(one, StringContains):
        return wanted in value
    return ORDERS[type(one)](value, wanted)


texts = st.sampled_from(
    ["T", "Tx", "U", "Aa", "BB", "Aab", "ID1", "ID2", "", "Aa?", "Aa\ufffd", None]
)
times = st.one_of(
    st.integers(-2_000, 40_000).map(lambda count: START + timedelta(microseconds=count)),
    st.sampled_from([datetime(9999, 12, 31, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC), None]),
)
numbers = st.one_of(
    st.integers(-2, 30), st.integers(0, 5000), st.sampled_from([-(2**63), 2**63 - 1, 2**31, None])
)
COLUMNS = {
    **dict.fromkeys(("topic", "tags", "message_id"), texts),
    **dict.fromkeys(("store_time", "born_time"), times),
    **dict.fromkeys(("queue_id", "queue_offset", "log_offset", "size", "sys_flag"), numbers),
}


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(COLUMNS)))
    path, values = (column,), COLUMNS[column]
    kinds: list[type] = [EqualTo, EqualNullSafe, In, IsNull, IsNotNull]
    kinds += [StringStartsWith, StringContains] if values is texts else list(ORDERS)
    kind = draw(st.sampled_from(kinds))
    if kind in (IsNull, IsNotNull):
        found = kind(path)
    elif kind is In:
        found = In(path, tuple(draw(st.lists(values, min_size=1, max_size=4))))
    elif kind in (StringStartsWith, StringContains):
        found = kind(path, draw(values.filter(lambda value: value is not None)))
    else:
        found = kind(path, draw(values))
    return Not(found) if draw(st.booleans()) else found


@settings(max_examples=150, deadline=None)
@given(given_filters=st.lists(filters(), min_size=1, max_size=4))
@example([LessThan(("log_offset",), 1600)])  # ends the range of the bad place elsewhere
def test_rows_are_those_that_spark_would_keep(given_filters: list[Filter]) -> None:
    found = table(_store(), badRecords="keep")

    left = found.push(given_filters)

    in_log = operator.itemgetter("log_offset")  # a table has no order
    rows, everything = sorted(rows_of(found), key=in_log), sorted(_all_rows(), key=in_log)
    expected = [row for row in everything if all(_truth(one, row) for one in given_filters)]
    kept = [row for row in rows if all(_truth(one, row) for one in left)]
    assert kept == expected
    assert all(_truth(one, row) for row in rows for one in given_filters if one not in left)


@settings(max_examples=60, deadline=None)
@given(given_filters=st.lists(filters(), min_size=1, max_size=4))
def test_look_ups_find_the_same_rows(given_filters: list[Filter]) -> None:
    found = table(_store(), badRecords="skip")

    left = found.push(given_filters)

    rows = [row for row in rows_of(found) if all(_truth(one, row) for one in left)]
    good = [row for row in _all_rows() if row["error"] is None]
    assert rows == [row for row in good if all(_truth(one, row) for one in given_filters)]


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("body",), b"x"),
        EqualTo(("keys",), ["a"]),
        EqualTo(("properties", "a"), "b"),
        EqualTo(("topic",), 5),
        EqualTo(("queue_id",), "5"),
        EqualTo(("queue_id",), True),
        EqualTo(("queue_offset",), 2**63),
        EqualTo(("store_time",), datetime(2026, 1, 1)),  # noqa: DTZ001 - no time zone: not ours
        GreaterThan(("topic",), "a"),
        StringContains(("topic",), "a"),
        In(("topic",), ("a", None)),
        Not(Not(EqualTo(("topic",), "a"))),
    ],
)
def test_what_is_not_understood_is_left_to_spark(one: Filter) -> None:
    taken = EqualTo(("topic",), "T")

    predicates, left = pushed([one, taken])

    assert left == [one]
    assert left[0] is one
    assert [predicate.column for predicate in predicates] == ["topic"]


def _narrowed(*given_filters: Filter, **options: str) -> ReadOptions:
    predicates, left = pushed(given_filters)
    assert not left
    return narrowed(ReadOptions.parse({"path": "/store", **options}), predicates)


def test_filters_narrow_what_is_read() -> None:
    found = _narrowed(
        In(("topic",), ("a", "b")),
        EqualTo(("tags",), "t"),
        EqualTo(("message_id",), "i"),
        EqualTo(("queue_id",), 3),
        GreaterThan(("log_offset",), 100),
        LessThanOrEqual(("log_offset",), 200),
        EqualTo(("queue_offset",), 7),
        GreaterThanOrEqual(("store_time",), START + timedelta(microseconds=1)),
    )

    assert (found.topics, found.tags, found.ids, found.queue_id) == (("a", "b"), ("t",), ("i",), 3)
    assert (found.start_offset, found.end_offset) == (100, 201)
    assert (found.start_queue_offset, found.end_queue_offset) == (7, 8)
    assert (found.start_ms, found.end_ms) == (FIRST_MS, None)


def test_filters_never_widen_what_the_options_say() -> None:
    found = _narrowed(
        EqualTo(("topic",), "a"),
        GreaterThan(("log_offset",), 5),
        LessThan(("log_offset",), 500),
        topics="b",
        startOffset="10",
        endOffset="20",
    )

    assert found.topics == ("b",)
    assert (found.start_offset, found.end_offset) == (10, 20)


def test_negated_filters_narrow_nothing() -> None:
    found = _narrowed(Not(EqualTo(("topic",), "a")), Not(LessThan(("log_offset",), 5)))

    assert found == ReadOptions.parse({"path": "/store"})
