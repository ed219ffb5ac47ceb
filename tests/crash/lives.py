"""The life of a writer: it starts, is told about its messages for a random while, and is killed."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from crash.checker import History
from crash.fork_server import ForkServer
from crash.workload import ENDLESS, Ack, read_acks

START_SECONDS_MAX = 120
START_SHARE = 0.2  # of the kills: not while it writes, but while it opens and recovers
TOLD_FIRST = 100
ACK_BYTES = len(Ack(0, 0).packed())


def live_and_die(
    server: ForkServer,
    root: Path,
    chance: random.Random,
    history: History,
    life: int,
    **options: Any,
) -> int:
    """Let a writer live for a random while and kill it; return how many appends were acknowledged."""
    acks = root.with_name(f"acks-{life}")
    # A killed writer does not say how far it came, so the next one's numbers start far above.
    job = {"root": str(root), "seed": history.seed, "first": life * ENDLESS, "acks": str(acks)}
    pid = server.start({**job, **options, "batches": history.batches})
    most = 500 if options["mode"] == "sync" else 2500
    try:
        wanted = wait_for_the_moment(chance, acks, pid, least=0 if life else TOLD_FIRST, most=most)
    finally:
        code = end(server, pid)
    assert code == -signal.SIGKILL, f"the writer ended by itself:\n{server.log.read_text()}"
    left = list(read_acks(acks))
    told = history.learn(left)
    assert len(left) >= wanted, f"life {life} heard of {len(left)} appends, {wanted} were awaited"
    return told


def end(server: ForkServer, pid: int) -> int:
    """Kill a writer; return its exit code, which tells if it had died of something else."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return server.wait()


def wait_for_the_moment(
    chance: random.Random, acks: Path, pid: int, *, least: int, most: int
) -> int:
    """Wait until a random number of appends were answered, or for a moment of the start.

    Returns that number. AssertionError: the writer does not get there.
    """
    if not least and chance.random() < START_SHARE:
        # sleep: opening and recovering are as easily interrupted as writing, at any moment.
        time.sleep(chance.uniform(0, 0.06))
        return 0
    wanted = max(least, int(most ** chance.random()))
    deadline = time.monotonic() + START_SECONDS_MAX
    while not acks.exists() or acks.stat().st_size < wanted * ACK_BYTES:
        if not _is_alive(pid):
            return 0  # its exit code says why
        assert time.monotonic() < deadline, f"the writer did not hear of {wanted} appends in time"
        time.sleep(0.0005)
    time.sleep(chance.uniform(0, 0.004))  # sleep: any moment will do
    return wanted


def wait_for(path: Path, pid: int) -> None:
    """Wait until a process has written a file; return early if it dies."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while not path.exists() and _is_alive(pid):
        assert time.monotonic() < deadline, f"{path.name} was not written in time"
        time.sleep(0.001)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
