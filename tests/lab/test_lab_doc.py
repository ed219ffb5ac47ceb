"""docs/LAB.md: figures, a sentence and a picture of every experiment, and the tool that writes them."""

import importlib.util
from pathlib import Path

import pytest

from orbitmq.lab.catalogue import EXPERIMENTS
from orbitmq.lab.machine import disk_kind, machine_facts, read_ahead_kib

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "LAB.md").read_text(encoding="utf-8")
RESULT = {
    "name": "flush",
    "rows": [
        {
            "name": "async",
            "note": "",
            "figures": [{"name": "rate", "value": 51_403.4, "unit": "messages/s"}],
        },
        {
            "name": "LMDB",
            "note": "not installed",
            "figures": [{"name": "rate", "value": None, "unit": "messages/s"}],
        },
    ],
    "sentence": "Seen: much.",
}


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("lab_doc", ROOT / "tools" / "lab_doc.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_its_figures_sentence_and_picture(name):
    part = DOCUMENT.partition(f"<!-- {name} -->\n")[2].partition(f"<!-- end of {name} -->")[0]

    assert part.startswith("| | ")
    assert f"the documents say that {EXPERIMENTS[name].claim}: " in part
    assert f"](lab/{name}.svg)" in DOCUMENT
    assert (ROOT / "docs" / "lab" / f"{name}.svg").stat().st_size < 60_000


def test_there_are_no_pictures_of_what_is_gone():
    names = {path.stem for path in (ROOT / "docs" / "lab").iterdir()}

    assert names == set(EXPERIMENTS)


def test_a_result_becomes_a_table_with_units_and_notes(tool):
    assert tool.section(RESULT).splitlines() == [
        "| | rate, messages/s |",
        "|---|---:|",
        "| async | 51 403 |",
        "| LMDB | not installed |",
        "",
        "Seen: much.",
    ]


def test_figures_are_put_between_their_marks_and_nowhere_else(tool):
    text = "a\n<!-- one -->\nold\n<!-- end of one -->\nb\n<!-- two -->\n<!-- end of two -->\n"

    once = tool.put(text, "one", "new\n")

    assert once == text.replace("old", "new")
    assert tool.put(once, "one", "new\n") == once
    with pytest.raises(SystemExit, match="no marks for three"):
        tool.put(text, "three", "")


def test_the_machine_is_told_in_one_line(tool, tmp_path):
    line = tool.machine_line({"machine": machine_facts(tmp_path), "size": "full"})

    assert line.endswith("size full.\n")
    assert line.count("\n") == 1


def test_a_directory_without_a_disk_has_none():
    assert disk_kind("0:0") == "none (memory or network)"
    assert read_ahead_kib("0:0") is None
