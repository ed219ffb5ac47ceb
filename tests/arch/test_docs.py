"""The documents say what is so: links lead somewhere, commands and recipes exist, the inventory is whole."""

import re
import subprocess
import sys
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

import orbitmq

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")]
)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
RECIPE = re.compile(r"`make ([a-z-]+)")
STORE_COMMAND = re.compile(r"orbitmq store ([a-z]+)\b")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(
    r"(?<![\w./*-])[\w.*-]+(?:/[\w.*-]+)*\.(?:py|md|toml|java|xml|sh|json|txt|conf|properties)\b"
)
NOT_OURS = (  # files of a user, of a store, of a broker's state
    "broker.conf",
    "figures.json",
    "my_job.py",
    "spark-defaults.conf",
    "config/*.json",
    "config/orbitmq.properties",
    "kvConfig.json",
    "orbitmq.namesrv.properties",
    "orbitmq-replay.json",
)
CLASS_NAME = re.compile(r"(?<![\w./-])([A-Z][a-z]+(?:[A-Z][a-z]+)+)(?:\.(\w+))?")
OF_THE_CODE = ("ARCHITECTURE.md", "CONCURRENCY.md", "HACKING.md")
FEATURE_ROW = re.compile(r"^\| ([FPX])(\d+) \|", re.MULTILINE)

each_document = pytest.mark.parametrize(
    "path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


@each_document
def test_links_lead_to_files(path):
    links = LINK.findall(path.read_text(encoding="utf-8"))

    broken = [link for link in links if "://" not in link and not (path.parent / link).exists()]

    assert broken == []


@cache
def tree_files() -> list[str]:
    """Return the files that are, or would be, under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return [name for name in listed.stdout.decode().split("\0") if (ROOT / name).is_file()]


def named_files(text: str) -> list[str]:
    """Return what looks like a file name in back-ticks or in a block of code."""
    return [name for code in CODE.findall(text) for name in FILE_NAME.findall(code)]


def complaint(name: str, folder: Path, files: list[str]) -> str | None:
    """Return what is wrong with a name: it must be a path, from the root or from the document's folder, or
    the end of one path only, so that nobody looks into the wrong file; a pattern may mean many.
    """
    near = {name, str((folder / name).relative_to(ROOT))}
    if near & set(files) or any(fnmatchcase(name, pattern) for pattern in NOT_OURS):
        return None
    found = [file for file in files if fnmatchcase(f"/{file}", f"*/{name}")]
    if len(found) == 1 or (found and "*" in name):
        return None
    return f"{name}: {' or '.join(found)}?" if found else f"{name}: no such file"


@each_document
def test_files_that_are_named_exist_and_one_file_is_meant(path):
    names = dict.fromkeys(named_files(path.read_text(encoding="utf-8")))

    wrong = [found for name in names if (found := complaint(name, path.parent, tree_files()))]

    assert wrong == []


def test_a_name_may_be_the_end_of_a_path_but_of_one_path_only():
    text = "`walk.py`, `a/walk.py`, `no/walk.py`, `flush.py`, `b/flush.py`, `b/*.toml`, walk.cc, gone.py"
    files = ["src/a/walk.py", "src/a/flush.py", "src/b/flush.py", "src/b/one.toml", "docs/here.md"]

    names = named_files(f"{text} `here.md`\n```\n  nothing.py -> walk.py\n```\n")

    assert [found for name in names if (found := complaint(name, ROOT / "docs", files))] == [
        "no/walk.py: no such file",
        "flush.py: src/a/flush.py or src/b/flush.py?",
        "nothing.py: no such file",
    ]


@pytest.mark.parametrize("document", OF_THE_CODE)
def test_classes_and_methods_that_are_named_exist(document):
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    classes = set(re.findall(r"^class (\w+)", source, re.MULTILINE))
    members = set(re.findall(r"^    (?:async )?def (\w+)|^    (\w+): ", source, re.MULTILINE))
    members = {name for pair in members for name in pair}
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    named = [found for code in CODE.findall(text) for found in CLASS_NAME.findall(code)]

    wrong = [
        f"{name}.{member}"
        for name, member in dict.fromkeys(named)
        if name not in classes or (member and member not in members)
    ]

    assert named
    assert wrong == []


@each_document
def test_recipes_that_are_named_exist(path):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipes = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))

    assert set(RECIPE.findall(path.read_text(encoding="utf-8"))) <= recipes


@each_document
def test_store_commands_that_are_named_exist(path):
    named = set(STORE_COMMAND.findall(path.read_text(encoding="utf-8")))

    assert named <= {"stat", "check", "dump", "get", "query", "rebuild", "repair"}


def test_inventory_has_every_row_once():
    rows = FEATURE_ROW.findall((ROOT / "docs" / "FEATURES.md").read_text(encoding="utf-8"))

    numbers = {kind: [int(n) for k, n in rows if k == kind] for kind in "FPX"}

    assert numbers == {
        "F": list(range(1, 123)),
        "P": list(range(1, 20)),
        "X": list(range(1, 9)),
    }


def test_decisions_are_listed():
    folder = ROOT / "docs" / "adr"
    listed = (folder / "README.md").read_text(encoding="utf-8")

    missing = [path.name for path in folder.glob("0*.md") if path.name not in listed]

    assert missing == []


def test_version_is_the_same_everywhere():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    assert f'version = "{orbitmq.__version__}"' in project


def test_menu_shows_every_recipe():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipes = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split()

    menu = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert all(f"make {recipe}" in menu for recipe in recipes)


def test_a_marker_with_an_unknown_row_fails_its_test(tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["feature_plugin"]\n')
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n"
        "@pytest.mark.feature('F1', 'F999', 'X1', 'X1.java')\ndef test_it():\n    pass\n"
    )
    options = ["-q", "-p", "no:cacheprovider", "-o", f"pythonpath={ROOT / 'tests'}"]

    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-o", "markers=feature: x", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 1
    assert "no such row in docs/FEATURES.md: F999, X1" in result.stdout
