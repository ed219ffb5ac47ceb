"""Jobs on a cluster of Spark that are killed at random moments: their driver, an executor, a task.

with JobProcess(...) as job: ...     the real thing: a command or a query, its JVM, executors, Python workers
kill_often(cluster, chance, kills, start)
"""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Self

from spark.standalone import StandaloneCluster

DRIVER, EXECUTOR, TASK = KINDS = ("driver", "executor", "task")
SECONDS = 240.0
PATIENT = {"spark.task.maxFailures": "100", "spark.stage.maxConsecutiveAttempts": "100"}
"""A task may fail as often as it is killed."""
_EXECUTOR_MAIN = b"CoarseGrainedExecutorBackend"


class JobProcess:
    """A driver as a process, with all that it started. Not thread-safe."""

    def __init__(
        self, command: Sequence[object], directory: Path, environment: Mapping[str, str]
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / "job.log"
        with self._log.open("ab") as output:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                cwd=directory,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def is_over(self) -> bool:
        """Return whether it has ended, well."""
        code = self.process.poll()
        assert code in (None, 0), self.said[-5000:]
        return code is not None

    def wait(self) -> None:
        """Wait for its end, which must be a good one."""
        wait_for(self.is_over, lambda: self.said[-5000:])

    def kill(self) -> None:
        """Kill the driver's Python and its JVM at once, as a machine does that loses its power."""
        wait_for(lambda: not [kill(pid) for pid in _session(self.process.pid)])
        self.process.wait()


def wait_for(holds: Callable[[], bool], why: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, why()
        time.sleep(0.01)


def kill(pid: int) -> bool:
    """Kill a process; return whether it was there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


Start = Callable[[], AbstractContextManager[JobProcess]]
Moment = Callable[[JobProcess], None]


def kill_often(
    cluster: StandaloneCluster, chance: random.Random, kills: int, start: Start, moment: Moment
) -> Counter[str]:
    """Start a job, and kill something of it at a moment, until there were so many kills.

    After the kill of an executor or a task the job has to go on by itself; `start` gives one that goes on
    after a driver's. `moment` returns when something shall be killed, or the job has ended.
    """
    waiting = [KINDS[number % len(KINDS)] for number in range(kills)]
    chance.shuffle(waiting)
    done: Counter[str] = Counter()
    while waiting:
        with start() as job:
            while waiting:
                moment(job)
                if job.is_over():
                    break
                kind = waiting[-1]
                if _kill_one(kind, cluster, job, chance):
                    done[waiting.pop()] += 1
                if kind == DRIVER:
                    break
    return done


def _kill_one(
    kind: str, cluster: StandaloneCluster, job: JobProcess, chance: random.Random
) -> bool:
    """Return whether there was one."""
    if kind == DRIVER:
        job.kill()
        return True
    found = executors(cluster) if kind == EXECUTOR else tasks(cluster)
    return bool(found) and kill(chance.choice(found))


def executors(cluster: StandaloneCluster) -> list[int]:
    """Return the executors that a cluster runs."""
    below = _below([process.pid for process in cluster.processes])
    return [pid for pid in below if _EXECUTOR_MAIN in _command(pid)]


def tasks(cluster: StandaloneCluster) -> list[int]:
    """Return the Python workers of executors: those that others are forked from are none."""
    parents = set(_parents().values())
    return [pid for pid in _below(executors(cluster)) if pid not in parents]


def _below(roots: Sequence[int]) -> list[int]:
    parents, found = _parents(), set(roots)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - set(roots))


def _parents() -> dict[int, int]:
    return {pid: int(fields[1]) for pid, fields in _processes() if fields[0] != "Z"}


def _session(leader: int) -> Iterator[int]:
    for pid, fields in _processes():
        if int(fields[3]) == leader and fields[0] != "Z":
            yield pid


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Yield process ids and what the kernel says of them: state, parent, group, session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it ended meanwhile
                yield (
                    int(entry.name),
                    (entry / "stat").read_text().rpartition(")")[2].split(),
                )


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
