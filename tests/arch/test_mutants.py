"""The runner of planted faults: what it calls noticed was noticed; a list that no longer fits is refused."""

import json
import os
import signal
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
    assert (
        "things: the border is outside  (test_thing.py::test_border: AssertionError)"
        in result.stdout
    )
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

    assert "(test_thing.py::test_loop: it did not end)" in result.stdout, result.stdout
    assert "1 killed" in result.stdout


def write_test(tree, text):
    (tree / "tests" / "test_thing.py").write_text(f"import os, signal, sys\n{text}")


def test_a_test_that_crashes_the_process_has_failed(tree):
    write_test(
        tree,
        "def test_it():\n    from thing import LIMIT\n"
        "    if LIMIT != 10:\n        os.kill(os.getpid(), signal.SIGSEGV)\n",
    )
    plant(tree, "it crashes", "LIMIT = 10", "LIMIT = 11")

    result = run(tree)

    assert "1 killed" in result.stdout, result.stdout
    assert "(test_thing.py::test_it: signal 11)" in result.stdout


@pytest.mark.parametrize(
    "end",
    ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(1)", "os._exit(0)"],
    ids=["killed by the machine", "left with 1", "left with 0"],
)
def test_a_run_that_ends_without_a_failed_test_is_no_proof(tree, end):
    write_test(
        tree,
        f"def test_it():\n    from thing import LIMIT\n    if LIMIT != 10:\n        {end}\n",
    )
    plant(tree, "it ends", "LIMIT = 10", "LIMIT = 11")

    result = run(tree)

    assert "0 killed, 0 survived, 1 invalid" in result.stdout, result.stdout
    assert result.returncode == 2


def test_tests_that_are_skipped_are_no_proof(tree):
    write_test(tree, "import pytest\n\n\n@pytest.mark.skip\ndef test_it():\n    pass\n")
    plant(tree, "nobody looks", "LIMIT = 10", "LIMIT = 11")

    result = run(tree)

    assert "0 killed, 0 survived, 1 invalid" in result.stdout, result.stdout


def test_no_fault_sees_the_one_before(tree):
    """All runs are forked from one process: the product is imported in each of them anew."""
    plant(tree, "the border is outside", "<= LIMIT", "< LIMIT")
    plant(tree, "zero passes", "0 < number", "0 <= number", "tests/test_thing.py::test_border")
    plant(tree, "a lower limit", "LIMIT = 10", "LIMIT = 9", "tests/test_thing.py::test_zero")
    plant(tree, "the limit is a bit lower", "number <= LIMIT", "number <= LIMIT - 1")

    result = run(tree)

    assert "4 faults: 2 killed, 2 survived, 0 invalid" in result.stdout, result.stdout


def test_what_a_failed_test_started_is_ended_and_what_it_wrote_is_removed(tree, tmp_path):
    """Its fixtures are not torn down, to save their time."""
    notes = tmp_path / "notes"
    write_test(
        tree,
        "import json, pathlib, pytest, subprocess, tempfile, thing\n\n\n"
        "def test_it():\n"
        "    sleeper = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "    folder = tempfile.mkdtemp()\n"
        f"    pathlib.Path({str(notes)!r}).write_text(json.dumps([sleeper.pid, folder]))\n"
        "    assert thing.LIMIT == 10\n"
        "    sleeper.kill()\n    sleeper.wait()\n",
    )
    plant(tree, "another limit", "LIMIT = 10", "LIMIT = 11")

    result = run(tree)

    pid, folder = json.loads(notes.read_text())
    assert "1 killed" in result.stdout, result.stdout
    assert not Path(folder).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


LISTED = """# Faults in things.

[[mutant]]
name = "the border is outside"  # a remark
file = "src/thing.py"
find = "<= LIMIT"
put = "< LIMIT"
tests = ["tests/test_thing.py", "tests/test_other.py"]

# --- the others ---

[[mutant]]
name = "nobody looks"
file = "src/thing.py"
find = "LIMIT = 10"
put = "LIMIT = 11"
tests = ["tests/test_thing.py"]

[[mutant]]
name = "a name that is not there"
file = "src/thing.py"
find = "return 0"
put = "return zero"
tests = ["tests/test_thing.py"]
"""


def test_a_list_is_narrowed_to_the_test_that_noticed_unless_that_was_an_accident(tree):
    listed = tree / "tests" / "mutants" / "things.toml"
    listed.write_text(LISTED)
    (tree / "tests" / "test_other.py").write_text("def test_it():\n    pass\n")

    result = run(tree, "--narrow")

    assert "3 faults: 2 killed, 1 survived" in result.stdout, result.stdout
    assert listed.read_text() == LISTED.replace(
        '["tests/test_thing.py", "tests/test_other.py"]', '["tests/test_thing.py::test_border"]'
    )


@pytest.mark.parametrize(
    ("seconds", "name"),
    [("0", "tests/test_thing.py::test_it"), ("1.1", "tests/test_thing.py::test_it[b]")],
    ids=["quick", "slow"],
)
def test_one_case_of_a_test_is_named_when_those_before_it_take_long(tree, seconds, name):
    write_test(
        tree,
        "import pytest, thing, time\n\n\n@pytest.mark.parametrize('case', ['a', 'b', 'c'])\n"
        f"def test_it(case):\n    time.sleep({seconds} if case == 'a' else 0)\n"
        "    assert thing.LIMIT == 10 or case == 'a'\n",
    )
    plant(tree, "another limit", "LIMIT = 10", "LIMIT = 11")

    run(tree, "--narrow")

    assert f'tests = ["{name}"]' in (tree / "tests" / "mutants" / "things.toml").read_text()


def test_each_test_runs_once_without_a_fault(tree, tmp_path):
    notes = tmp_path / "notes"
    write_test(
        tree,
        f"import pathlib, thing\nNOTES = pathlib.Path({str(notes)!r})\n\n\n"
        "def test_it():\n    with NOTES.open('a') as file:\n        file.write(f'{thing.LIMIT} ')\n"
        "    assert thing.LIMIT != 12\n",
    )
    plant(tree, "eleven", "LIMIT = 10", "LIMIT = 11")
    plant(tree, "twelve", "LIMIT = 10", "LIMIT = 12", "tests/test_thing.py::test_it")

    run(tree)

    assert sorted(notes.read_text().split()) == ["10", "11", "12"]


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
