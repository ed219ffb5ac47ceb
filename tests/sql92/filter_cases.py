"""Property strings one after another in a buffer, and what the nodes of an expression say of each."""

import gzip
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from orbitmq.format.columns import Bytes, Ints
from orbitmq.format.properties import encode_properties
from orbitmq.sql92.expression import Sql92Expression

GOLDEN = Path(__file__).parents[1] / "golden" / "sql92" / "sql92.jsonl.gz"


@cache
def golden_cases() -> list[dict[str, Any]]:
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def golden_properties(case: dict[str, Any]) -> bytes:
    """Return what a record can hold of a case's properties: one without a value is none."""
    return encode_properties({name: value for name, value in case["properties"].items() if value})


def joined(strings: Sequence[bytes]) -> tuple[Bytes, Ints, Ints]:
    """Return a buffer with bytes of something else around each string, and where they lie."""
    data, at = b"\x02a\x01", []
    for string in strings:
        at.append(len(data))
        data += string + b"1\x02\x01"
    lengths = [len(string) for string in strings]
    buffer = np.frombuffer(data, dtype=np.uint8)
    return buffer, np.array(at, dtype=np.int64), np.array(lengths, dtype=np.int64)


def by_nodes(expression: Sql92Expression, strings: Sequence[bytes]) -> list[bool]:
    return [expression.matches(string) for string in strings]
