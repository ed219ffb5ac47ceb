"""Plants one-line faults in copies of the tree and runs the tests nearest to each: does anybody notice?

tools/mutants.py                        every list in tests/mutants
tools/mutants.py tests/mutants/broker.toml --only "long poll"
tools/mutants.py tests/mutants/broker.toml --narrow     names in each entry the one test that noticed
tools/mutants.py --check                only whether each fault still fits the code (part of `make check`)

A list has entries of this form; `find` must stand exactly once in its file:

    [[mutant]]
    name = "a full index file is not synced"
    file = "src/orbitmq/store/index/write.py"
    find = "self._disk.sync(path)"
    put = "pass"
    tests = ["tests/store/index/test_write.py::test_a_full_file_is_synced"]

Exit code 0 when every fault was noticed, 1 when one survived, 2 when a list is wrong.
"""

import argparse
import queue
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from mutant_lists import Mutant, WrongListError, check, is_part, narrow, read_list
from mutant_runs import SECONDS_WITHOUT_FAULTS, Copy, Run, Verdict

ROOT = Path(__file__).parents[1]
# A test that fails so failed because the fault is not what it says it is.
ACCIDENTS = {"ImportError", "ModuleNotFoundError", "NameError", "UnboundLocalError", "SyntaxError"}
# Among many cases of a test the one that notices is named when those before it take this long.
SECONDS_OF_OTHER_CASES = 1.0
PLAIN_CASE = re.compile(r"[\w .,:/+-]+", re.ASCII)

_Work = TypeVar("_Work")


def noticing_test(run: Run) -> str | None:
    """Return what an entry may name instead of whole files, or None where an accident ended the run."""
    failed = run.failed
    if failed is None or failed.when != "call" or failed.timed_out or failed.error in ACCIDENTS:
        return None
    function, _, case = failed.test.partition("[")
    others = [step for step in run.steps if is_part(step.test, function) and step != failed]
    long = sum(step.seconds for step in others) > SECONDS_OF_OTHER_CASES
    return failed.test if case and long and PLAIN_CASE.fullmatch(case[:-1]) else function


def distinct(tests: Iterable[str]) -> list[str]:
    """Return the tests without those that are part of another, each file's beside each other."""
    found: list[str] = []
    for test in sorted(set(tests)):  # a file sorts before its tests, a test before its cases
        if not any(is_part(test, other) for other in found):
            found.append(test)
    return found


class Runner:
    """Judges mutants side by side, each worker in a copy of its own."""

    def __init__(self, root: Path, workers: int, narrowed: dict[str, Path]) -> None:
        self.root, self.workers = root, workers
        self.runs: dict[Mutant, Run] = {}
        self._narrowed = narrowed
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._processor_seconds = 0.0
        self._lock = threading.Lock()

    def run(self, mutants: Sequence[Mutant]) -> int:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(
            prefix="orbitmq-mutants-", ignore_cleanup_errors=True
        ) as folder:
            copies = [Copy(self.root, Path(folder, str(n))) for n in range(self.workers)]
            try:
                if not self._pass_without_faults(copies, mutants):
                    return 2
                without = self._minutes(began)
                # What takes longest first, so that the workers end together.
                ordered = sorted(mutants, key=self._expected_seconds, reverse=True)
                self._side_by_side(copies, ordered, self._judge)
            finally:
                for copy in copies:
                    copy.close()
        return self._sum_up(f"{self._minutes(began)}; without a fault {without}")

    def _side_by_side(
        self, copies: Sequence[Copy], work: Iterable[_Work], do: Callable[[Copy, _Work], None]
    ) -> None:
        waiting: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        for piece in work:
            waiting.put(piece)

        def take(copy: Copy) -> None:
            while not copy.stopped:
                try:
                    piece = waiting.get_nowait()
                except queue.Empty:
                    return
                do(copy, piece)

        with ThreadPoolExecutor(self.workers) as pool:
            try:
                list(pool.map(take, copies))
            except BaseException:
                for copy in copies:
                    copy.close()
                raise

    def _pass_without_faults(self, copies: Sequence[Copy], mutants: Sequence[Mutant]) -> bool:
        """Run every test once as things are: one that fails anyhow proves nothing."""
        tests = distinct(test for mutant in mutants for test in mutant.tests)
        print(f"{len(tests)} tests or files of tests without a fault ...", flush=True)
        shares: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for test in tests:
            shares[Path(test.partition("::")[0]).parts[:2]].append(test)  # they share fixtures
        failures: list[str] = []

        def run_share(copy: Copy, share: list[str]) -> None:
            run = copy.run_tests(share, seconds=SECONDS_WITHOUT_FAULTS)
            with self._lock:
                self._processor_seconds += run.processor_seconds
                for step in run.steps:
                    self._seconds[step.test] += step.seconds
                if run.code != 0:
                    failures.append(run.output)

        self._side_by_side(copies, sorted(shares.values(), key=len, reverse=True), run_share)
        for output in failures:
            print(f"{output}\nThese fail without a fault planted: put that right first.")
        return not failures

    def _expected_seconds(self, mutant: Mutant) -> float:
        return sum(
            seconds
            for test, seconds in self._seconds.items()
            if any(is_part(test, other) for other in mutant.tests)
        )

    def _judge(self, copy: Copy, mutant: Mutant) -> None:
        began = time.monotonic()
        run = copy.judge(mutant)
        if copy.stopped:
            return
        with self._lock:
            self.runs[mutant] = run
            self._processor_seconds += run.processor_seconds
            by = f"  ({run.failed})" if run.failed is not None else ""
            seconds = time.monotonic() - began
            print(f"{run.verdict.value:8}  {seconds:5.1f} s  {mutant}{by}", flush=True)
            if run.verdict is not Verdict.KILLED:
                print(f"{' ' * 19}{mutant.file}: {', '.join(mutant.tests)}")
            if run.verdict is Verdict.INVALID:
                print(run.output)
            test = noticing_test(run)
            if test is not None and (test,) != mutant.tests and mutant.area in self._narrowed:
                narrow(self._narrowed[mutant.area], mutant, test)

    def _minutes(self, began: float) -> str:
        passed = (time.monotonic() - began) / 60
        return f"{passed:.1f} minutes ({self._processor_seconds / 60:.1f} of a processor)"

    def _sum_up(self, times: str) -> int:
        counts = Counter(run.verdict for run in self.runs.values())
        print(
            f"\n{len(self.runs)} faults: {counts[Verdict.KILLED]} killed,"
            f" {counts[Verdict.SURVIVED]} survived, {counts[Verdict.INVALID]} invalid; {times}"
        )
        if counts[Verdict.INVALID]:
            return 2
        return 1 if counts[Verdict.SURVIVED] else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lists", nargs="*", type=Path, help="default: all of tests/mutants")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to copy")
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument(
        "--workers", type=int, default=2, help="copies that are tested side by side"
    )
    parser.add_argument("--check", action="store_true", help="only compare the lists with the code")
    parser.add_argument(
        "--narrow", action="store_true", help="rewrite each entry to name the test that noticed"
    )
    options = parser.parse_args()

    root = options.root.resolve()
    lists = options.lists or sorted((root / "tests" / "mutants").glob("*.toml"))
    mutants = [mutant for path in lists for mutant in read_list(path)]
    try:
        check(mutants, root)
    except WrongListError as error:
        print(error)
        return 2
    if options.check:
        print(f"{len(mutants)} planted faults in {len(lists)} lists fit the code")
        return 0
    chosen = [mutant for mutant in mutants if options.only in str(mutant)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends as by Ctrl-C: with all it started
    narrowed = {path.stem: path for path in lists} if options.narrow else {}
    return Runner(root, options.workers, narrowed).run(chosen)


if __name__ == "__main__":
    sys.exit(main())
