"""What an experiment is: a claim of the documents, figures of this machine, checks, and a sentence of both.

An experiment measures, and checks what it measured: a fast way that loses a byte is wrong, not fast. Its
sentence is made from the figures alone, so it can say that the document is wrong here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

CLEAR: Final = 1.1
"""Two figures that differ by less than a tenth are called equal: runs differ by as much."""

Progress = Callable[[int, int], None]
"""Takes how many steps are done, and of how many."""


class Size(StrEnum):
    """How much work: `small` to see that it works, `full` for figures that mean something."""

    SMALL = "small"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was measured. A figure is None where it was left out; the note says why."""

    name: str
    figures: Mapping[str, float | None]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """Something that has to be so, whatever the speed."""

    what: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was seen beside what the document says. `holds` is None where this machine cannot tell."""

    holds: bool | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Which figures, of one unit, are drawn: bars beside each other for each row.

    With `x` the first of them is drawn over that one, as a line for each name of rows.
    """

    figures: tuple[str, ...]
    x: str | None = None
    logarithmic: bool = False


@dataclass(frozen=True, slots=True)
class Findings:
    """What an experiment comes back with. `units` has the unit of each figure, in the order of columns."""

    units: Mapping[str, str]
    rows: Sequence[Row]
    verdict: Verdict
    chart: Chart


class Lab:
    """What an experiment works with: an empty directory, a size, and somebody to tell how far it is."""

    def __init__(self, directory: Path, size: Size, progress: Progress) -> None:
        self.directory, self.size = directory, size
        self.checks: list[Check] = []
        self._progress = progress
        self._done, self._total = 0, 1

    def steps(self, total: int) -> None:
        """Say how many calls of `step` there will be."""
        self._done, self._total = 0, total
        self._progress(0, total)

    def step(self) -> None:
        self._done += 1
        self._progress(self._done, self._total)

    def check(self, what: str, ok: bool) -> None:
        self.checks.append(Check(what, ok))


@dataclass(frozen=True, slots=True)
class Experiment:
    """A claim and the function that looks whether it is so."""

    name: str
    features: tuple[str, ...]  # rows of docs/FEATURES.md
    about: str  # one line for the menu
    claim: (
        str  # what the documents say, in our words; ends the sentence "the documents say that ..."
    )
    run: Callable[[Lab], Findings]


@dataclass(frozen=True, slots=True)
class Result:
    """One experiment that was run."""

    experiment: Experiment
    size: Size
    seconds: float
    findings: Findings
    checks: Sequence[Check]
    machine: Mapping[str, object] = field(default_factory=dict)

    @property
    def all_ok(self) -> bool:
        return bool(self.checks) and all(check.ok for check in self.checks)

    def value(self) -> dict[str, Any]:
        """Return everything as JSON shows it."""
        units = self.findings.units
        return {
            "name": self.experiment.name,
            "features": list(self.experiment.features),
            "size": self.size.value,
            "claim": self.experiment.claim,
            "rows": [
                {
                    "name": row.name,
                    "figures": [
                        {"name": name, "value": row.figures.get(name), "unit": unit}
                        for name, unit in units.items()
                    ],
                    "note": row.note,
                }
                for row in self.findings.rows
            ],
            "checks": [{"what": check.what, "ok": check.ok} for check in self.checks],
            "ok": self.all_ok,
            "holds": self.findings.verdict.holds,
            "sentence": self.findings.verdict.sentence,
            "seconds": round(self.seconds, 3),
            "machine": dict(self.machine),
        }


def verdict(seen: str, claim: str, parts: Mapping[str, bool | None]) -> Verdict:
    """Return the closing sentence: what was seen, what the documents say, and which part of that holds here.

    None stands for a part that this run cannot tell.
    """
    holds = None if None in parts.values() else all(parts.values())
    if False in parts.values():
        holds = False
    return Verdict(holds, f"Seen: {seen}; the documents say that {claim}: {_ending(parts)}.")


def _ending(parts: Mapping[str, bool | None]) -> str:
    words = {True: "it holds here", False: "it does not hold here", None: "this run cannot tell"}
    by_answer = {
        answer: [part for part, found in parts.items() if found is answer] for answer in words
    }
    given = [answer for answer in words if by_answer[answer]]
    if len(given) == 1:
        return words[given[0]]
    return ", ".join(f"{words[answer]} for {' and '.join(by_answer[answer])}" for answer in given)


def clearly_more(one: float, other: float) -> bool:
    """Tell whether one figure is larger than the other by more than runs differ."""
    return one > other * CLEAR


def times(one: float, other: float) -> str:
    """Return how many times one figure is the other, for a sentence."""
    ratio = one / other if other else float("inf")
    return f"{ratio:.1f} times" if ratio < 100 else f"{ratio:.0f} times"


def figure_text(value: float | None) -> str:
    """Return a figure with three digits that count, and thousands apart."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"
