"""The runner of planted faults: what it calls noticed was noticed; a list that no longer fits is refused."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[2] / "tools" / "mutants.py"
SOURCE = "LIMIT = 10\n\n\ndef allowed(number):\n    return 0 < number <= LIMIT\n"
TESTS = (
    "from thing import allowed\n\n\n"
    "def test_border():\n    assert allowed(10)\n\n\n"
    "def test_zero():\n    assert not allowed(0)\n"
)
ENTRY = """
[[mutant]]
name = "{name}"
file = "src/thing.py"
find = "{find}"
put = "{put}"
tests = ["{tests}"]
"""


@pytest.fixture
def tree(tmp_path):
    for path, text in {"src/thing.py": SOURCE, "tests/test_thing.py": TESTS}.items():
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(text)
    (tmp_path / "tests" / "mutants").mkdir()
    return tmp_path


def plant(tree, name, find, put, tests="tests/test_thing.py"):
    with (tree / "tests" / "mutants" / "things.toml").open("a") as file:
        file.write(ENTRY.format(name=name, find=find, put=put, tests=tests))


def run(tree, *options):
    command = [sys.executable, RUNNER, "--root", tree, "--workers", "1", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_noticed_fault_is_killed_and_the_tree_is_left_alone(tree):
    plant(tree, "the border is outside", "<= LIMIT", "< LIMIT")

    result = run(tree)

    assert result.returncode == 0, result.stdout
    assert "things: the border is outside  (test_thing.py::test_border)" in result.stdout
    assert "1 faults: 1 killed, 0 survived, 0 invalid" in result.stdout
    assert (tree / "src" / "thing.py").read_text() == SOURCE


def test_a_fault_that_nobody_notices_survives(tree):
    plant(tree, "zero passes", "0 < number", "0 <= number", "tests/test_thing.py::test_border")
    plant(tree, "the border is outside", "<= LIMIT", "< LIMIT")

    result = run(tree)

    assert result.returncode == 1
    assert "SURVIVED" in result.stdout
    assert "2 faults: 1 killed, 1 survived, 0 invalid" in result.stdout


def test_a_fault_that_cannot_be_imported_is_no_proof(tree):
    plant(tree, "nothing works", "LIMIT = 10", "LIMIT = unknown")

    result = run(tree)

    assert result.returncode == 2
    assert "INVALID" in result.stdout


def test_a_test_that_fails_anyhow_is_no_proof(tree):
    plant(tree, "the border is outside", "<= LIMIT", "< LIMIT")
    (tree / "tests" / "test_thing.py").write_text("def test_it():\n    assert 1 == 2\n")

    result = run(tree)

    assert result.returncode == 2
    assert "put that right first" in result.stdout


def test_a_fault_that_hangs_its_test_is_killed(tree):
    loop = "def test_loop():\n    from thing import LIMIT\n    while LIMIT > 10:\n        pass\n"
    (tree / "tests" / "test_thing.py").write_text(loop)
    (tree / "conftest.py").write_text(
        "import pytest\n\n\ndef pytest_collection_modifyitems(items):\n"
        "    items[0].add_marker(pytest.mark.timeout(1))\n"
    )
    plant(tree, "it never ends", "LIMIT = 10", "LIMIT = 11")

    result = run(tree)

    assert "1 killed" in result.stdout, result.stdout


@pytest.mark.parametrize(
    ("find", "put", "tests", "words"),
    [
        ("gone", "x", "tests/test_thing.py", "stands 0 times in src/thing.py, not once"),
        ("LIMIT", "x", "tests/test_thing.py", "stands 2 times"),
        ("<= LIMIT", "<= (", "tests/test_thing.py", "is no Python"),
        ("<= LIMIT", "<= (LIMIT)", "tests/test_thing.py", "changes nothing"),
        ("<= LIMIT", "< LIMIT", "tests/test_gone.py", "no such test: tests/test_gone.py"),
        ("<= LIMIT", "< LIMIT", "tests/test_thing.py::test_gone", "test_thing.py::test_gone"),
    ],
    ids=["text gone", "text twice", "no Python", "no change", "no file", "no test"],
)
def test_a_list_that_does_not_fit_is_refused(tree, find, put, tests, words):
    plant(tree, "a fault", find, put, tests)

    result = run(tree, "--check")

    assert result.returncode == 2
    assert words in result.stdout


def test_every_folder_of_the_product_has_planted_faults():
    root = RUNNER.parents[1]
    entries = [
        entry
        for path in (root / "tests" / "mutants").glob("*.toml")
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    ]
    folders = {Path(entry["file"]).parts[2] for entry in entries}
    packages = {path.parent.name for path in (root / "src" / "orbitmq").glob("*/__init__.py")}

    assert len(entries) >= 120
    assert packages - folders == set()
