"""The inventory's states follow from what the tests did."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("features_tool", ROOT / "tools" / "features.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "features_tool", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "DOCUMENT", tmp_path / "FEATURES.md")
    return module


def a_test(outcome: str, *features: str, reason: str = "") -> dict:
    return {"outcome": outcome, "features": list(features), "reason": reason}


def run(tool, monkeypatch, tmp_path, states: dict[str, str], tests: dict, *options: str) -> int:
    rows = [f"| {name} | title | works | {state} |" for name, state in states.items()]
    tool.DOCUMENT.write_text("\n".join(["# Features", *rows]) + "\n")
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"tests": tests}))
    monkeypatch.setattr("sys.argv", ["features.py", "--results", str(results), *options])
    return tool.main()


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        ([], "missing"),
        (["passed"], "proved"),
        (["passed", "skipped"], "proved"),
        (["passed", "failed"], "failing"),
        (["failed", "skipped"], "failing"),
    ],
    ids=lambda value: value if isinstance(value, str) else " and ".join(value) or "no test",
)
def test_state_follows_from_the_outcomes(tool, monkeypatch, tmp_path, outcomes, state):
    tests = {f"t::{n}": a_test(outcome, "F1") for n, outcome in enumerate(outcomes)}

    run(tool, monkeypatch, tmp_path, {"F1": "missing"}, tests, "--write")

    assert f"| F1 | title | works | {state} |" in tool.DOCUMENT.read_text()
    assert run(tool, monkeypatch, tmp_path, {"F1": state}, tests, "--check") == 0


def test_each_part_of_a_row_has_a_state_of_its_own(tool, monkeypatch, tmp_path, capsys):
    tests = {"t::1": a_test("passed", "X1.java"), "t::2": a_test("failed", "X1.go")}
    states = {"X1": "java missing, go proved, node proved"}

    code = run(tool, monkeypatch, tmp_path, states, tests, "--check")
    run(tool, monkeypatch, tmp_path, states, tests, "--write")

    assert code == 1
    assert "says X1.go is proved, the tests say failing" in capsys.readouterr().out
    assert "| java proved, go failing, node missing |" in tool.DOCUMENT.read_text()


def test_a_row_is_proved_when_all_its_parts_are(tool, monkeypatch, tmp_path, capsys):
    tests = {"t::1": a_test("passed", "X1.java")}

    run(tool, monkeypatch, tmp_path, {"X1": "java proved, go missing"}, tests, "--check")

    assert "features: 0 proved, 0 failing, 1 missing" in capsys.readouterr().out


def test_what_was_skipped_here_is_said(tool, monkeypatch, tmp_path, capsys):
    tests = {
        "t::1": a_test("passed", "F1"),
        "t::2": a_test("skipped", "F1", reason="no Java"),
        "t::3": a_test("skipped", "X1.go", reason="no Go"),
    }
    states = {"F1": "proved", "X1": "go proved"}

    run(tool, monkeypatch, tmp_path, states, tests, "--check")
    checked = capsys.readouterr().out
    run(tool, monkeypatch, tmp_path, states, tests)
    table = capsys.readouterr().out

    assert "F1: 1 of 2 tests skipped here" in checked
    assert "X1.go: 1 of 1 tests skipped here" in checked
    assert "proved, 1 skipped here  F1" in table
    assert "go skipped here  X1" in table


@pytest.mark.parametrize("documented", ["proved", "missing"])
def test_skipped_tests_leave_what_is_documented(tool, monkeypatch, tmp_path, documented):
    tests = {"t::1": a_test("skipped", "X2", reason="no Java")}

    assert run(tool, monkeypatch, tmp_path, {"X2": documented}, tests, "--check") == 0


def test_check_names_the_difference(tool, monkeypatch, tmp_path, capsys):
    tests = {"t::1": a_test("failed", "F1")}

    code = run(tool, monkeypatch, tmp_path, {"F1": "proved", "F2": "missing"}, tests, "--check")

    assert code == 1
    assert "says F1 is proved, the tests say failing" in capsys.readouterr().out


def test_summary_counts_what_was_skipped_and_why(tool, monkeypatch, tmp_path, capsys):
    tests = {
        "tests/compat/test_a.py::one": a_test("skipped", reason="Java 11+ is not installed"),
        "tests/compat/test_a.py::two": a_test("skipped", reason="Java 11+ is not installed"),
        "tests/store/test_b.py::three": a_test("passed"),
    }

    run(tool, monkeypatch, tmp_path, {}, tests, "--summary")

    printed = capsys.readouterr().out
    assert "1 passed, 0 failed, 2 skipped" in printed
    assert "skipped 2 in tests/compat/test_a.py: Java 11+ is not installed" in printed


def test_missing_results_say_what_to_run(tool, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["features.py", "--results", str(tmp_path / "none.json")])

    with pytest.raises(SystemExit, match="make test"):
        tool.main()
