"""SQL92 expressions as conditions of Spark: the rows that the option selects, or words why not."""

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions

import golden_stores
from orbitmq.errors import Sql92SyntaxError, Sql92TranslationError
from orbitmq.format.properties import encode_properties
from orbitmq.spark import sql92
from orbitmq.spark.source.sql92_column import spark_sql
from orbitmq.sql92.expression import Sql92Expression
from sql92.filter_cases import golden_cases

pytestmark = [pytest.mark.spark, pytest.mark.feature("P3.sql92")]

CHUNK = 40
EXPRESSIONS = int(os.environ.get("ORBITMQ_SQL92_EXPRESSIONS", "120"))
ODD = [
    *("1", "-1", "0007", "2147483648", "-2147483648", "9223372036854775808", "9" * 25, "٣", "1\n"),
    *("1.5", " 1.5 ", "2.5f", "5.", ".5", "1e400", "NaN", "-NaN", "Infinity", "0x1p1", "x", "𝟏"),
    *("true", "TRUE", "é", "it's", "\\", "a\\'b", "0" * 60 + "7", "1e", "1.5d ", "-0.0"),
]
TEXTS = [
    *(
        "a > 1",
        "a > b",
        "a <= b",
        "a = 7",
        "a > 1.5",
        "a = 1.5",
        "a <= 5L",
        "3 > a",
        "1 = a",
        "a = TRUE",
        "TRUE = a",
    ),
    *("a IS NULL", "a <> 'x'", "'x' = a", "a = b", "a IN ('x', '\\', 'a\\''b')", "NOT (a > 1)"),
    *("a CONTAINS '\\'", "a NOT STARTSWITH 'i'", "a > 1 OR b = 'x'", "b = 'x' OR a > 1"),
    *("a > 1 AND b = 'x'", "NOT a = b", "(a > 1) IS NULL", "(a = 1) = TRUE", "a", "-a IS NULL"),
    *(
        "a < 2 AND NOT (a = '1') OR a BETWEEN 3 AND 9",
        "(NOT a) = 1",
        "a = (b = 'x')",
        "'true' = (a = 1)",
    ),
]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_stores.unpack("mixed", tmp_path_factory.mktemp("store"))


def selected(spark: SparkSession, texts: list[str], maps: list[dict[str, str]]) -> list[list[bool]]:
    """Return for each map what each condition says."""
    rows = [(number, properties) for number, properties in enumerate(maps)]
    frame = spark.createDataFrame(rows, "number int, properties map<string, string>")
    columns = [functions.expr(text).alias(f"c{number}") for number, text in enumerate(texts)]
    return [list(row)[1:] for row in sorted(frame.select("number", *columns).collect())]


def by_option(text: str, properties: dict[str, str]) -> bool:
    return Sql92Expression.compile(text).matches(encode_properties(properties))


def check(spark: SparkSession, texts: list[str], maps: list[dict[str, str]]) -> None:
    found = selected(spark, [spark_sql(text) for text in texts], maps)
    wrong = [
        (text, properties, answer)
        for properties, answers in zip(maps, found, strict=True)
        for text, answer in zip(texts, answers, strict=True)
        if answer is not by_option(text, properties)
    ]
    assert wrong == []


def test_golden_expressions_select_the_rows_that_the_option_selects(
    interpreted: SparkSession,
) -> None:
    # A record cannot hold a property without a value, so a case with one has no golden answer here.
    sound = [
        case
        for case in golden_cases()
        if case["result"] != "parse" and all(case["properties"].values())
    ]
    drawn = sound[:: max(len(sound) // EXPRESSIONS, 1)]

    for first in range(0, len(drawn), CHUNK):
        chunk = drawn[first : first + CHUNK]
        texts = [case["expression"] for case in chunk]
        maps = [case["properties"] for case in chunk]
        check(interpreted, texts, maps)
        own = [by_option(text, given) for text, given in zip(texts, maps, strict=True)]
        assert own == [case["result"] == "true" for case in chunk]


def test_every_golden_expression_can_be_a_condition() -> None:
    sound = [case["expression"] for case in golden_cases() if case["result"] != "parse"]

    assert [text for text in sound if not spark_sql(text)] == []
    assert len(sound) > 3_600


def test_odd_values_are_read_as_the_option_reads_them(interpreted: SparkSession) -> None:
    maps: list[dict[str, Any]] = [{"a": value, "b": "x"} for value in ODD]
    maps += [{}, {"a": "x"}, {"b": "x"}, {"a": "1", "b": "1"}, {"a": "-0.0", "b": "0"}]
    maps += [{"a": "0", "b": " -0e5"}, {"a": "-NaN", "b": "Infinity"}, {"a": "2", "b": "10"}]

    check(interpreted, TEXTS, maps)


def test_a_condition_selects_the_rows_that_the_option_selects(
    spark: SparkSession, mixed: Path
) -> None:
    text = "TAGS IN ('Aa', 'BB') AND KEYS IS NOT NULL AND NOT (WAIT = 'false')"

    table = spark.read.format("orbitmq").load(str(mixed))
    option = spark.read.format("orbitmq").option("sql92", text).load(str(mixed))
    found = {row["log_offset"] for row in table.where(sql92(text)).select("log_offset").collect()}

    assert found
    assert found == {row["log_offset"] for row in option.select("log_offset").collect()}
    renamed = table.withColumnRenamed("properties", "given `map`")
    assert renamed.where(sql92(text, "given `map`")).count() == len(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("-(a = 1) IS NULL", "no counterpart"),
        ("a = '\ufffd'", "no counterpart"),
        (" OR ".join(f"(a > {number} AND b < 3)" for number in range(150)), "characters|too long"),
    ],
)
def test_what_cannot_be_a_condition_is_refused_with_the_way_that_there_is(
    text: str, words: str
) -> None:
    with pytest.raises(Sql92TranslationError, match=words) as caught:
        spark_sql(text)

    assert "option sql92" in str(caught.value)


def test_a_text_that_is_no_expression_is_refused_with_the_place() -> None:
    with pytest.raises(Sql92SyntaxError, match="character 4"):
        spark_sql("a >")
