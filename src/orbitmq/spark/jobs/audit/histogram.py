"""Histogram: sizes or times of many messages in fixed steps, so that tasks can count and the driver adds up.

Numbers below 64 have a step each; above, each power of two has 64 of them. So a percentile is exact below
128 and else too high by at most one part in 64. Least, greatest, sum and count are exact.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from orbitmq.format.columns import Ints

STEPS: Final = 64
_STEP_BITS: Final = 6
_VALUE_MAX: Final = 2**52  # what a double holds exactly


class Spread(NamedTuple):
    """What there is to say about many numbers. Without any, all of them are None."""

    values: int  # how many
    least: int | None
    p50: int | None
    p90: int | None
    p99: int | None
    p999: int | None
    most: int | None
    mean: float | None
    early: int  # times that would be negative: clocks that disagree; not among the others


class Bar(NamedTuple):
    """So many numbers lie in [low, high)."""

    low: int
    high: int
    values: int


@dataclass(slots=True)
class Histogram:
    """Counts of numbers. Not thread-safe."""

    counts: dict[int, int] = field(default_factory=dict)  # by step
    count: int = 0
    total: int = 0
    least: int | None = None
    most: int | None = None
    early: int = 0

    def add(self, numbers: Ints) -> None:
        """Count numbers; negative ones only as such."""
        values = numbers[numbers >= 0]
        self.early += len(numbers) - len(values)
        if not len(values):
            return
        steps, counts = np.unique(_steps(values), return_counts=True)
        for step, count in zip(steps.tolist(), counts.tolist(), strict=True):
            self.counts[step] = self.counts.get(step, 0) + count
        self.count += len(values)
        self.total += int(values.sum(dtype=np.int64))
        self._widen(int(values.min()), int(values.max()))

    def merge(self, other: "Histogram") -> None:
        """Add what another one counted."""
        for step, count in other.counts.items():
            self.counts[step] = self.counts.get(step, 0) + count
        self.count += other.count
        self.total += other.total
        self.early += other.early
        if other.least is not None and other.most is not None:
            self._widen(other.least, other.most)

    def _widen(self, least: int, most: int) -> None:
        self.least = least if self.least is None else min(self.least, least)
        self.most = most if self.most is None else max(self.most, most)

    def quantile(self, share: float) -> int | None:
        """Return a number that this share of all numbers does not pass; see the module for how exact."""
        if self.most is None:
            return None
        wanted, seen = max(int(np.ceil(share * self.count)), 1), 0
        for step in sorted(self.counts):
            seen += self.counts[step]
            if seen >= wanted:
                return min(_step_end(step) - 1, self.most)
        return self.most

    def spread(self) -> Spread:
        """Return the figures that a report shows."""
        p50, p90, p99, p999 = map(self.quantile, (0.5, 0.9, 0.99, 0.999))
        mean = self.total / self.count if self.count else None
        return Spread(self.count, self.least, p50, p90, p99, p999, self.most, mean, self.early)

    def bars(self) -> list[Bar]:
        """Return the counts by powers of two, from the least to the greatest without a gap."""
        found: dict[int, int] = {}
        for step, count in self.counts.items():
            power = _step_start(step).bit_length()
            found[power] = found.get(power, 0) + count
        if not found:
            return []
        powers = range(min(found), max(found) + 1)
        return [Bar(1 << (p - 1) if p else 0, 1 << p, found.get(p, 0)) for p in powers]


def _steps(values: Ints) -> Ints:
    clipped = np.minimum(values, _VALUE_MAX)
    # frexp: value = fraction * 2**exponent, with a fraction from 0.5 on.
    shifts = np.maximum(np.frexp(clipped.astype(np.float64))[1] - 1 - _STEP_BITS, 0).astype(
        np.int64
    )
    steps: Ints = shifts * STEPS + (clipped >> shifts)
    return steps


def _step_start(step: int) -> int:
    shift = max(step // STEPS - 1, 0)
    return (step - shift * STEPS) << shift


def _step_end(step: int) -> int:
    shift = max(step // STEPS - 1, 0)
    return (step - shift * STEPS + 1) << shift
