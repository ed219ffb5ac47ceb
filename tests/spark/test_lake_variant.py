"""`orbitmq spark export --body variant`: any JSON as one column, as other engines read it."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import VariantVal

from command import call
from orbitmq.spark.variant import variant_of
from spark.export_world import duckdb_answer, export_here, lake_rows, log_rows
from spark.test_export_bodies import send

pytestmark = pytest.mark.spark

GOOD: tuple[Any, ...] = (
    {"id": 1, "who": {"name": "\u00e9\U0001f600", "tags": ["a", None, True]}, "more": 2.50},
    {"id": "one", "other": [[], {}, ""]},
    [1, 2**40, -(2**62), 10**30],
    "text" * 40,
    17,
    None,
)
BAD = (b"no JSON", b"", b"\xff\xfe", b"NaN", b'"\\ud800"')
NUMBERS = (
    "0 -0 -0.0 0.10 1e3 1.5E-2 -1.05 123456789.1 0.1234567891 9223372036854775807 9223372036854775808"
    f" {10**37} {10**38} {10**60} 0.{'0' * 37}1 0.{'0' * 38}1"
).split()
WIDE = (
    json.dumps(list(range(300))),
    json.dumps({f"k{number}": number for number in range(300)}),
    json.dumps({f"k{number}": number for number in range(70_000)}),
    json.dumps({"k": "x" * 70_000, "a": {"k": 1}}),
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**66), 2**66)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False, places=3).map(float)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)


def require_same(text: str) -> None:
    wanted = VariantVal.parseJson(text)
    assert variant_of(text) == (wanted.value, wanted.metadata), text[:80]


@pytest.mark.feature("P18")
@given(VALUES)
def test_a_variant_has_the_bytes_that_pyspark_makes(value: Any) -> None:
    require_same(json.dumps(value))


@pytest.mark.feature("P18")
@pytest.mark.parametrize("texts", [NUMBERS, WIDE])
def test_numbers_and_widths_are_those_of_pyspark_at_their_limits(texts: tuple[str, ...]) -> None:
    for text in texts:
        require_same(text)


@pytest.mark.feature("P18")
@pytest.mark.parametrize("format_", ["parquet", "delta"])
def test_bodies_of_any_shape_are_one_column_that_engines_know(
    format_: str, interpreted: SparkSession, tmp_path: Path
) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    send(store, *GOOD, *BAD)

    report = export_here(store, lake, format=format_, body="variant")
    send(store, {"later": [1]}, b"no JSON")
    export_here(store, lake, format=format_)  # a table goes on as it began

    wanted = [*GOOD, {"later": [1]}]
    rows = log_rows(store, "Orders")
    assert (report.rows, report.misfits) == (len(GOOD), len(BAD))
    table = f"read_parquet('{lake}/Orders/**/*.parquet')"
    question = f"select typeof(value), value::json::varchar from {table} order by log_offset"
    by_duckdb = duckdb_answer(question)
    assert {kind for kind, _ in by_duckdb} == {"VARIANT"}
    assert [json.loads(text or "null") for _, text in by_duckdb] == wanted
    frame = interpreted.read.parquet(str(lake / "Orders"))
    assert frame.schema["value"].dataType.simpleString() == "variant"
    texts = frame.selectExpr("log_offset", "to_json(value) as text").orderBy("log_offset").collect()
    assert [json.loads(row.text) for row in texts] == wanted
    ids = frame.selectExpr("try_variant_get(value, '$.id', 'int') as id", "log_offset")
    assert [row.id for row in ids.orderBy("log_offset").collect()][:3] == [1, None, None]
    if format_ == "delta":
        assert DeltaTable(lake / "Orders").protocol().reader_features == ["variantType"]
        found = pa.table(DeltaTable(lake / "Orders").to_pyarrow_table(columns=["log_offset"]))
        offsets = [row[0] for row in (*rows[: len(GOOD)], rows[-2])]
        assert sorted(found["log_offset"].to_pylist()) == offsets
    assert lake_rows(lake, format_, "Orders", dlq=True) == [*rows[len(GOOD) : -2], rows[-1]]


@pytest.mark.feature("P18")
def test_a_schema_may_name_topics_whose_bodies_have_any_shape(tmp_path: Path) -> None:
    store, lake, schema = tmp_path / "store", tmp_path / "lake", tmp_path / "schema.json"
    send(store, {"id": 1})
    send(store, {"any": "thing"}, topic="Events")
    schema.write_text(json.dumps({"Orders": {"id": "bigint"}, "*": "variant"}))

    export_here(store, lake, body="json", schema=schema)

    for topic, kind in (("Orders", "STRUCT(id BIGINT)"), ("Events", "VARIANT")):
        table = f"read_parquet('{lake}/{topic}/**/*.parquet')"
        assert duckdb_answer(f"select typeof(value) from {table}") == [(kind,)]


@pytest.mark.feature("P16", "P18")
def test_a_format_without_variants_says_what_to_use_and_nothing_is_written(tmp_path: Path) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    send(store, {"id": 1})
    words = ("--from", store, "--to", lake, "--body", "variant")

    said = call("spark", "export", *words, "--format", "iceberg")
    both = call("spark", "export", *words, "--schema", tmp_path / "schema.json")

    assert (said.returncode, both.returncode) == (2, 2)
    assert "pyiceberg writes no columns of this type: use --format parquet or delta" in said.stderr
    assert "is for body=json" in both.stderr
    assert not lake.exists()
