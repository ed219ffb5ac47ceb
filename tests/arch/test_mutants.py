"""The runner of planted faults: what it calls noticed was noticed; a list that no longer fits is refused."""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[2] / "tools" / "mutants.py"
SOURCE = "LIMIT = 10\n\n\ndef allowed(number):\n    return 0 < number <= LIMIT\n"
TESTS = {
    "test_thing.py": """
from thing import allowed

def test_border():
    assert allowed(10)

def test_zero():
    assert not allowed(0)
""",
    "test_loop.py": """
import pytest
from thing import LIMIT

@pytest.mark.timeout(1)
def test_loop():
    while LIMIT > 10:
        pass
""",
    "test_ends.py": """
import os, signal
from thing import LIMIT

ENDS = {
    11: lambda: os.kill(os.getpid(), signal.SIGSEGV),
    12: lambda: os.kill(os.getpid(), signal.SIGKILL),
    13: lambda: os._exit(1),
    14: lambda: os._exit(0),
}

def test_end():
    ENDS.get(LIMIT, int)()
""",
    "test_skipped.py": """
import pytest

@pytest.mark.skip
def test_skipped():
    pass
""",
    "test_leaving.py": """
import json, os, pathlib, subprocess, tempfile, thing

def test_leaving():
    sleeper = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    notes = pathlib.Path(os.environ["NOTES"], f"left-{thing.LIMIT}")
    notes.write_text(json.dumps([sleeper.pid, tempfile.mkdtemp()]))
    assert thing.LIMIT == 10
    sleeper.kill()
    sleeper.wait()
""",
    "test_cases.py": """
import pytest, thing, time

@pytest.mark.parametrize("case", ["a", "b", "c"])
def test_quick(case):
    assert thing.LIMIT != 11 or case == "a"

@pytest.mark.parametrize("case", ["a", "b", "c"])
def test_slow(case):
    time.sleep(1.1 if case == "a" else 0)
    assert thing.LIMIT != 12 or case == "a"
""",
    "test_kernel.py": """
import pathlib, thing

def test_kernel():
    kernel = pathlib.Path(thing.__file__).parent / "__pycache__" / "thing.allowed-4.nbi"
    assert kernel.read_text() == "10"
    kernel.write_text(str(thing.LIMIT))
""",
    "test_counted.py": """
import os, thing

def test_counted():
    with open(os.environ["NOTES"] + "/counted", "a") as file:
        print(thing.LIMIT, file=file)
""",
}
WAITING = """
import os, pathlib, subprocess

def test_waiting():
    sleeper = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    pathlib.Path(os.environ["NOTES"], "waits").write_text(str(sleeper.pid))
    sleeper.wait()
"""
ENTRY = """
[[mutant]]
name = "{name}"
file = "src/thing.py"
find = "{find}"
put = "{put}"
tests = {tests}
"""


def make_tree(folder):
    texts = {"src/thing.py": SOURCE} | {f"tests/{name}": text for name, text in TESTS.items()}
    for path, text in texts.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    (folder / "tests" / "mutants").mkdir()
    (folder / "src" / "__pycache__").mkdir()
    (folder / "src" / "__pycache__" / "thing.allowed-4.nbi").write_text("10")
    return folder


@pytest.fixture
def tree(tmp_path):
    return make_tree(tmp_path)


def plant(tree, name, find, put, *tests):
    named = json.dumps([f"tests/{test}" for test in tests])
    with (tree / "tests" / "mutants" / "things.toml").open("a") as file:
        file.write(ENTRY.format(name=name, find=find, put=put, tests=named))


def run(tree, *options):
    return subprocess.run(
        [sys.executable, RUNNER, "--root", tree, "--workers", "1", *options],
        env={**os.environ, "NOTES": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )


class Judged:
    """One run over all faults below: the process that runs are forked from takes its time to start."""

    def __init__(self, tree):
        self.tree, self.list = tree, tree / "tests" / "mutants" / "things.toml"
        self.list.write_text("# Faults in things.\n")
        outside = ("<= LIMIT", "< LIMIT")
        plant(tree, "the border is outside", *outside, "test_cases.py", "test_thing.py")
        plant(tree, "zero, unseen", "0 < number", "0 <= number", "test_thing.py::test_border")
        plant(tree, "no such name", "LIMIT = 10", "LIMIT = unknown", "test_thing.py")
        plant(tree, "no such name later", "return 0", "return zero", "test_thing.py")
        for limit, test in {
            1: "test_counted.py",
            2: "test_counted.py::test_counted",
            3: "test_skipped.py",
            10.5: "test_thing.py::test_zero",
            11: "test_cases.py",
            12: "test_cases.py::test_slow",
            15: "test_loop.py",
            16: "test_leaving.py",
            17: "test_kernel.py",
            18: "test_kernel.py",
        }.items():
            plant(tree, f"{test} with {limit}", "LIMIT = 10", f"LIMIT = {limit}", test)
        with self.list.open("a") as file:
            file.write("\n# --- how runs end ---\n")
        for limit in (11, 12, 13, 14):
            plant(tree, f"end {limit}", "LIMIT = 10", f"LIMIT = {limit}", "test_ends.py")
        self.listed = self.list.read_text()
        self.result = run(tree, "--narrow")

    def verdict(self, name):
        """Return the verdict about a fault, and who noticed and how."""
        found = re.search(
            rf"^(\w+) +[\d.]+ s  things: {re.escape(name)}(?:  \((.*)\))?$",
            self.result.stdout,
            re.MULTILINE,
        )
        assert found, self.result.stdout
        return found.groups()

    def tests_of(self, name):
        entries = tomllib.loads(self.list.read_text())["mutant"]
        return next(entry["tests"] for entry in entries if entry["name"] == name)


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    return Judged(make_tree(tmp_path_factory.mktemp("judged")))


def test_a_noticed_fault_is_killed_and_the_tree_is_left_alone(judged):
    verdict = judged.verdict("the border is outside")

    assert verdict == ("killed", "test_thing.py::test_border: AssertionError")
    assert (judged.tree / "src" / "thing.py").read_text() == SOURCE


def test_a_fault_that_nobody_notices_survives(judged):
    assert judged.verdict("zero, unseen") == ("SURVIVED", None)
    assert judged.verdict("test_counted.py with 1") == ("SURVIVED", None)


def test_the_sum_counts_every_fault_and_decides_the_exit_code(tree, judged):
    assert "18 faults: 7 killed, 6 survived, 5 invalid" in judged.result.stdout
    assert judged.result.returncode == 2

    plant(tree, "the border is outside", "<= LIMIT", "< LIMIT", "test_thing.py::test_border")
    plant(tree, "zero, unseen", "0 < number", "0 <= number", "test_thing.py::test_border")

    assert run(tree, "--only", "outside").returncode == 0
    assert run(tree).returncode == 1


def test_a_fault_that_cannot_be_imported_is_no_proof(judged):
    assert judged.verdict("no such name") == ("INVALID", None)


def test_a_fault_that_hangs_its_test_is_killed(judged):
    assert judged.verdict("test_loop.py with 15") == (
        "killed",
        "test_loop.py::test_loop: it did not end",
    )


def test_a_test_that_crashes_the_process_has_failed(judged):
    assert judged.verdict("end 11") == ("killed", "test_ends.py::test_end: signal 11")


@pytest.mark.parametrize("name", ["end 12", "end 13", "end 14"], ids=["SIGKILL", "1", "0"])
def test_a_run_that_ends_without_a_failed_test_is_no_proof(judged, name):
    assert judged.verdict(name) == ("INVALID", None)


def test_tests_that_are_skipped_are_no_proof(judged):
    assert judged.verdict("test_skipped.py with 3") == ("INVALID", None)


def test_no_fault_sees_the_one_before(judged):
    """All runs are forked from one process: the product is imported in each of them anew."""
    assert judged.verdict("test_thing.py::test_zero with 10.5") == ("SURVIVED", None)
    counted = (judged.tree / "counted").read_text().split()

    assert sorted(counted) == ["1", "10", "2"]  # and once without a fault, though listed twice


def test_no_fault_sees_machine_code_that_was_compiled_with_the_one_before(judged):
    assert judged.verdict("test_kernel.py with 17") == ("SURVIVED", None)
    assert judged.verdict("test_kernel.py with 18") == ("SURVIVED", None)


def test_what_a_failed_test_started_is_ended_and_what_it_wrote_is_removed(judged):
    """Its fixtures are not torn down, to save their time."""
    verdict = judged.verdict("test_leaving.py with 16")
    pid, folder = json.loads((judged.tree / "left-16").read_text())

    assert verdict == ("killed", "test_leaving.py::test_leaving: AssertionError")
    assert not Path(folder).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("the border is outside", "tests/test_thing.py::test_border"),
        ("test_cases.py with 11", "tests/test_cases.py::test_quick"),
        ("test_cases.py::test_slow with 12", "tests/test_cases.py::test_slow[b]"),
    ],
    ids=["of two files", "of a test with quick cases", "of a test with a slow case"],
)
def test_an_entry_is_narrowed_to_the_test_that_noticed(judged, name, test):
    assert judged.tests_of(name) == [test]


@pytest.mark.parametrize(
    "name",
    ["no such name", "no such name later", "test_loop.py with 15", "test_counted.py with 1"],
    ids=["no import", "an error of the fault itself", "too long", "unnoticed"],
)
def test_an_entry_stays_where_no_test_failed_as_it_should(judged, name):
    assert "::" not in judged.tests_of(name)[0]


def test_a_narrowed_list_keeps_all_its_other_lines(judged):
    before, after = judged.listed.splitlines(), judged.list.read_text().splitlines()

    assert len(before) == len(after)
    assert all(a == b or a.startswith("tests = ") for a, b in zip(before, after, strict=True))


def test_a_runner_that_is_ended_ends_its_tests_and_removes_its_copies(tree, tmp_path_factory):
    notes, temporary = tmp_path_factory.mktemp("notes"), tmp_path_factory.mktemp("temporary")
    os.mkfifo(notes / "waits")
    plant(tree, "another limit", "LIMIT = 10", "LIMIT = 11", "test_waiting.py")
    (tree / "tests" / "test_waiting.py").write_text(WAITING)

    process = subprocess.Popen(
        [sys.executable, RUNNER, "--root", tree, "--workers", "1"],
        env={**os.environ, "NOTES": str(notes), "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
    )
    sleeper = int((notes / "waits").read_text())
    process.terminate()

    assert process.wait() == 1
    assert list(temporary.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(sleeper, signal.SIGKILL)


def test_a_test_that_fails_anyhow_is_no_proof(tree):
    plant(tree, "the border is outside", "<= LIMIT", "< LIMIT", "test_thing.py")
    (tree / "tests" / "test_thing.py").write_text("def test_it():\n    assert 1 == 2\n")

    result = run(tree)

    assert result.returncode == 2
    assert "put that right first" in result.stdout


@pytest.mark.parametrize(
    ("find", "put", "tests", "words"),
    [
        ("gone", "x", "test_thing.py", "stands 0 times in src/thing.py, not once"),
        ("LIMIT", "x", "test_thing.py", "stands 2 times"),
        ("<= LIMIT", "<= (", "test_thing.py", "is no Python"),
        ("<= LIMIT", "<= (LIMIT)", "test_thing.py", "changes nothing"),
        ("<= LIMIT", "< LIMIT", "test_gone.py", "no such test: tests/test_gone.py"),
        ("<= LIMIT", "< LIMIT", "test_thing.py::test_gone", "test_thing.py::test_gone"),
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
