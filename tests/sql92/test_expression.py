"""SQL92 expressions: what the documents show, errors that say where, and limits."""

import pytest

from orbitmq.errors import Sql92EvaluationError, Sql92SyntaxError
from orbitmq.sql92.expression import Sql92Expression, compiled
from orbitmq.sql92.filter import Sql92Filter

pytestmark = pytest.mark.feature("F28")


def evaluate(text, **properties):
    return Sql92Expression.compile(text).evaluate(properties)


@pytest.mark.parametrize(
    ("text", "properties", "expected"),
    [
        ("a > 3 AND b = 'x'", {"a": "4", "b": "x"}, True),
        ("a > 3 AND b = 'x'", {"a": "3", "b": "x"}, False),
        ("a > 3 AND b = 'x'", {"b": "x"}, None),
        ("a BETWEEN 1 AND 3", {"a": "3"}, True),
        ("a NOT IN ('1')", {"a": "2"}, True),
        ("a = 1 garbage", {"a": "1"}, True),
        ("NOT a = 1", {"a": "1"}, False),
        ("a = 1e3", {"a": "1000"}, True),
        ("a = 3000000000", {"a": "3000000000"}, True),
        ("a > 3000000000", {"a": "-3000000000"}, False),
        ("a = 7", {"a": "0" * 5_000 + "7"}, True),
        ("a < 1", {"a": "-" + "0" * 5_000}, True),
        ("a > 1", {"a": "٣"}, True),
        ("a > 1.5", {"a": " NaN "}, True),
        ("a = 1.0", {"a": "0x1p0"}, True),
        ("a STARTSWITH 'it''s'", {"a": "it's me"}, True),
    ],
)
def test_an_expression_says_what_the_documents_say(text, properties, expected):
    assert evaluate(text, **properties) is expected


@pytest.mark.parametrize("value", ["1.5", "3000000000", " 2", "x", "1_0", "", "9" * 5_000, "𝟏"])
def test_a_text_that_is_no_such_number_is_an_error(value):
    with pytest.raises(Sql92EvaluationError):
        evaluate("a > 1", a=value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "character 1: its end"),
        ("a = 1 AND", "character 10: its end"),
        ("(a = 1 OR b", "character 12: its end"),
        ("a = = 1", "character 5: '= 1'"),
        ("a > 3 AND #", "'#' at character 11 is not known"),
        ("a > 'x'", "only numbers and properties"),
        ("a = NULL", "use IS NULL"),
        ("1", "true or false"),
        ("7 IN ('7')", "write the name"),
        ("a = 9223372036854775808", "greater than 9223372036854775807"),
        ("a = " + "9" * 5_000, "greater than 9223372036854775807"),
        ("a > 0.0", "above 0"),
        ("a BETWEEN 3 AND 1", "no range"),
        ("NOT " * 250 + "a", "deep"),
        ("a = '" + "x" * 20_000 + "'", "at most 16384"),
        ("-" * 16_000, "more than 2000 words"),
        ("(" * 16_000, "more than 2000 words"),
    ],
)
def test_a_text_that_is_no_expression_is_refused_with_the_place(text, words):
    with pytest.raises(Sql92SyntaxError) as caught:
        Sql92Expression.compile(text)

    assert words in str(caught.value)


def test_a_long_chain_is_no_deep_one():
    chain = " OR ".join(f"a = '{number}'" for number in range(400))

    assert evaluate(chain, a="399") is True
    assert evaluate(chain, a="400") is False


def test_an_expression_is_compiled_once():
    assert compiled("a > 3") is compiled("a > 3")


def test_a_record_that_is_damaged_is_not_wanted():
    assert not Sql92Filter(Sql92Expression.compile("TRUE")).by_record(memoryview(bytes(100)))
