"""`orbitmq lab`: the menu, wrong use, pictures, and what happens without the extra or without space."""

import errno
import json
import sys
from importlib.machinery import ModuleSpec

import pytest

from command import invoke, json_lines, run
from orbitmq.cli import output
from orbitmq.errors import NoSpaceError
from orbitmq.lab.catalogue import EXPERIMENTS
from orbitmq.lab.experiment import Chart, Findings, Result, Row, Size, Verdict
from orbitmq.lab.experiments import file_copy, one_log, storage
from orbitmq.lab.plot import plot


def test_help_tells_of_every_experiment():
    text = invoke("lab", "--help").stdout

    lines = [line.strip() for line in text.splitlines()]
    assert [f"{name:12}{one.about}" for name, one in EXPERIMENTS.items()] == [
        line for line in lines if line.split(" ")[0] in EXPERIMENTS
    ]
    assert "--size" in text


def test_the_list_says_what_each_compares_and_which_claim_it_looks_at():
    listed = json_lines(invoke("lab", "--list", "--output", "json").stdout)

    assert [(one["name"], one["claim"]) for one in listed] == [
        (name, experiment.claim) for name, experiment in EXPERIMENTS.items()
    ]
    assert "page-cache" in invoke("lab", "--list").stdout


def test_every_experiment_names_its_rows_of_the_inventory():
    features = [feature for one in EXPERIMENTS.values() for feature in one.features]

    assert sorted(features, key=lambda feature: int(feature[1:])) == [
        *("F55", "F57", "F59", "F92", "F93", "F94", "F101", "F102", "F103", "F114", "F122")
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "'nothing' is none of page-cache, transfer"),
        (["flush", "--size", "huge"], "'huge' is neither small nor full"),
        (["flush", "--dir", "/no/such/place"], "does not exist"),
    ],
)
def test_wrong_use_is_told(arguments, words):
    result = invoke("lab", *arguments)

    assert result.exit_code == 2
    assert words in _words(result.output)


def _words(text):
    """Return a message without its frame and its line breaks."""
    return " ".join(text.replace("│", " ").split())


def test_a_table_ends_with_checks_and_sentence(tmp_path):
    result = run("lab", "file-copy", "--size", "small", "--dir", tmp_path)

    assert result.returncode == 0, result.stderr
    assert "5 of 5 checks are ok." in result.stdout
    assert "copy_file_range" in result.stdout
    assert "\nSeen: 100 MiB took " in result.stdout
    assert result.stderr == ""  # no bar where there is no terminal


def test_several_experiments_are_one_line_each(tmp_path):
    result = invoke(
        *("lab", "buffers", "file-copy", "buffers"),
        *("--size", "small", "--output", "json", "--dir", tmp_path),
    )

    assert [line["name"] for line in json_lines(result.stdout)] == ["buffers", "file-copy"]


def test_a_picture_is_written(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `lab` is not installed")
    pictures = tmp_path / "new" / "pictures"

    result = invoke("lab", "file-copy", "--size", "small", "--plot", pictures, "--dir", tmp_path)

    assert result.exit_code == 0, result.output
    picture = (pictures / "file-copy.svg").read_text(encoding="utf-8")
    assert picture.startswith("<?xml")
    assert "file-copy: a file copied by a loop" in picture
    assert all(way in picture for way in file_copy.WAYS)
    assert len(picture) < 60_000


def test_a_picture_may_have_lines_and_the_same_figures_make_the_same_file(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `lab` is not installed")
    made = [(one_log.ONE, 1, 900.0), (one_log.ONE, 64, 900.0), (one_log.MANY, 64, 10.0)]
    rows = [Row(name, {"partitions": x, "written, synced": y}) for name, x, y in made]
    rows.append(Row(one_log.MANY, {"partitions": 8_192, "written, synced": None}, "left out"))
    chart = Chart(("written, synced",), x="partitions", logarithmic=True)
    findings = Findings(one_log.UNITS, rows, Verdict(True, ""), chart)
    result = Result(EXPERIMENTS["one-log"], Size.SMALL, 1.0, findings, [])

    first = plot(result, tmp_path).read_text(encoding="utf-8")

    assert all(words in first for words in (one_log.ONE, one_log.MANY, "partitions"))
    assert "8 192" not in first
    assert plot(result, tmp_path).read_text(encoding="utf-8") == first


def _not_installed(monkeypatch, module, missing):
    real = module.find_spec

    def find_spec(name: str) -> ModuleSpec | None:
        return None if name == missing else real(name)

    monkeypatch.setattr(module, "find_spec", find_spec)
    monkeypatch.setitem(sys.modules, missing, None)


def test_without_matplotlib_nothing_runs_and_the_next_step_is_told(monkeypatch, tmp_path):
    _not_installed(monkeypatch, sys.modules[plot.__module__], "matplotlib")

    result = invoke("lab", "file-copy", "--size", "small", "--plot", tmp_path / "pictures")

    assert result.exit_code == 2
    assert "pip install 'orbitmq[lab]'" in _words(result.output)
    assert not (tmp_path / "pictures").exists()


@pytest.mark.feature("F101")
def test_without_lmdb_its_row_says_so_and_the_rest_is_measured(monkeypatch, tmp_path):
    _not_installed(monkeypatch, storage, "lmdb")

    result = invoke("lab", "storage", "--size", "small", "--output", "json", "--dir", tmp_path)

    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    notes = {row["name"]: row["note"] for row in found["rows"]}
    assert notes["LMDB (key-value)"] == "not installed: pip install 'orbitmq[lab]'"
    assert notes["this log"] == notes["SQLite (relational)"] == ""
    assert found["holds"] is None


@pytest.mark.feature("F103")
def test_partitions_that_cannot_be_opened_are_left_out_and_told(monkeypatch, tmp_path):
    monkeypatch.setattr(one_log, "SPARE_FILES", 10**9)  # more than any system allows

    result = invoke("lab", "one-log", "--size", "small", "--output", "json", "--dir", tmp_path)

    found = json.loads(result.stdout)
    notes = [row["note"] for row in found["rows"] if row["name"] == one_log.MANY]
    assert found["holds"] is None
    assert len(notes) == 2
    assert all(note.startswith("left out: this process may have ") for note in notes)


def test_a_full_disk_is_told_by_its_name_and_leaves_nothing_behind(monkeypatch, tmp_path):
    def full(source, target, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setitem(file_copy.WAYS, "sendfile", full)

    result = invoke("lab", "file-copy", "--size", "small", "--dir", tmp_path)

    assert isinstance(result.exception, NoSpaceError)
    assert str(tmp_path) in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_bar_counts_the_steps(monkeypatch, tmp_path):
    shown = []
    monkeypatch.setattr(output, "_ignore", lambda done, total: shown.append((done, total)))

    invoke("lab", "file-copy", "--size", "small", "--dir", tmp_path)

    assert shown == [(done, 6) for done in range(7)]
