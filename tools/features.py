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
STATES = ("proved", "failing", "missing")
ROW = re.compile(r"^\| ([FPX]\d+) \| (.*) \| (.*) \| ([^|]*) \|$")


@dataclass(frozen=True)
class Claim:
    """What has one state: a row of the document, or a part of a row that has several."""

    name: str
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
    def skipped(self) -> int:
        return sum(outcome == "skipped" for outcome in self.tests.values())

    @property
    def shown(self) -> str:
        """Return the state as a person should see it: what did not run here is said."""
        if not self.skipped:
            return self.state
        if self.skipped == len(self.tests):
            return "skipped here"
        return f"{self.state}, {self.skipped} skipped here"


@dataclass(frozen=True)
class Feature:
    """One row of the document. Each of its parts needs a proof of its own."""

    name: str
    title: str
    parts: Mapping[str, Claim]  # one part with no name where the row has no parts

    @property
    def tests(self) -> set[str]:
        return {test for claim in self.parts.values() for test in claim.tests}

    @property
    def state(self) -> str:
        """Return the worst state of its parts: proved means all of it."""
        return max((claim.state for claim in self.parts.values()), key=STATES.index)

    @property
    def cell(self) -> str:
        return ", ".join(f"{part} {claim.state}".strip() for part, claim in self.parts.items())

    @property
    def shown(self) -> str:
        return ", ".join(f"{part} {claim.shown}".strip() for part, claim in self.parts.items())


def parse_states(cell: str) -> dict[str, str]:
    """Read the last column: `proved`, or one state for each part: `java proved, go missing`."""
    states = {}
    for entry in cell.split(", "):
        part, _, state = entry.strip().rpartition(" ")
        if state not in STATES:
            sys.exit(f"docs/FEATURES.md: {cell!r} is no state: say one of {', '.join(STATES)}")
        states[part] = state
    return states


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
            name = row[1]
            claims = {
                part: Claim(full := f"{name}.{part}" if part else name, state, by_name[full])
                for part, state in parse_states(row[4]).items()
            }
            yield Feature(name, row[2], claims)


def print_table(features: list[Feature]) -> None:
    for feature in features:
        files = sorted({test.partition("::")[0] for test in feature.tests})
        proof = f"{len(feature.tests)} tests in {', '.join(files)}" if files else ""
        print(f"{feature.shown:12}  {feature.name:4}  {feature.title:58}  {proof}".rstrip())
    print(f"\n{counted(features)}")


def counted(features: list[Feature]) -> str:
    counts = Counter(feature.state for feature in features)
    return ", ".join(f"{counts[state]} {state}" for state in STATES)


def print_skipped(features: list[Feature]) -> None:
    """Name every claim of which a part did not run here: its state is partly an older one."""
    claims = [claim for feature in features for claim in feature.parts.values() if claim.skipped]
    for claim in claims:
        print(f"  {claim.name}: {claim.skipped} of {len(claim.tests)} tests skipped here")


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
    claims = [claim for feature in features for claim in feature.parts.values()]
    different = [claim for claim in claims if claim.state != claim.documented]
    for claim in different:
        print(
            f"docs/FEATURES.md says {claim.name} is {claim.documented}, the tests say {claim.state}"
        )
    if different:
        print("`make features-update` writes the states of this run into the document")
        return 1
    print(f"features: {counted(features)}, as docs/FEATURES.md says")
    print_skipped(features)
    return 0


def write(document: str, features: list[Feature]) -> None:
    cells = {feature.name: feature.cell for feature in features}

    def with_state(line: str) -> str:
        row = ROW.match(line)
        return f"| {row[1]} | {row[2]} | {row[3]} | {cells[row[1]]} |" if row else line

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
