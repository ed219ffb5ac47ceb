"""Forks a process for each run of tests, so that pytest, numpy and numba are imported once for all runs.

Each line of its input asks for one run, each line of its output says what came of it (both JSON, see
`mutant_runs.py`). A run is over when pytest has ended and whatever it started has been killed. Nothing of
the product is imported before the fork: a fault is planted between two of them.
"""

import ctypes
import gc
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

# Of these the extras may be missing. Not pyarrow, and not what imports it: it begins a thread.
SHARED = (
    *("_pytest.assertion.rewrite", "_pytest.pytester", "pytest_timeout", "hypothesis.strategies"),
    *("hypothesis.stateful", "hypothesis.internal.conjecture.engine", "numpy", "numpy.testing"),
    *("numba", "numba.extending", "msgspec", "zlib_ng.zlib_ng", "lz4.frame", "zstandard", "lmdb"),
    *("py4j.java_gateway", "cloudpickle"),
    *("asyncio", "concurrent.futures.process", "multiprocessing.pool", "ssl", "http.server"),
)
PR_SET_CHILD_SUBREAPER = 36


class Watcher:
    """A plugin of pytest that writes down each test as it begins and ends."""

    def __init__(self, report: Path, *, first: bool) -> None:
        self._file = report.open("a", encoding="utf-8")
        self._first = first

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(test=nodeid, when="start")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: "pytest.CallInfo[None]") -> Any:
        report = yield
        report.error = call.excinfo.typename if call.excinfo is not None else ""
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._write(
            test=report.nodeid,
            when=report.when,
            outcome=report.outcome,
            seconds=report.duration,
            error=getattr(report, "error", ""),
            timed_out="from pytest-timeout" in report.longreprtext,
        )
        if report.failed and self._first:
            # What fixtures would still stop and remove, the end of the run kills and removes.
            os._exit(1)

    def _write(self, **fields: object) -> None:
        print(json.dumps(fields), file=self._file, flush=True)


def prepare() -> None:
    """Import what every run needs; let no thread begin, for a fork copies only the one that calls it."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in SHARED:
        with suppress(ImportError):
            importlib.import_module(name)
    with suppress(ImportError):
        import numba

        numba.njit(lambda number: number + 1)(1)  # loads what numba loads at the first kernel
    del os.environ["OPENBLAS_NUM_THREADS"]
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
        sys.exit("a module that runs share has begun a thread: take it out of SHARED")
    if any(name.partition(".")[0] == "orbitmq" for name in sys.modules):
        sys.exit("a module that runs share imports the product: take it out of SHARED")
    gc.collect()
    gc.freeze()


def run_in_child(order: dict[str, Any]) -> NoReturn:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ["TMPDIR"], tempfile.tempdir = order["temporary"], None
    # What drawn inputs found with one fault is not tried first with the next.
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{order['temporary']}/hypothesis"
    sys.argv = ["pytest", *order["arguments"]]
    code = 3
    try:
        watcher = Watcher(Path(order["report"]), first=order["first"])
        code = pytest.main(order["arguments"], plugins=[watcher])
    finally:
        sys.stdout.flush()
        os._exit(code)


def reap(*, block: bool) -> Iterator[tuple[int, int]]:
    """Take what ended: the run itself, and processes whose parents ended before them."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, 0 if block else os.WNOHANG))[0]:
            yield ended
            block = False


def wait(pid: int, seconds: float) -> int | None:
    """Return the exit code of a run, or None when it takes too long."""
    end = time.monotonic() + seconds
    while True:
        for ended, status in reap(block=False):
            if ended == pid:
                return os.waitstatus_to_exitcode(status)
        left = end - time.monotonic()
        if left <= 0:
            return None
        signal.sigtimedwait({signal.SIGCHLD}, left)


def children() -> list[int]:
    return [
        int(status.parent.name)
        for status in Path("/proc").glob("[0-9]*/stat")
        if _parent(status) == os.getpid()
    ]


def _parent(status: Path) -> int:
    try:
        return int(
            status.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[1]
        )
    except (FileNotFoundError, ProcessLookupError):
        return 0


def end_children() -> None:
    """End whatever a run left behind: brokers, JVMs, writers, in whichever session."""
    while left := children():
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for _ in reap(block=True):
            pass


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def stop(*_: object) -> NoReturn:
    end_children()
    os._exit(1)


def main() -> None:
    sys.path[0] = str(Path.cwd())  # as `python -m pytest` has it
    prepare()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    signal.signal(signal.SIGTERM, stop)
    for line in sys.stdin:
        order = json.loads(line)
        before = processor_seconds()
        pid = os.fork()
        if pid == 0:
            run_in_child(order)
        code = wait(pid, order["seconds"])
        end_children()
        answer = {"code": code, "processor_seconds": processor_seconds() - before}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
