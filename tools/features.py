"""Compares docs/FEATURES.md with what the tests proved.

tools/features.py                     print the inventory with the tests behind each row
tools/features.py --summary           print what was run and what was skipped, and why
tools/features.py --check             fail when the document's states differ from the results
tools/features.py --write             write the states into the document
"""

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "FEATURES.md"
ROW = re.compile(r"^\| ([FPX]\d+) \| (.*) \| (.*) \| (proved|failing|missing) \|$")


@dataclass(frozen=True)
class Feature:
    """One row of the document, and the outcome of each test that names it."""

    name: str
    title: str
    documented: str
    tests: Mapping[str, str]

    @property
    def state(self) -> str:
        """Return what the results say; tests that were all skipped here leave what is documented."""
        outcomes = set(self.tests.values())
        if "failed" in outcomes:
            return "failing"
        if "passed" in outcomes:
            return "proved"
        return self.documented if outcomes else "missing"

    @property
    def shown(self) -> str:
        return "skipped here" if set(self.tests.values()) == {"skipped"} else self.state


def read_tests(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        sys.exit(f"{path} is not there: run `make test` first")
    tests: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["tests"]
    return tests


def read_features(document: str, tests: Mapping[str, Mapping[str, Any]]) -> Iterator[Feature]:
    by_name: dict[str, dict[str, str]] = defaultdict(dict)
    for test, entry in tests.items():
        for name in entry["features"]:
            by_name[name][test] = entry["outcome"]
    for line in document.splitlines():
        if row := ROW.match(line):
            yield Feature(row[1], row[2], row[4], by_name[row[1]])


def print_table(features: list[Feature]) -> None:
    for feature in features:
        files = sorted({test.partition("::")[0] for test in feature.tests})
        proof = f"{len(feature.tests)} tests in {', '.join(files)}" if files else ""
        print(f"{feature.shown:12}  {feature.name:4}  {feature.title:58}  {proof}".rstrip())
    counts = Counter(feature.shown for feature in features)
    print("\n" + ", ".join(f"{count} {state}" for state, count in sorted(counts.items())))


def print_summary(tests: Mapping[str, Mapping[str, Any]]) -> None:
    counts = Counter(entry["outcome"] for entry in tests.values())
    print(
        f"\ntests: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
    )
    reasons = Counter(
        (test.partition("::")[0], entry["reason"])
        for test, entry in tests.items()
        if entry["outcome"] == "skipped"
    )
    for (file, reason), count in sorted(reasons.items()):
        print(f"  skipped {count} in {file}: {reason}")


def check(features: list[Feature]) -> int:
    different = [feature for feature in features if feature.state != feature.documented]
    for feature in different:
        print(
            f"docs/FEATURES.md says {feature.name} is {feature.documented}, the tests say {feature.state}"
        )
    if different:
        print("`make features-update` writes the states of this run into the document")
        return 1
    counts = Counter(feature.state for feature in features)
    print(
        f"features: {counts['proved']} proved, {counts['failing']} failing,"
        f" {counts['missing']} missing, as docs/FEATURES.md says"
    )
    return 0


def write(document: str, features: list[Feature]) -> None:
    states = {feature.name: feature.state for feature in features}

    def with_state(line: str) -> str:
        row = ROW.match(line)
        return f"| {row[1]} | {row[2]} | {row[3]} | {states[row[1]]} |" if row else line

    text = "\n".join(with_state(line) for line in document.splitlines()) + "\n"
    DOCUMENT.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "features.json")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()

    tests = read_tests(options.results)
    document = DOCUMENT.read_text(encoding="utf-8")
    features = list(read_features(document, tests))
    if options.summary:
        print_summary(tests)
    if options.write:
        write(document, features)
    if options.check:
        return check(features)
    if not (options.summary or options.write):
        print_table(features)
    return 0


if __name__ == "__main__":
    sys.exit(main())
