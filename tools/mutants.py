"""Plants one-line faults in copies of the tree and runs the tests nearest to each: does anybody notice?

tools/mutants.py                        every list in tests/mutants
tools/mutants.py tests/mutants/broker.toml --only "long poll"
tools/mutants.py --check                only whether each fault still fits the code (part of `make check`)

A list has entries of this form; `find` must stand exactly once in its file:

    [[mutant]]
    name = "a full index file is not synced"
    file = "src/orbitmq/store/index/write.py"
    find = "self._disk.sync(path)"
    put = "pass"
    tests = ["tests/store/index/test_write.py"]

Exit code 0 when every fault was noticed, 1 when one survived, 2 when a list is wrong.
"""

import argparse
import ast
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "build", "target", "node_modules", ".hypothesis", ".*_cache"
)
# Machine code of a kernel is kept with its callers inside: after a fault in one, all are compiled anew.
COMPILED = (
    "src/orbitmq/format/compiled/",
    "src/orbitmq/wire/fast/compiled/",
    "src/orbitmq/sql92/fast/compiled/",
)
SECONDS_PER_MUTANT = 300
SECONDS_PER_TEST = 120
PYTEST = (
    *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"),
    *("--hypothesis-seed=0", "--tb=line", f"--timeout={SECONDS_PER_TEST}"),
)

FAILED = re.compile(r"^(?:FAILED|ERROR) (?:\S*/)?(\S+)", re.MULTILINE)


class WrongListError(Exception):
    """A list does not fit the code: what is wrong, and where."""


class Verdict(Enum):
    """What became of a fault."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    INVALID = "INVALID"  # nothing ran: the fault breaks an import, or its tests are not there


@dataclass(frozen=True)
class Mutant:
    """One planted fault."""

    area: str
    name: str
    file: str
    find: str
    put: str
    tests: tuple[str, ...]

    def apply(self, source: str) -> str:
        found = source.count(self.find)
        if found != 1:
            raise WrongListError(
                f"{self}: the text to replace stands {found} times in {self.file}, not once."
                " Name another place in tests/mutants, or take the entry out."
            )
        return source.replace(self.find, self.put)

    def __str__(self) -> str:
        return f"{self.area}: {self.name}"


def read_list(path: Path) -> list[Mutant]:
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [
        Mutant(path.stem, **{**entry, "tests": tuple(entry["tests"])})  # a wrong key raises here
        for entry in entries
    ]


def check(mutants: Sequence[Mutant], root: Path) -> None:
    """Raise `WrongListError` for the first entry that does not fit the code."""
    for mutant, count in Counter(mutants).items():
        if count > 1:
            raise WrongListError(f"{mutant} is listed {count} times")
    for mutant in mutants:
        if not (root / mutant.file).is_file():
            raise WrongListError(f"{mutant}: there is no {mutant.file}")
        source = (root / mutant.file).read_text(encoding="utf-8")
        try:
            same = ast.dump(ast.parse(mutant.apply(source))) == ast.dump(ast.parse(source))
        except SyntaxError as error:
            raise WrongListError(f"{mutant}: with it {mutant.file} is no Python: {error}") from None
        if same:
            raise WrongListError(f"{mutant}: it changes nothing")
        missing = [test for test in mutant.tests if not _is_there(root, test)]
        if missing or not mutant.tests:
            raise WrongListError(f"{mutant}: no such test: {', '.join(missing) or 'none is named'}")


def _is_there(root: Path, test: str) -> bool:
    """Tell whether there is such a file, and in it a function of the name."""
    path, _, name = test.partition("::")
    if not name:
        return (root / path).exists()
    function = re.escape(name.partition("[")[0])
    source = (root / path).read_text(encoding="utf-8") if (root / path).is_file() else ""
    return re.search(rf"^(?:async )?def {function}\(", source, re.MULTILINE) is not None


class Copy:
    """A copy of the tree in which faults are planted, one at a time."""

    def __init__(self, root: Path, path: Path) -> None:
        self.root, self.path = root, path
        self.stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        shutil.copytree(root, path, ignore=LEFT_OUT, symlinks=True)

    def stop(self) -> None:
        """End the run that is under way, and take no more."""
        self.stopped = True
        if self._process is not None:
            end_group(self._process)

    def judge(self, mutant: Mutant) -> tuple[Verdict, str]:
        with self._planted(mutant):
            return self._run(mutant)

    def run_tests(self, *arguments: str, seconds: float, **environment: str) -> tuple[int, str]:
        """Return pytest's exit code and its output; a run that hangs is ended and counts as failed."""
        with tempfile.TemporaryFile("w+") as output:
            process = self._process = subprocess.Popen(
                [sys.executable, *PYTEST, f"--basetemp={self.path}-tmp", *arguments],
                cwd=self.path,
                env={**os.environ, "PYTHONPATH": str(self.path / "src"), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = -signal.SIGKILL
            finally:
                end_group(process)
            output.seek(0)
            return code, output.read()

    def _run(self, mutant: Mutant) -> tuple[Verdict, str]:
        with tempfile.TemporaryDirectory(prefix="orbitmq-mutant-kernels-") as fresh:
            environment = {"NUMBA_CACHE_DIR": fresh} if mutant.file.startswith(COMPILED) else {}
            code, output = self.run_tests(
                "-x", *mutant.tests, seconds=SECONDS_PER_MUTANT, **environment
            )
        if code == 0:
            return Verdict.SURVIVED, output
        # Exit code 1 without a failed test is trouble of the machine, not a proof.
        noticed = code < 0 or (code == 1 and FAILED.search(output) is not None)
        return (Verdict.KILLED if noticed else Verdict.INVALID), output

    @contextmanager
    def _planted(self, mutant: Mutant) -> Iterator[None]:
        file = self.path / mutant.file
        source = file.read_text(encoding="utf-8")
        file.write_text(mutant.apply(source), encoding="utf-8")
        forget_bytecode(file)
        try:
            yield
        finally:
            shutil.copy2(self.root / mutant.file, file)  # with its time: kernels stay compiled
            forget_bytecode(file)


def forget_bytecode(file: Path) -> None:
    """Remove what Python compiled: it compares seconds and sizes, and a fault may differ in neither."""
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()


def noticed_by(output: str) -> str:
    """Return the first test that failed: whether it is the right one, a reader sees."""
    failed = FAILED.search(output)
    return failed[1] if failed else "the run did not end"


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End whatever a test run left behind: brokers, JVMs, writers."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Runner:
    """Judges mutants side by side, each worker in a copy of its own."""

    def __init__(self, root: Path, workers: int) -> None:
        self.root, self.workers = root, workers
        self.verdicts: dict[Mutant, Verdict] = {}
        self._printing = threading.Lock()

    def run(self, mutants: Sequence[Mutant]) -> int:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(
            prefix="orbitmq-mutants-", ignore_cleanup_errors=True
        ) as folder:
            copies = [Copy(self.root, Path(folder, str(n))) for n in range(self.workers)]
            with ThreadPoolExecutor(self.workers) as pool:
                try:
                    if not self._pass_without_faults(pool, copies, mutants):
                        return 2
                    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
                    for mutant in mutants:
                        waiting.put(mutant)
                    list(pool.map(self._work, copies, [waiting] * self.workers))
                except BaseException:
                    for copy in copies:
                        copy.stop()
                    raise
        return self._sum_up(time.monotonic() - began)

    def _pass_without_faults(
        self, pool: ThreadPoolExecutor, copies: Sequence[Copy], mutants: Sequence[Mutant]
    ) -> bool:
        """Run every test once as things are: one that fails anyhow proves nothing."""
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        print(f"{len(tests)} tests or files of tests without a fault ...", flush=True)

        def run_share(number: int) -> tuple[int, str]:
            share = tests[number :: self.workers]
            return copies[number].run_tests(*share, seconds=1800) if share else (0, "")

        passed = True
        for code, output in pool.map(run_share, range(self.workers)):
            if code != 0:
                passed = False
                print(f"{output}\nThese fail without a fault planted: put that right first.")
        return passed

    def _work(self, copy: Copy, waiting: queue.SimpleQueue[Mutant]) -> None:
        while not copy.stopped:
            try:
                mutant = waiting.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            verdict, output = copy.judge(mutant)
            self.verdicts[mutant] = verdict
            with self._printing:
                by = f"  ({noticed_by(output)})" if verdict is Verdict.KILLED else ""
                seconds = time.monotonic() - began
                print(f"{verdict.value:8}  {seconds:5.1f} s  {mutant}{by}", flush=True)
                if verdict is not Verdict.KILLED:
                    print(f"{' ' * 19}{mutant.file}: {', '.join(mutant.tests)}")
                if verdict is Verdict.INVALID:
                    print(output)

    def _sum_up(self, seconds: float) -> int:
        counts = Counter(self.verdicts.values())
        print(
            f"\n{len(self.verdicts)} faults: {counts[Verdict.KILLED]} killed,"
            f" {counts[Verdict.SURVIVED]} survived, {counts[Verdict.INVALID]} invalid;"
            f" {seconds / 60:.1f} minutes"
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
    return Runner(root, options.workers).run(chosen)


if __name__ == "__main__":
    sys.exit(main())
