"""Runs of tests in a copy of the tree, and what a run says about a fault."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from mutant_lists import Mutant

LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "build", "target", "node_modules", ".hypothesis", ".*_cache"
)
SECONDS_PER_MUTANT = 300
SECONDS_PER_TEST = 120
SECONDS_WITHOUT_FAULTS = 3600
PYTEST = (
    *("-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", "-p", "no:doctest"),
    *("--hypothesis-seed=0", "--tb=short", f"--timeout={SECONDS_PER_TEST}"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # for what is imported before pytest runs
)


class Verdict(Enum):
    """What became of a fault."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    INVALID = "INVALID"  # no test failed and none passed, or the machine ended the run


@dataclass(frozen=True)
class Step:
    """One part of a test (setup, call or teardown), or that it began (start)."""

    test: str
    when: str
    outcome: str = ""
    seconds: float = 0.0
    error: str = ""
    timed_out: bool = False

    def __str__(self) -> str:
        """Return what a reader needs to see whether the right test noticed, and not by accident."""
        why = "it did not end" if self.timed_out else self.error
        where = "" if self.when == "call" else f" in its {self.when}"
        return f"{self.test.rpartition('/')[2]}: {why}{where}"


@dataclass(frozen=True)
class Run:
    """One run of pytest. The exit code is negative after a signal, None after too long a time."""

    code: int | None
    output: str
    steps: Sequence[Step]
    processor_seconds: float

    @property
    def failed(self) -> Step | None:
        """The first test that failed; one that crashes the process or hangs in it has failed, too."""
        found = next((step for step in self.steps if step.outcome == "failed"), None)
        if found is not None or not self.steps or self.steps[-1].when == "teardown":
            return found
        at_work = self.steps[-1].test
        if self.code is None:
            return Step(at_work, "call", "failed", timed_out=True)
        # SIGKILL comes from the machine, for want of memory: that is no proof.
        if self.code < 0 and self.code != -9:
            return Step(at_work, "call", "failed", error=f"signal {-self.code}")
        return None

    @property
    def verdict(self) -> Verdict:
        if self.failed is not None:
            return Verdict.KILLED
        passed = any(step.when == "call" and step.outcome == "passed" for step in self.steps)
        return Verdict.SURVIVED if self.code == 0 and passed else Verdict.INVALID


@dataclass
class Copy:
    """A copy of the tree in which faults are planted, one at a time, and a process that forks its runs."""

    root: Path
    path: Path
    stopped: bool = False
    _process: "subprocess.Popen[str] | None" = field(default=None, repr=False)

    def __post_init__(self) -> None:
        shutil.copytree(self.root, self.path, ignore=LEFT_OUT, symlinks=True)

    def close(self) -> None:
        """End the run that is under way, and take no more."""
        self.stopped = True
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def judge(self, mutant: Mutant) -> Run:
        with self._planted(mutant):
            return self.run_tests(mutant.tests, seconds=SECONDS_PER_MUTANT, first=True)

    def run_tests(self, tests: Sequence[str], *, seconds: float, first: bool = False) -> Run:
        """Run tests as the copy is now; `first` ends the run with the first that fails."""
        # A new one for each run: what a run started may write for a moment after the run was ended.
        temporary = Path(tempfile.mkdtemp(prefix=f"{self.path.name}-tmp-", dir=self.path.parent))
        output, report = temporary / "output", temporary / "report"
        order = {
            "arguments": [*PYTEST, f"--rootdir={self.path}", f"--basetemp={temporary}/t", *tests],
            "first": first,
            "seconds": seconds,
            "output": str(output),
            "report": str(report),
            "temporary": str(temporary),
        }
        try:
            answer = self._ask(json.dumps(order))
            lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else ()
            return Run(
                output=output.read_text(encoding="utf-8", errors="replace"),
                steps=[Step(**json.loads(line)) for line in lines],
                **json.loads(answer),
            )
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _ask(self, order: str) -> str:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("mutant_zygote.py")],
                cwd=self.path,
                env={**os.environ, "PYTHONPATH": str(self.path / "src")},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                text=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            print(order, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the process that forks the runs of tests has ended")
        return answer

    @contextmanager
    def _planted(self, mutant: Mutant) -> Iterator[None]:
        file = self.path / mutant.file
        source = file.read_text(encoding="utf-8")
        with kept_kernels(self.path, file):
            file.write_text(mutant.apply(source), encoding="utf-8")
            forget_bytecode(file)
            try:
                yield
            finally:
                shutil.copy2(self.root / mutant.file, file)
                forget_bytecode(file)


def forget_bytecode(file: Path) -> None:
    """Remove what Python compiled: it compares seconds and sizes, and a fault may differ in neither."""
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()


@contextmanager
def kept_kernels(copy: Path, file: Path) -> Iterator[None]:
    """Keep the machine code as it is: after a fault in a kernel, all that call it are compiled anew."""
    if not any((file.parent / "__pycache__").glob("*.nbi")):
        yield
        return
    kernels = list((copy / "src").rglob("__pycache__/*.nb[ic]"))
    aside = Path(f"{copy}-kernels")
    for kernel in kernels:
        kept = aside / kernel.relative_to(copy)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(kernel, kept)
    try:
        yield
    finally:
        for kernel in (copy / "src").rglob("__pycache__/*.nb[ic]"):
            kernel.unlink()
        for kernel in kernels:
            shutil.copy2(aside / kernel.relative_to(copy), kernel)
        shutil.rmtree(aside)
