"""The documents say what is so: links lead somewhere, commands and recipes exist, the inventory is whole."""

import re
import subprocess
import sys
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
FEATURE_ROW = re.compile(r"^\| ([FPX])(\d+) \|", re.MULTILINE)

each_document = pytest.mark.parametrize(
    "path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


@each_document
def test_links_lead_to_files(path):
    links = LINK.findall(path.read_text(encoding="utf-8"))

    broken = [link for link in links if "://" not in link and not (path.parent / link).exists()]

    assert broken == []


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
