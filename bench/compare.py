"""Two revisions of this repository by turns: is B slower than A anywhere?

    python bench/compare.py REV_A REV_B [--rounds 3] [--only PATTERN ...] [--size small|full]
    python bench/compare.py v0.1.0 HEAD                        everything, about half an hour
    python bench/compare.py main HEAD --only sends append      what the send path does
    python bench/compare.py main HEAD --fail-below 0.95        exit code 1 if a median falls below
    python bench/compare.py main HEAD --size small             a minute: does it run at all?

Both are checked out below a temporary directory and their kernels compiled; then each scenario runs A B A B
..., every run in fresh processes on fresh files, checked for right results. The scenarios are those of this
tree, whatever the revisions have, so an old revision can be compared (`doors.py` knows what moved).

B/A says how many times better B is: rates B/A; seconds and bytes A/B. Below 1 B is worse. It is the
median of the rounds' own ratios; spread is the smallest and the largest of them. A ratio means little while 1
lies within the spread: take more rounds, on a machine that does nothing else.

Exit codes: 0 fine, 1 below --fail-below or a scenario that failed, 2 a revision that cannot be measured.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import harness
from compare_ratios import Comparison, slower, table
from compare_scenarios import SCENARIOS, SIZES, Scenario, chosen
from compare_trees import FailedError, RefusedError, Revision, Tree, check_out, resolve

LOAD_MAX = 2.0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def load_note(load: float) -> str | None:
    """Return what is to be said about the machine before anything is measured."""
    if load <= LOAD_MAX:
        return None
    return f"The load of this machine was {load:.1f} before the start: the figures are of little worth."


class Turns:
    """Runs scenarios over two trees by turns, and keeps what failed."""

    def __init__(self, trees: Sequence[Tree], size: str, rounds: int, scratch: Path) -> None:
        self._trees, self._size, self._rounds, self._scratch = trees, size, rounds, scratch
        self.failures: list[str] = []

    def compare(self, scenario: Scenario) -> list[Comparison]:
        """Return the scenario's comparisons; none if it failed with either revision."""
        rows: list[list[harness.Row]] = [[], []]
        try:
            for number in range(self._rounds):
                for tree, side in zip(self._trees, rows, strict=True):
                    say(f"{scenario.name}: round {number + 1}, {tree.revision.name}")
                    side.append(self._run(tree, scenario))
        except FailedError as error:
            self.failures.append(f"{scenario.name}, {tree.revision.name}: {error}")
            say(f"  {scenario.name} failed; its other rounds are left out")
            return []
        return [
            Comparison(figure, *([row[figure.key] for row in side] for side in rows))
            for figure in scenario.figures
        ]

    def _run(self, tree: Tree, scenario: Scenario) -> harness.Row:
        with harness.scratch(self._scratch, "run") as root:
            row = harness.last_row(tree.run(scenario.arguments(self._size, root)))
        missing = [figure.key for figure in scenario.figures if not row.get(figure.key)]
        if missing:
            raise FailedError(f"no figure for {', '.join(missing)} in {row}")
        return row


def _trees(revisions: Sequence[Revision], directory: Path) -> Iterator[Tree]:
    for side, revision in zip("ab", revisions, strict=True):
        say(f"checking out {revision.name} ({revision.short}) and compiling its kernels")
        try:
            yield check_out(revision, directory / side)
        except FailedError as error:
            raise RefusedError(f"{revision.name} does not run here: {error}") from error


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rev_a", metavar="REV_A", help="the one to compare with")
    parser.add_argument("rev_b", metavar="REV_B", help="the one that is looked at")
    parser.add_argument("--rounds", type=_rounds, default=3, help="turns of each (3)")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="PATTERN",
        default=["*"],
        help="scenarios with this in their name, * and ? as in file names; all: "
        + "; ".join(scenario.name for scenario in SCENARIOS),
    )
    parser.add_argument("--size", choices=SIZES, default="full", help="how much work a run does")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--fail-below", type=float, metavar="X", help="exit code 1 when a median ratio is below X"
    )
    parser.add_argument("--directory", type=Path, help="where to work (full size: 6 GB of disk)")
    arguments = parser.parse_args(words)
    if not chosen(arguments.only):
        parser.error(f"no scenario has {' or '.join(arguments.only)} in its name")
    return arguments


def _rounds(text: str) -> int:
    rounds = int(text)
    if rounds < 1:
        raise argparse.ArgumentTypeError("at least one round")
    return rounds


def main(words: Sequence[str] | None = None) -> int:
    arguments = _arguments(words)
    # Whoever ends this program ends what it started: `finally` runs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    load = os.getloadavg()[0]
    if note := load_note(load):
        say(note)
    try:
        revisions = [resolve(name) for name in (arguments.rev_a, arguments.rev_b)]
        with tempfile.TemporaryDirectory(
            prefix="orbitmq-compare-", dir=arguments.directory
        ) as directory:
            trees = list(_trees(revisions, Path(directory)))
            turns = Turns(trees, arguments.size, arguments.rounds, Path(directory))
            found = [
                comparison
                for scenario in chosen(arguments.only)
                for comparison in turns.compare(scenario)
            ]
    except RefusedError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        say("stopped; nothing that was started is left")
        return 128 + signal.SIGINT
    return _report(arguments, revisions, found, turns.failures, load)


def _report(
    arguments: argparse.Namespace,
    revisions: Sequence[Revision],
    found: Sequence[Comparison],
    failures: Sequence[str],
    load: float,
) -> int:
    below = slower(found, arguments.fail_below) if arguments.fail_below is not None else []
    if arguments.output == "json":
        about = {"machine": harness.machine(), "load": load, "size": arguments.size}
        sides = {
            side: {"name": revision.name, "commit": revision.commit}
            for side, revision in zip("ab", revisions, strict=True)
        }
        rows = [comparison.row() for comparison in found]
        result = {**about, "rounds": arguments.rounds, **sides, "figures": rows}
        result |= {"failures": list(failures), "below": [each.figure.what for each in below]}
        print(json.dumps(result, indent=1))
    else:
        print(harness.machine())
        print(table(found, *(revision.short for revision in revisions)))
        if note := load_note(load):
            print(note)
        if arguments.rounds < 3:
            print("Fewer than three rounds: the spread says nothing yet.")
    for failure in failures:
        say(f"failed: {failure}")
    for each in below:
        say(f"below {arguments.fail_below:g}: {each.figure.what}, {each.ratio:.2f}x")
    return 1 if failures or below else 0


if __name__ == "__main__":
    sys.exit(main())
