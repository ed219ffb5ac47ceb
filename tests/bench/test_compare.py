"""Comparing two revisions: what is measured, what is refused, what the figures say, what is left behind."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
COPIED = ("src", "bench", "tests/compat")
NOT_COPIED = shutil.ignore_patterns("target", "node_modules", "build", "*.egg-info")


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Import the tool's modules as its program does."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import compare
    import compare_ratios
    import compare_scenarios
    import compare_trees
    import doors

    return SimpleNamespace(
        compare=compare,
        ratios=compare_ratios,
        scenarios=compare_scenarios,
        trees=compare_trees,
        doors=doors,
    )


def git(repository: Path, *arguments: str) -> str:
    who = ["-c", "user.name=Bench", "-c", "user.email=bench@example.org"]
    command = ["git", "-C", str(repository), *who, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give this tree as a repository with one commit: the real one may be shallow, or have changes."""
    path = tmp_path_factory.mktemp("compare") / "repository"
    for name in COPIED:  # with numba's cache, so that nothing is compiled again
        shutil.copytree(ROOT / name, path / name, ignore=NOT_COPIED)
    for name in ("pyproject.toml", "constraints.txt", ".gitignore", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, path / name)
    git(path, "init", "--quiet")
    git(path, "add", ".")
    git(path, "commit", "--quiet", "--message", "everything")
    return path


@pytest.fixture
def small_repository(tmp_path: Path) -> Path:
    """Give a repository with one commit of one file."""
    path = tmp_path / "small"
    (path / "src").mkdir(parents=True)
    (path / "src" / "one.py").write_text("ONE = 1\n")
    git(path, "init", "--quiet")
    git(path, "add", ".")
    git(path, "commit", "--quiet", "--message", "one")
    return path


def run(repository: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(repository / "bench" / "compare.py"), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=850,
    )


# The whole program


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_revision_compared_with_itself_gives_figures_and_leaves_nothing(
    repository: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    options = ["--size", "small", "--rounds", "1", "--directory", str(work), "--output", "json"]

    ended = run(repository, "HEAD", "HEAD", *options, "--only", "one by one", "sends, 4 in")

    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert (
        result["a"]
        == result["b"]
        == {"name": "HEAD", "commit": git(repository, "rev-parse", "HEAD")}
    )
    assert [row["what"] for row in result["figures"]] == [
        "append one by one",
        "sends, 4 in flight",
        "sends, 4 in flight, CPU s a million",
    ]
    assert all(row["a"][0] > 0 and row["b"][0] > 0 for row in result["figures"])
    assert list(work.iterdir()) == []
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.parametrize("words", [["HEAD", "no-such-thing"], ["no-such-thing", "HEAD"]])
def test_an_unknown_revision_is_refused_in_one_sentence(repository: Path, words: list[str]) -> None:
    ended = run(repository, *words)

    said = [line for line in ended.stderr.splitlines() if not line.startswith("The load")]
    assert ended.returncode == 2
    assert said == ["no-such-thing: this repository has no such revision"]


def test_a_pattern_that_fits_nothing_is_refused_with_the_pattern(repository: Path) -> None:
    ended = run(repository, "HEAD", "HEAD", "--only", "telepathy")

    assert ended.returncode == 2
    assert "no scenario has telepathy in its name" in ended.stderr


def test_help_names_every_scenario_and_what_a_ratio_means(modules: SimpleNamespace) -> None:
    ended = run(ROOT, "--help")

    text = " ".join(ended.stdout.split())
    assert ended.returncode == 0
    assert all(scenario.name in text for scenario in modules.scenarios.SCENARIOS)
    assert "B/A says how many times better B is" in text


# Revisions


def test_changes_that_are_not_committed_are_refused(
    modules: SimpleNamespace, small_repository: Path
) -> None:
    (small_repository / "src" / "one.py").write_text("ONE = 2\n")

    with pytest.raises(
        modules.trees.RefusedError, match=r"^HEAD: src/one.py has changes that are not"
    ):
        modules.trees.resolve("HEAD", small_repository)


def test_changes_elsewhere_and_of_another_revision_do_not_matter(
    modules: SimpleNamespace, small_repository: Path
) -> None:
    (small_repository / "notes.txt").write_text("not measured\n")
    first = modules.trees.resolve("HEAD", small_repository)
    (small_repository / "src" / "one.py").write_text("ONE = 2\n")
    git(small_repository, "commit", "--quiet", "--all", "--message", "two")
    (small_repository / "src" / "one.py").write_text("ONE = 3\n")

    again = modules.trees.resolve("HEAD~1", small_repository)

    assert again.commit == first.commit
    assert again.short == first.commit[:7]


def test_whatever_a_run_started_is_gone_when_it_ends(
    modules: SimpleNamespace, tmp_path: Path
) -> None:
    tree = modules.trees.Tree(
        modules.trees.Revision("HEAD", "0" * 40), tmp_path, Path(sys.executable)
    )
    # A child in a process group of its own, as Spark's workers are, that nobody waits for.
    start = "import subprocess; print(subprocess.Popen(['sleep', '600'], process_group=0).pid)"

    pid = int(tree.run(["-c", start]))

    stat = Path(f"/proc/{pid}/stat")  # its new parent may not have collected it yet
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_run_that_takes_too_long_is_ended(modules: SimpleNamespace, tmp_path: Path) -> None:
    tree = modules.trees.Tree(
        modules.trees.Revision("HEAD", "0" * 40), tmp_path, Path(sys.executable)
    )

    with pytest.raises(modules.trees.FailedError, match="not done after 1 s"):
        tree.run(["-c", "import time; time.sleep(600)"], seconds_max=1)


def test_settings_of_the_caller_do_not_reach_the_product(
    modules: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORBITMQ_FLUSH_DISK_TYPE", "SYNC_FLUSH")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    tree = modules.trees.Tree(
        modules.trees.Revision("HEAD", "0" * 40), tmp_path, Path(sys.executable)
    )

    said = json.loads(tree.run(["-c", "import json, os; print(json.dumps(dict(os.environ)))"]))

    assert "ORBITMQ_FLUSH_DISK_TYPE" not in said
    assert said["PYTHONPATH"] == str(tmp_path / "src")
    assert said["PATH"] == os.environ["PATH"]


# Moved names


def test_every_name_of_the_product_is_found_in_this_revision(modules: SimpleNamespace) -> None:
    pytest.importorskip("pyspark")

    assert all(callable(modules.doors.find(name)) for name in modules.doors.PLACES)


def test_a_name_is_looked_for_in_its_earlier_places_too(
    modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = ("orbitmq.no_such_module", "orbitmq.message", "orbitmq.format.crc")
    monkeypatch.setitem(modules.doors.PLACES, "AppendRequest", places)
    monkeypatch.setitem(modules.doors.PLACES, "NoSuchName", places)

    assert modules.doors.AppendRequest.__module__ == "orbitmq.message"
    with pytest.raises(
        ImportError, match=r"no NoSuchName in orbitmq.no_such_module, orbitmq.message"
    ):
        modules.doors.find("NoSuchName")


# What the figures say


def comparison(
    modules: SimpleNamespace, a: list[float], b: list[float], *, more: bool = True
) -> object:
    figure = modules.ratios.Figure("rate", "appends", "/s" if more else "s", more)
    return modules.ratios.Comparison(figure, a, b)


def test_a_ratio_is_the_median_of_the_rounds_and_has_their_spread(modules: SimpleNamespace) -> None:
    found = comparison(modules, [100, 200, 100], [110, 180, 50])

    assert found.ratios == pytest.approx([1.1, 0.9, 0.5])
    assert found.ratio == pytest.approx(0.9)
    row = found.row()
    assert (row["ratio_min"], row["ratio_max"]) == pytest.approx((0.5, 1.1))
    assert (row["a_median"], row["b_median"]) == (100, 110)


def test_less_time_is_a_ratio_above_one(modules: SimpleNamespace) -> None:
    assert comparison(modules, [2.0], [1.0], more=False).ratio == 2.0


def test_a_median_below_the_limit_counts_and_one_bad_round_does_not(
    modules: SimpleNamespace,
) -> None:
    fine = comparison(modules, [100, 100, 100], [100, 96, 10])
    bad = comparison(modules, [100, 100, 100], [94, 94, 200])

    assert modules.ratios.slower([fine, bad], 0.95) == [bad]


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0])])
def test_rounds_that_do_not_fit_make_no_comparison(
    modules: SimpleNamespace, a: list[float], b: list[float]
) -> None:
    with pytest.raises(ValueError, match="appends: "):
        comparison(modules, a, b)


def test_the_table_has_medians_ratio_and_spread(modules: SimpleNamespace) -> None:
    text = modules.ratios.table([comparison(modules, [100, 200], [90, 220])], "aaa", "bbb")

    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert cells[0] == ["scenario", "A aaa", "B bbb", "B/A", "spread"]
    assert cells[2] == ["appends", "150 /s", "155 /s", "1.00x", "0.90..1.10"]


def test_patterns_choose_scenarios_by_their_name_or_a_figure_of_theirs(
    modules: SimpleNamespace,
) -> None:
    chosen = modules.scenarios.chosen

    assert [each.name for each in chosen(["idle memory"])] == ["broker start"]
    assert [each.name for each in chosen(["sends, [14] *"])] == [
        "sends, 1 in flight",
        "sends, 4 in flight",
    ]
    assert chosen(["*"]) == list(modules.scenarios.SCENARIOS)
    assert chosen(["telepathy"]) == []


class FakeTree:
    """Gives rows in turn; None is a run that fails."""

    def __init__(self, name: str, rates: list[float | None]) -> None:
        self.revision = SimpleNamespace(name=name)
        self.rates = iter(rates)
        self.calls: list[list[str]] = []
        self.failed = RuntimeError

    def run(self, arguments: list[str]) -> str:
        self.calls.append(arguments)
        rate = next(self.rates)
        if rate is None:
            raise self.failed("wrong result: units")
        return json.dumps({"rate": rate})


def turns(
    modules: SimpleNamespace, tmp_path: Path, a: FakeTree, b: FakeTree, rounds: int
) -> object:
    a.failed = b.failed = modules.trees.FailedError
    return modules.compare.Turns([a, b], "small", rounds, tmp_path)


def test_revisions_take_turns(modules: SimpleNamespace, tmp_path: Path) -> None:
    a, b = FakeTree("A", [100, 200]), FakeTree("B", [50, 400])
    (scenario,) = modules.scenarios.chosen(["one by one"])

    (found,) = turns(modules, tmp_path, a, b, 2).compare(scenario)

    assert found.ratios == [0.5, 2.0]
    assert "size=smoke" in a.calls[0]
    assert list(tmp_path.iterdir()) == []


def test_a_scenario_that_fails_is_left_out_and_named(
    modules: SimpleNamespace, tmp_path: Path
) -> None:
    both = turns(modules, tmp_path, FakeTree("A", [100]), FakeTree("B", [None]), 1)
    (scenario,) = modules.scenarios.chosen(["one by one"])

    assert both.compare(scenario) == []
    assert both.failures == ["append one by one, B: wrong result: units"]


def test_a_row_without_the_figure_is_a_failure(modules: SimpleNamespace, tmp_path: Path) -> None:
    both = turns(modules, tmp_path, FakeTree("A", [0]), FakeTree("B", [1]), 1)
    (scenario,) = modules.scenarios.chosen(["one by one"])

    assert both.compare(scenario) == []
    assert both.failures[0].startswith("append one by one, A: no figure for rate")


@pytest.mark.parametrize(("limit", "code"), [(None, 0), (0.4, 0), (0.95, 1)])
def test_the_exit_code_follows_the_limit(
    modules: SimpleNamespace, capsys: pytest.CaptureFixture[str], limit: float | None, code: int
) -> None:
    arguments = SimpleNamespace(fail_below=limit, output="table", rounds=3, size="small")
    revisions = [modules.trees.Revision(name, name * 40) for name in "ab"]
    found = [comparison(modules, [100, 100, 100], [50, 50, 50])]

    assert modules.compare._report(arguments, revisions, found, [], 0.5) == code
    said = capsys.readouterr()
    assert ("below 0.95: appends, 0.50x" in said.err) == bool(code)
    assert "| appends  | 100 /s    | 50 /s     | 0.50x | 0.50..0.50 |" in said.out


def test_a_failure_is_an_exit_code_even_without_a_limit(
    modules: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = SimpleNamespace(fail_below=None, output="table", rounds=3, size="small")
    revisions = [modules.trees.Revision(name, name * 40) for name in "ab"]

    assert modules.compare._report(arguments, revisions, [], ["append, A: wrong"], 0.5) == 1
    assert "failed: append, A: wrong" in capsys.readouterr().err


def test_a_busy_machine_is_named(modules: SimpleNamespace) -> None:
    assert modules.compare.load_note(2.0) is None
    assert "2.1 before the start" in modules.compare.load_note(2.1)
