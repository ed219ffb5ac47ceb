"""Sync flush against power cuts: what was acknowledged is there even if nothing else is.

Two disks: a simulated one, which forgets any subset of what was not synced (ORBITMQ_POWER_CUT_ROUNDS
cuts, 20 by default, `make test-crash` has 200); and, where this user may mount one, a real ext4 file
system in a file, whose bytes are copied while the writer stands still.
"""

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crash.checker import History, check_after_crash
from crash.fork_server import ForkServer
from crash.lives import live_and_die, wait_for_the_moment
from crash.workload import read_acks
from crash.writer import ENDLESS, config
from orbitmq.testing.power_cut import PowerCutDisk, power_cut

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("ORBITMQ_CRASH_SEED", "0"))
ROUNDS = int(os.environ.get("ORBITMQ_POWER_CUT_ROUNDS", "20"))
CUTS_PER_STORE = 4
STORES = -(-ROUNDS // CUTS_PER_STORE)
IMAGE_ROUNDS = max(3, ROUNDS // 10)
IMAGE_BYTES = 48 << 20


@pytest.mark.feature("F70", "X8")
@pytest.mark.parametrize("store_number", range(STORES))
def test_sync_flush_survives_a_power_cut(
    store_number: int, server: ForkServer, tmp_path: Path
) -> None:
    chance = random.Random(f"{SEED} {store_number}")
    history = History(seed=1000 + store_number)
    root = tmp_path / "store-0"
    root.mkdir()
    clean = store_number % 2 == 1
    cuts = min(CUTS_PER_STORE, ROUNDS - store_number * CUTS_PER_STORE)

    for life in range(cuts):
        shadow = tmp_path / f"shadow-{life}"
        PowerCutDisk(
            root, shadow=shadow
        )  # takes what is there as durable; the writer goes on from it
        options = {"mode": "sync", "clean": clean, "shadow": str(shadow)}
        live_and_die(server, root, chance, history, life, **options)
        after = tmp_path / f"store-{life + 1}"
        power_cut(root, shadow, after, seed=chance.randrange(2**32))
        # The next life goes on with what the disk kept; what we see opening a copy must be right too.
        copy = shutil.copytree(after, tmp_path / f"copy-{life}")
        check_after_crash(config(copy, "sync"), history, cleaned=clean, may_fill=True)
        root = after


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
@pytest.mark.parametrize("round_number", range(IMAGE_ROUNDS))
def test_sync_flush_survives_the_loss_of_the_page_cache_on_ext4(
    round_number: int, server: ForkServer, tmp_path: Path
) -> None:
    chance = random.Random(f"{SEED} {round_number}")
    history = History(seed=2000 + round_number)
    image, later = tmp_path / "disk.ext4", tmp_path / "later.ext4"
    _make_file_system(image)

    with _mounted(image, tmp_path / "live") as live:
        acks = tmp_path / "acks"
        job = {"root": str(live / "store"), "seed": history.seed, "first": 0, "mode": "sync"}
        pid = server.start({**job, "acks": str(acks), "count": ENDLESS})
        wait_for_the_moment(chance, acks, pid, most=500)
        # Nobody writes while the image is copied: what is in it now is what the disk was given.
        os.kill(pid, signal.SIGSTOP)
        history.learn(list(read_acks(acks)))
        shutil.copyfile(image, later)
        os.kill(pid, signal.SIGKILL)
        assert server.wait() == -signal.SIGKILL, server.log.read_text()

    with _mounted(later, tmp_path / "after") as after:
        if (after / "store").exists():
            check_after_crash(config(after / "store", "sync"), history, may_fill=True)
        else:
            assert not history.acked


def _make_file_system(image: Path) -> None:
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4 command")
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)


@contextmanager
def _mounted(image: Path, where: Path) -> Iterator[Path]:
    where.mkdir()
    tried = subprocess.run(
        ["mount", "-o", "loop", str(image), str(where)], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        pytest.skip(f"loop mounts do not work here: {tried.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)
