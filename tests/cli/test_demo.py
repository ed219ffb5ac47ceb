"""`orbitmq demo`: all its figures are ok, a wrong one is said, and it leaves nothing behind."""

import io
import sys

import pytest
from rich.console import Console

from command import run
from orbitmq.cli.demo import load
from orbitmq.cli.demo.pipeline import PipelineDemo, derived_files
from orbitmq.cli.demo.report import Report, Timer


@pytest.mark.spark
@pytest.mark.crash
def test_demo_with_few_messages_is_right_in_every_figure(tmp_path):
    result = run("demo", "--messages", 5_000, TMPDIR=str(tmp_path))

    assert result.returncode == 0, result.stdout + result.stderr
    assert "every figure is ok" in result.stdout
    assert "WRONG" not in result.stdout
    store = ("write", "recover", "kill", "check")
    live = ("up", "produce", "consume", "tail", "doctor", "stop")
    pipeline = ("spark", "delete", "rebuild", "verify", "query", "count", "export", "duckdb")
    for step in (*store, *live, *pipeline):
        assert f"\n{step:8}" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_messages_take_turns_over_all_queues():
    places = {load.place(n)[:2] for n in range(load.LANES)}

    assert len(places) == load.LANES
    assert load.place(0).queue_offset == load.place(load.LANES - 1).queue_offset == 0
    assert load.place(load.LANES).queue_offset == 1


@pytest.mark.parametrize("messages", [0, 1, 15, 16, 17, 1000])
def test_lengths_of_queues_add_up(messages):
    lengths = [load.lane_length(messages, lane) for lane in range(load.LANES)]

    assert sum(lengths) == messages
    assert max(lengths) - min(lengths) <= 1


def test_without_the_extra_the_pipeline_is_left_out_and_says_why(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    report = _silent_report()

    PipelineDemo(report, tmp_path, [1]).run()

    text = report.console.file.getvalue()
    assert "left out" in text
    assert "pip install 'orbitmq[spark]'" in text
    assert report.all_ok


def test_rebuilt_files_are_compared_byte_by_byte(tmp_path):
    first, second, other = (_derived(tmp_path / name) for name in ("first", "second", "other"))
    (second / "index" / "20260101000000000").rename(second / "index" / "20260102000000000")
    with (second / "consumequeue" / "T" / "0" / "0").open("ab") as file:
        file.write(bytes(20))  # as long as the file may become
    (other / "consumequeue" / "T" / "0" / "0").write_bytes(b"unis")

    assert derived_files(first) == derived_files(second)
    assert len(derived_files(first)) == 2
    assert derived_files(first) != derived_files(other)


def _derived(root):
    for place, content in (("consumequeue/T/0/0", b"unit"), ("index/20260101000000000", b"index")):
        (root / place).parent.mkdir(parents=True)
        (root / place).write_bytes(content)
    return root


def test_one_wrong_figure_makes_the_whole_wrong():
    report = _silent_report()
    with Timer() as timer:
        pass

    report.line("read", "7 messages", timer, 7, ok=True)
    report.line("kill", "nobody", ok=False)
    report.line("stop", "exit code 0", ok=True)
    report.verdict()

    text = report.console.file.getvalue()
    assert not report.all_ok
    assert [line.split()[-1] for line in text.splitlines()[:3]] == ["ok", "WRONG", "ok"]
    assert "figures are wrong" in text


def _silent_report():
    report = Report()
    report.console = Console(file=io.StringIO(), width=100)
    return report
