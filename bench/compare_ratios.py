"""What a comparison of two revisions says: ratios of each round, their median and their spread."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness import Row, markdown, value_text


@dataclass(frozen=True)
class Figure:
    """One number of a scenario: its key in the row that the scenario prints, and how it is shown."""

    key: str
    what: str
    unit: str = "/s"
    more_is_better: bool = True


@dataclass(frozen=True)
class Comparison:
    """A figure of both revisions, measured by turns: round i is `a[i]`, then `b[i]`."""

    figure: Figure
    a: Sequence[float]
    b: Sequence[float]

    def __post_init__(self) -> None:
        if not self.a or len(self.a) != len(self.b):
            raise ValueError(f"{self.figure.what}: {len(self.a)} and {len(self.b)} rounds")
        if min(*self.a, *self.b) <= 0:
            raise ValueError(f"{self.figure.what}: a figure that is not above 0")

    @property
    def ratios(self) -> list[float]:
        """Return how many times better B was than A in each round, whatever the unit."""
        pairs = zip(self.a, self.b, strict=True)
        return [b / a if self.figure.more_is_better else a / b for a, b in pairs]

    @property
    def ratio(self) -> float:
        """Return the median of the rounds: one that met something else does not move it."""
        return statistics.median(self.ratios)

    def row(self) -> Row:
        """Return everything, for a program that reads it."""
        return {
            "what": self.figure.what,
            "unit": self.figure.unit,
            "more_is_better": self.figure.more_is_better,
            "a": list(self.a),
            "b": list(self.b),
            "a_median": statistics.median(self.a),
            "b_median": statistics.median(self.b),
            "ratio": self.ratio,
            "ratio_min": min(self.ratios),
            "ratio_max": max(self.ratios),
        }


def table(comparisons: Iterable[Comparison], name_a: str, name_b: str) -> str:
    """Return a Markdown table, one line for each figure."""
    rows = [("scenario", f"A {name_a}", f"B {name_b}", "B/A", "spread")]
    for each in comparisons:
        medians = (
            value_text(statistics.median(side), each.figure.unit) for side in (each.a, each.b)
        )
        spread = f"{min(each.ratios):.2f}..{max(each.ratios):.2f}"
        rows.append((each.figure.what, *medians, f"{each.ratio:.2f}x", spread))
    return markdown(rows)


def slower(comparisons: Iterable[Comparison], limit: float) -> list[Comparison]:
    """Return what fell below a limit: its median did, one bad round does not count."""
    return [each for each in comparisons if each.ratio < limit]
