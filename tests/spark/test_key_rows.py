"""A row for each key: the rows that Spark would make of the array, and filters that find few records."""

from functools import cache
from operator import itemgetter
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    In,
    IsNotNull,
    IsNull,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import StringType, StructField, StructType

from log_builder import LogBuilder, write_log
from orbitmq.errors import ConfigError
from orbitmq.spark.source import key_rows
from orbitmq.spark.source.metrics import read_metrics
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.pushdown import narrowed, pushed
from orbitmq.spark.source.schemas import KEY_SCHEMA, MESSAGE_SCHEMA
from orbitmq.spark.source.source import OrbitmqSource
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import make_request
from spark.reading_world import Row, read_rows, rows_of, table
from spark.test_pushdown import _truth as truth

pytestmark = [pytest.mark.feature("P4")]

KEYS = ("a", "a b", "", "b c b", "ab", "c d a", "ä", "d ", " e", "a\ufffd")


@cache
def _store() -> Path:
    builder = LogBuilder(segment_bytes=4096)
    for number in range(30):
        keys = KEYS[number % len(KEYS)]
        builder.append(
            topic=f"T{number % 3}", body=b"%d" % number, **({"KEYS": keys} if keys else {})
        )
    builder.overwrite(builder.records[11].start + 4, b"\0\0\0\0")
    return write_log(builder, Path(mkdtemp(prefix="orbitmq-keys-")) / "store")


def _exploded(rows: list[Row]) -> list[Row]:
    return [row | {"key": key} for row in rows for key in dict.fromkeys(row["keys"] or [None])]


@cache
def _all_rows() -> list[Row]:
    rows = _exploded(read_rows(_store(), badRecords="keep"))
    assert len({row["log_offset"] for row in rows}) == 30 < len(rows)
    assert {row["key"] for row in rows} == {None, "a", "b", "c", "d", "e", "ab", "ä", "a\ufffd"}
    return rows


def test_there_is_a_row_for_each_key_and_one_without_any() -> None:
    found = rows_of(table(_store(), KEY_SCHEMA, rowPerKey="true", badRecords="keep"))

    assert found == _all_rows()
    assert sum(row["error"] is not None for row in found) == 1


texts = st.sampled_from(["a", "b", "c", "ab", "ä", "none", "a b", "", "a\ufffd"])


@st.composite
def key_filters(draw: st.DrawFn) -> Filter:
    kind = draw(st.sampled_from([EqualTo, EqualNullSafe, In, IsNull, IsNotNull, StringStartsWith]))
    if kind in (IsNull, IsNotNull):
        found = kind(("key",))
    elif kind is In:
        found = In(("key",), tuple(draw(st.lists(texts, min_size=1, max_size=3))))
    else:
        found = kind(("key",), draw(texts))
    return Not(found) if draw(st.booleans()) else found


@settings(max_examples=120, deadline=None)
@given(
    filters=st.lists(key_filters(), min_size=1, max_size=3),
    topic=st.booleans(),
    bad=st.sampled_from(["keep", "skip"]),
)
def test_filters_on_keys_keep_the_rows_that_spark_would(
    filters: list[Filter], topic: bool, bad: str
) -> None:
    found = table(_store(), KEY_SCHEMA, rowPerKey="true", badRecords=bad)
    asked = [*filters, *([EqualTo(("topic",), "T1")] if topic else [])]

    left = found.push(asked)

    kept = [row for row in _all_rows() if bad == "keep" or row["error"] is None]
    expected = [row for row in kept if all(truth(one, row) for one in asked)]
    in_log = itemgetter("log_offset")  # a table has no order
    assert left == []
    assert sorted(rows_of(found), key=in_log) == sorted(expected, key=in_log)


@pytest.mark.parametrize(
    ("one", "keys"),
    [
        (EqualTo(("key",), "k"), ("k",)),
        (In(("key",), ("k", "l")), ("k", "l")),
        (Not(EqualTo(("key",), "k")), ()),
        (StringStartsWith(("key",), "k"), ()),
        (EqualTo(("key",), "k\ufffd"), ()),  # many byte strings are shown so
    ],
)
def test_a_filter_on_a_key_is_looked_up_as_the_option_is(
    one: Filter, keys: tuple[str, ...]
) -> None:
    predicates, _ = pushed([one])
    options = ReadOptions.parse({"path": "/store", "rowPerKey": "true"})

    assert narrowed(options, predicates).keys == keys


def test_a_filter_on_a_key_reads_a_few_records_of_the_log(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "store", segment_bytes=1 << 20)
    with MessageStore.open(config, background=False) as store:
        for number in range(2000):
            store.append(make_request(number, keys=f"k{number} shared{number % 1000}"))
    figures = {"metricsPath": tmp_path / "figures"}
    found = table(config.root, KEY_SCHEMA, rowPerKey="true", **figures)

    found.push([EqualTo(("key",), "shared17"), EqualTo(("topic",), "TopicTest")])

    assert [row["keys"] for row in rows_of(found)] == [["k17", "shared17"], ["k1017", "shared17"]]
    read = read_metrics(tmp_path / "figures")
    assert read.rows == 2
    assert 2 <= read.records < 20


def test_batches_of_many_keys_stay_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(key_rows, "BATCH_BYTES_MAX", 10_000)
    builder = LogBuilder(segment_bytes=1 << 16)
    builder.append(body=b"x" * 4000, KEYS=" ".join(f"k{number}" for number in range(40)))
    found = table(write_log(builder, tmp_path / "store"), KEY_SCHEMA, rowPerKey="true")

    (task,) = found.partitions()
    batches = list(found.read(task))

    assert [row["key"] for batch in batches for row in batch.to_pylist()] == [
        f"k{number}" for number in range(40)
    ]
    assert max(batch.num_rows for batch in batches) == 2


def test_the_column_needs_its_option_and_the_option_needs_no_column() -> None:
    key = StructType([StructField("key", StringType()), StructField("topic", StringType())])
    rows = _all_rows()

    with pytest.raises(ConfigError, match="set the option rowPerKey"):
        table(_store(), key)
    found = rows_of(table(_store(), key, rowPerKey="true", badRecords="keep"))
    assert found == [{"key": row["key"], "topic": row["topic"]} for row in rows]
    topics = StructType([StructField("topic", StringType())])
    assert len(rows_of(table(_store(), topics, rowPerKey="true", badRecords="keep"))) == len(rows)


def test_the_table_shows_the_column_where_the_option_is_set() -> None:
    path = str(_store())
    assert OrbitmqSource(options={"path": path}).schema() == MESSAGE_SCHEMA
    assert OrbitmqSource(options={"path": path, "rowPerKey": "true"}).schema() == KEY_SCHEMA
