"""Writes what became of every test, and which rows of docs/FEATURES.md it proves, to a JSON file.

With `--feature-results FILE` each run adds its tests to FILE, so that one `make test` can be several
runs: {"tests": {node id: {"outcome": ..., "features": [...], "reason": ...}}}.
A marker with a name that is not in docs/FEATURES.md, or one that leaves open which part of a row is
meant, fails its test.
"""

import fcntl
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

INVENTORY = Path(__file__).parents[1] / "docs" / "FEATURES.md"
ROW = re.compile(r"^\| ([FPX]\d+) \|.*\| ([^|]*) \|$", re.MULTILINE)
SEVERITY = {"passed": 0, "skipped": 1, "failed": 2}


@cache
def known_features() -> set[str]:
    """Return what a test may name: a row, or each part of a row that has several (`X1.java`)."""
    known = set()
    for name, cell in ROW.findall(INVENTORY.read_text(encoding="utf-8")):
        parts = [entry.strip().rpartition(" ")[0] for entry in cell.split(",")]
        known.update(f"{name}.{part}" if part else name for part in parts)
    return known


def features_of(item: pytest.Item) -> list[str]:
    return [name for mark in item.iter_markers("feature") for name in mark.args]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--feature-results", type=Path, metavar="FILE", help="add this run's results to FILE"
    )


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--feature-results")
    is_worker = hasattr(
        config, "workerinput"
    )  # reports of xdist workers arrive at the main process
    if path is not None and not is_worker:
        config.pluginmanager.register(Results(path), "feature-results")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:  # user properties travel with the reports, also from xdist workers
        item.user_properties.extend(("feature", name) for name in features_of(item))


def pytest_runtest_setup(item: pytest.Item) -> None:
    unknown = set(features_of(item)) - known_features()
    if unknown:
        pytest.fail(f"no such row in docs/FEATURES.md: {', '.join(sorted(unknown))}", pytrace=False)


class Results:
    """Collects the reports of one run; writes at its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        entry = self.tests.setdefault(
            report.nodeid,
            {"outcome": "passed", "features": [], "reason": ""},
        )
        entry["features"] = sorted({v for k, v in report.user_properties if k == "feature"})
        if SEVERITY[report.outcome] > SEVERITY[entry["outcome"]]:
            entry["outcome"] = report.outcome
        if report.outcome == "skipped":
            entry["reason"] = skip_reason(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        # A module that is skipped as a whole or cannot be imported has no test reports.
        if report.outcome == "passed":
            return
        reason = skip_reason(report) if report.outcome == "skipped" else "cannot be collected"
        entry = {"outcome": report.outcome, "features": [], "reason": reason}
        self.tests[report.nodeid] = entry

    def pytest_sessionfinish(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another run may end now too
            before = json.loads(self.path.read_text())["tests"] if self.path.exists() else {}
            self.path.write_text(json.dumps({"tests": before | self.tests}, indent=1))


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail}"
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(report.longrepr)
