"""`orbitmq spark export --body json`: bodies as columns; what does not fit stops nobody."""

import json
from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import ConfigError
from orbitmq.message import AppendRequest
from orbitmq.spark.jobs.export.values import found_fields, merged
from orbitmq.store.store import MessageStore
from spark.export_world import FORMATS, config_of, duckdb_answer, export_here, lake_rows, log_rows

pytestmark = pytest.mark.spark

FIELDS = {"Orders": {"id": "bigint", "at": "timestamp", "lines": [{"sku": "string", "n": "int"}]}}
GOOD = {"id": 1, "at": "2026-11-18T05:00:00Z", "lines": [{"sku": "a", "n": 2}], "more": "x"}
BAD: tuple[Any, ...] = (
    {"id": "one"},
    {"id": 2**70},
    {"id": 1, "lines": {"sku": "a"}},
    {"id": 1, "lines": [{"n": 2**40}]},
    {"id": 1, "at": "yesterday"},
    [1, 2],
    b"no JSON",
    b"",
    b"\xff\xfe",
)


def send(root: Path, *bodies: Any, topic: str = "Orders") -> None:
    with MessageStore.open(config_of(root), background=False) as store:
        for body in bodies:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            store.append(AppendRequest(topic, 0, raw))


def values(lake: Path, columns: str = "value") -> list[Any]:
    table = f"read_parquet('{lake}/Orders/**/*.parquet')"
    return [row[0] for row in duckdb_answer(f"select {columns} from {table} order by log_offset")]


@pytest.mark.feature("P18")
@pytest.mark.parametrize("format_", FORMATS)
def test_bodies_are_columns_and_misfits_are_in_the_dlq_with_their_reasons(
    format_: str, tmp_path: Path
) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    for bad in BAD:
        send(store, GOOD, bad)
    send(store, {}, {"id": None})
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(FIELDS))

    report = export_here(store, lake, format=format_, body="json", schema=schema)

    rows = log_rows(store, "Orders")
    good = [row for number, row in enumerate(rows) if number % 2 == 0 or number >= 2 * len(BAD)]
    assert lake_rows(lake, format_, "Orders") == good
    misfits = lake_rows(lake, format_, "Orders", dlq=True)
    assert misfits == [row for row in rows if row not in good]
    assert (report.rows, report.misfits) == (len(good), len(BAD))
    assert values(lake, "value.id") == [1] * len(BAD) + [None, None]
    assert values(lake, "value.lines[1].sku")[0] == "a"
    reasons = duckdb_answer(
        f"select reason from read_parquet('{lake}/Orders~dlq/**/*.parquet') order by log_offset"
    )
    assert "Expected `int | null`, got `str` - at `$.id`" in reasons[0][0]
    assert all(reason.startswith("the body is no JSON of this schema") for (reason,) in reasons)


@pytest.mark.feature("P18")
@pytest.mark.parametrize("format_", FORMATS)
def test_five_incompatible_schemas_in_a_row_do_not_stop_a_topic(
    format_: str, tmp_path: Path
) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    shapes = ({"v": 1}, {"v": "text"}, {"v": {"a": 1}}, {"v": [1]}, {"v": True})
    for number, shape in enumerate(shapes):
        send(store, shape, {"v": number, "later": 1.5})
        export_here(store, lake, format=format_, body="json")

    assert values(lake, "value.v") == [1, 0, 1, 2, 3, 4]
    assert len(lake_rows(lake, format_, "Orders", dlq=True)) == len(shapes) - 1
    # A later run that does not say so goes on in the same way.
    send(store, {"v": 9}, {"v": "text"})
    export_here(store, lake, format=format_)
    assert values(lake, "value.v")[-1] == 9
    assert len(lake_rows(lake, format_, "Orders", dlq=True)) == len(shapes)


@pytest.mark.feature("P18")
def test_a_table_keeps_the_fields_that_it_was_made_with(tmp_path: Path) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    send(store, {"id": 1})
    export_here(store, lake, body="json", schema={"*": {"id": "bigint"}})
    send(store, {"id": 2})

    with pytest.raises(ConfigError, match="its table has other fields"):
        export_here(store, lake, body="json", schema={"Orders": {"id": "string"}})

    export_here(store, lake, body="json", schema={"Orders": {"id": "bigint"}})
    assert values(lake, "value.id") == [1, 2]


@pytest.mark.feature("P16")
def test_a_schema_that_cannot_be_is_told_with_its_rule(tmp_path: Path) -> None:
    store, lake, file = tmp_path / "store", tmp_path / "lake", tmp_path / "schema.json"
    send(store, {"id": 1})
    file.write_text("[1]")
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"body": "xml"}, "binary, json or variant"),
        ({"schema": FIELDS}, "body=json"),
        ({"body": "json", "schema": file}, "must be JSON as"),
        ({"body": "json", "schema": tmp_path / "nowhere"}, "cannot be read"),
        ({"body": "json", "schema": {"T": {"id": "number"}}}, "must be one of boolean, int"),
        ({"body": "json", "schema": {"T": {}}}, "must be one of"),
    )

    for given, words in cases:
        with pytest.raises(ConfigError, match=words):
            export_here(store, lake, **given)
    assert not lake.exists()


def test_fields_are_found_in_messages_and_the_first_type_stays() -> None:
    bodies = [b'{"a": 1, "e": []}', b'{"a": 1.5, "b": {"c": null}}', b'{"b": {"c": "x"}}', b"7"]

    assert found_fields(bodies) == {"a": "double", "b": {"c": "string"}}
    assert merged({"a": "string"}, {"a": "bigint", "l": [{"x": "bigint"}]}) == {
        "a": "string",
        "l": [{"x": "bigint"}],
    }
    assert found_fields([b'{"l": [1, 2.5]}']) == {"l": ["double"]}
