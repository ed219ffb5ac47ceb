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
from crash.workload import Ack, read_acks
from crash.writer import ENDLESS

START_SECONDS_MAX = 20
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
    pid = server.start({**job, **options})
    wait_for_the_moment(chance, acks, pid, most=500 if options["mode"] == "sync" else 2500)
    with contextlib.suppress(
        ProcessLookupError
    ):  # it died of something else; its exit code says so
        os.kill(pid, signal.SIGKILL)
    code = server.wait()
    assert code == -signal.SIGKILL, f"the writer ended by itself:\n{server.log.read_text()}"
    return history.learn(list(read_acks(acks)))


def wait_for_the_moment(chance: random.Random, acks: Path, pid: int, *, most: int) -> None:
    """Wait until a random number of appends were acknowledged, or for a moment of the start."""
    if chance.random() < 0.2:
        # Opening and recovering are as easily interrupted as writing.
        time.sleep(chance.uniform(0, 0.06))
        return
    wanted = int(most ** chance.random()) * ACK_BYTES
    deadline = time.monotonic() + START_SECONDS_MAX
    while not acks.exists() or acks.stat().st_size < wanted:
        if time.monotonic() > deadline or not _is_alive(pid):
            return
        time.sleep(0.0005)
    time.sleep(chance.uniform(0, 0.004))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
