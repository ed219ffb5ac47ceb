"""The scenarios of `compare.py`: parts of the other benchmarks, each in a process that prints one row."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from compare_ratios import Figure
from harness import part_command

BENCH = Path(__file__).parent
DEPTHS = (1, 4, 16, 64, 256)
SIZES = ("small", "full")


@dataclass(frozen=True)
class Scenario:
    """A part of a benchmark with its options, and the figures that are taken from its row."""

    name: str
    script: str
    part: str
    figures: Sequence[Figure]
    options: Mapping[str, object] = field(default_factory=dict)
    full: str = "full"  # what the script calls that size

    def arguments(self, size: str, root: Path) -> list[str]:
        """Return what Python is called with."""
        size = self.full if size == "full" else "smoke"
        return part_command(BENCH / self.script, self.part, size=size, root=root, **self.options)


def _append(name: str, **options: object) -> Scenario:
    return Scenario(name, "bench_store.py", "append", [Figure("rate", name)], options)


def _recovery(name: str, **options: object) -> Scenario:
    figures = [Figure("rate", name, "MB/s")]
    return Scenario(name, "bench_store.py", "recover", figures, options)


def _sends(depth: int) -> Scenario:
    name, key = f"sends, {depth} in flight", f"sends, async, {depth} in flight"
    figures = [
        Figure(key, name),
        Figure(f"{key}, CPU s a million", f"{name}, CPU s a million", "s", more_is_better=False),
    ]
    return Scenario(name, "bench_broker.py", "raw", figures, {"depth": depth}, "turn")


SCENARIOS = (
    _append("append one by one"),
    _append("append in batches of 64", batch=64),
    _append("append producers' batches of 64", batch=64, producer=1),
    *map(_sends, DEPTHS),
    Scenario(
        "pulls of a backlog",
        "bench_broker.py",
        "backlog",
        [Figure("backlog, raw pulls", "pulls of a backlog")],
        full="turn",
    ),
    _recovery("recovery of a killed store"),
    _recovery("recovery of a log alone", alone=1),
    Scenario(
        "broker start",
        "bench_broker.py",
        "start",
        [
            Figure("cold start to first send", "broker start to first send", "s", False),
            Figure("idle memory, anonymous", "broker start, idle memory", "MB", False),
        ],
        full="turn",
    ),
    Scenario(
        "Spark",
        "bench_spark.py",
        "turn",
        [
            Figure("rebuild", "Spark rebuild", "MB/s"),
            Figure("count", "Spark count", "rows/s"),
            Figure("read", "Spark read", "rows/s"),
        ],
    ),
)


def chosen(patterns: Iterable[str]) -> list[Scenario]:
    """Return the scenarios whose name, or the name of a figure, has one of the patterns in it."""
    wanted = [f"*{pattern.lower()}*" for pattern in patterns]
    return [each for each in SCENARIOS if any(_fits(each, pattern) for pattern in wanted)]


def _fits(scenario: Scenario, pattern: str) -> bool:
    names = [scenario.name, *(figure.what for figure in scenario.figures)]
    return any(fnmatchcase(name.lower(), pattern) for name in names)
