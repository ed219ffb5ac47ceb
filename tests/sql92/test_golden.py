"""6 000 expressions and the answers of RocketMQ's own filter."""

import gzip
import json
from pathlib import Path

import pytest

from orbitmq.errors import Sql92EvaluationError, Sql92SyntaxError
from orbitmq.format.properties import encode_properties
from orbitmq.sql92.expression import Sql92Expression

GOLDEN = Path(__file__).parents[1] / "golden" / "sql92" / "sql92.jsonl.gz"
TEXTS = {True: "true", False: "false", None: "null"}

pytestmark = pytest.mark.feature("F28")


def cases():
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def answer(case):
    try:
        return TEXTS[Sql92Expression.compile(case["expression"]).evaluate(case["properties"])]
    except Sql92SyntaxError:
        return "parse"
    except Sql92EvaluationError:
        return "error"


def test_every_answer_is_that_of_rocketmq():
    found = cases()

    assert len(found) == 6_000
    assert {case["result"] for case in found} == {"true", "false", "null", "error", "parse"}
    assert [case for case in found if answer(case) != case["result"]] == []


def test_the_bytes_of_a_record_give_the_same_as_its_properties():
    sound = [case for case in cases() if case["result"] != "parse"]
    wrong = []
    for case in sound:
        kept = {name: value for name, value in case["properties"].items() if value}
        if kept != case["properties"]:
            continue  # a property without a value is none in a record
        matches = Sql92Expression.compile(case["expression"]).matches(encode_properties(kept))
        if matches is not (case["result"] == "true"):
            wrong.append(case)

    assert wrong == []
