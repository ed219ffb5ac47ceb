"""The mechanical things: no leftovers, no module that nobody uses, nothing of one machine in the tree."""

import ast
import re
import subprocess
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "orbitmq").rglob("*.py"))

# Written in pieces, so that this file does not find itself.
OF_ONE_MACHINE = [
    "/wo" + "rk/",
    "/ro" + "ot/",
    "/ho" + "me/",
    "/opt/wh" + "eels",
    "--index-" + "url",
    "--extra-index-" + "url",
    "--find-" + "links",
    "pypi" + ".org",
    "python" + "hosted",
    "arti" + "factory",
    "repo1." + "maven",
    "repo." + "maven",
]
LEFTOVERS = re.compile(r"\b(FIX" + "ME|XX" + r"X\b(?!X))")
USED_FROM_OUTSIDE = ("orbitmq.testing", "orbitmq.cli", "orbitmq.spark.columns.pool")


def tree_files() -> list[Path]:
    """Return the files that are, or would be, under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = [name for name in listed.stdout.decode().split("\0") if name]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def text_of(path: Path) -> str:
    data = path.read_bytes()
    return "" if b"\0" in data or path.suffix == ".gz" else data.decode("utf-8", "replace")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sources_have_no_print_and_no_breakpoint(path):
    calls = [
        node.func.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]

    assert "print" not in calls
    assert "breakpoint" not in calls


def test_every_module_is_used():
    graph = grimp.build_graph("orbitmq")

    orphans = [
        module
        for module in sorted(graph.modules)
        if not graph.find_children(module)  # packages hold modules; that is their use
        and not module.startswith(USED_FROM_OUTSIDE)
        and not graph.find_modules_that_directly_import(module)
    ]

    assert orphans == []


def test_nothing_in_the_tree_belongs_to_one_machine():
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in tree_files()
        for word in OF_ONE_MACHINE
        if word in text_of(path)
    ]

    assert found == []


def test_no_leftover_marks_in_the_tree():
    found = [
        f"{path.relative_to(ROOT)}: {mark}"
        for path in tree_files()
        if path.suffix in {".py", ".md", ".toml"} or path.name == "Makefile"
        for mark in LEFTOVERS.findall(text_of(path))
        if "SCHEDULE_TOPIC" not in mark
    ]

    assert found == []


def test_tests_of_spark_and_java_are_where_the_recipe_looks_for_them():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    folders = re.search(r"^HEAVY := (.*)$", makefile, re.MULTILINE)[1].split()
    marked = re.compile(r"\bmark\.(spark|compat)\b")

    elsewhere = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if marked.search(text_of(path))
        and not any(path.is_relative_to(ROOT / folder) for folder in folders)
    ]

    assert elsewhere == []


def test_pinned_versions_name_no_host():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()

    pins = [line for line in lines if line and not line.startswith("#")]

    assert pins
    assert [
        pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+-]+", pin)
    ] == []
