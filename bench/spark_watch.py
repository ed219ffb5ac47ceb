"""What Spark used while a job ran: memory of its Python workers, bytes through the shuffle."""

import json
import os
import threading
import urllib.request
from itertools import count
from pathlib import Path
from typing import Any

SAMPLE_SECONDS = 0.02
LOOK_ROUND = 10
"""Who the workers are is looked up at every so many samples: it takes a while itself."""
POOL = b"orbitmq.spark.columns.pool"


class WorkerMemory:
    """Samples the anonymous memory of the Python processes below this one's JVM; keeps the largest.

    A worker is forked from a daemon that the JVM starts. What a worker shares with it counts for both:
    the figure is what one worker may need, not what all of them take together.
    """

    def __init__(self) -> None:
        self.largest = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker-memory", daemon=True)

    def __enter__(self) -> "WorkerMemory":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        for sample in count():
            if self._end.wait(SAMPLE_SECONDS):
                return
            if sample % LOOK_ROUND == 0:
                workers = python_workers(os.getpid())
            self.largest = max([self.largest, *map(anonymous_bytes, workers)])


def python_workers(ancestor: int) -> list[int]:
    """Return the Python processes that a JVM below this process started, directly or not, and its pool's."""
    names, parents = _processes()
    return [
        pid
        for pid, name in names.items()
        if name.startswith("python")
        and (has_java_above(pid, ancestor, names, parents) or _is_of_pool(pid))
    ]


def _is_of_pool(pid: int) -> bool:
    """Tell whether a process belongs to a pool that a driver started before its JVM was there."""
    try:
        return POOL in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False  # it ended while we looked


def _processes() -> tuple[dict[int, str], dict[int, int]]:
    names: dict[int, str] = {}
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            before, _, after = (entry / "stat").read_text().rpartition(")")
        except OSError:
            continue  # it ended while we looked
        names[int(entry.name)] = before.partition("(")[2]
        parents[int(entry.name)] = int(after.split()[1])
    return names, parents


def has_java_above(pid: int, ancestor: int, names: dict[int, str], parents: dict[int, int]) -> bool:
    """Tell whether a JVM lies between a process and its ancestor."""
    java = False
    while pid not in (0, ancestor):
        pid = parents.get(pid, 0)
        java = java or names.get(pid) == "java"
    return java and pid == ancestor


def anonymous_bytes(pid: int) -> int:
    """Return a process's private memory, page cache apart; 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(found[0]) * 1024 if found else 0


def shuffle_bytes(spark: Any) -> int:
    """Return what all stages of a session wrote to the shuffle so far, as its status pages tell.

    The session needs `spark.ui.enabled`.
    """
    context = spark.sparkContext
    address = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages"
    # A proxy of the environment has nothing to do with a page of this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=30) as answer:
        stages = json.load(answer)
    return sum(stage["shuffleWriteBytes"] for stage in stages)
