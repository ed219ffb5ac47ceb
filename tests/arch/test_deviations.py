"""docs/DEVIATIONS.md names tests and settings that exist."""

import ast
import re
from pathlib import Path

from orbitmq.setting_keys import KNOWN_KEYS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "DEVIATIONS.md").read_text(encoding="utf-8")
ROWS = [line.split(" | ") for line in TEXT.splitlines() if re.match(r"\| \d+ \|", line)]
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
SETTING = re.compile(r"`([a-z]\w+)(?:=\w+)?`")


def functions(path):
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_statement_is_there_once_and_shown_by_something():
    assert [int(row[0].strip("| ")) for row in ROWS] == list(range(1, 79))
    assert [row for row in ROWS if not re.search(r"`|\]\(|F\d+", row[4])] == []


def test_the_tests_exist():
    named = {match for row in ROWS for match in TEST.findall(row[4])}

    missing = [f"{path}::{name}" for path, name in named if name not in functions(path)]

    assert missing == []


def test_the_settings_exist():
    named = {name for row in ROWS for name in SETTING.findall(row[4])}

    assert named - KNOWN_KEYS == set()
