"""Sync flush against power cuts: what was acknowledged is there even if nothing else is.

Two disks: a simulated one, which forgets any subset of what was not synced (ORBITMQ_POWER_CUT_ROUNDS
cuts, 24 by default, `make test-crash` has 200); and, where this user may mount one, a real ext4 file
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
from crash.lives import TOLD_FIRST, end, live_and_die, wait_for_the_moment
from crash.workload import ENDLESS, read_acks
from crash.writer import config
from orbitmq.testing.power_cut import PowerCutDisk, power_cut

pytestmark = pytest.mark.crash

ROUNDS = int(os.environ.get("ORBITMQ_POWER_CUT_ROUNDS", "24"))
CUTS_PER_STORE = 4
STORES = -(-ROUNDS // CUTS_PER_STORE)
IMAGE_ROUNDS = max(3, ROUNDS // 10)
IMAGE_BYTES = 48 << 20


@pytest.mark.feature("F70", "X8")
@pytest.mark.parametrize("store_number", range(STORES))
def test_sync_flush_survives_a_power_cut(
    store_number: int, server: ForkServer, seed: str, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    history = History(seed=chance.randrange(1, 2**31), batches=store_number % 3 == 2)
    root = tmp_path / "store-0"
    root.mkdir()
    clean, ext = store_number % 2 == 1, store_number % 3 == 1
    cuts = min(CUTS_PER_STORE, ROUNDS - store_number * CUTS_PER_STORE)

    told, life = 0, 0
    for cut in range(cuts):
        shadow = tmp_path / f"shadow-{cut}"
        # Takes what is there as durable; the writers go on from it.
        PowerCutDisk(root, shadow=shadow)
        options = {"mode": "sync", "clean": clean, "ext": ext, "shadow": str(shadow)}
        # What a killed process had not synced, its successors have to: the power fails in one of them.
        for _ in range(chance.choice((1, 1, 2, 3))):
            told += live_and_die(server, root, chance, history, life, **options)
            life += 1
        after = tmp_path / f"store-{cut + 1}"
        power_cut(root, shadow, after, seed=chance.randrange(2**32))
        # The next life goes on with what the disk kept; what we see opening a copy must be right too.
        copy = shutil.copytree(after, tmp_path / f"copy-{cut}")
        settings = config(copy, "sync", ext=ext)
        check_after_crash(settings, history, cleaned=clean, may_fill=True)
        root = after
    assert told >= TOLD_FIRST


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
@pytest.mark.parametrize("round_number", range(IMAGE_ROUNDS))
def test_sync_flush_survives_the_loss_of_the_page_cache_on_ext4(
    round_number: int, server: ForkServer, seed: str, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    history = History(seed=chance.randrange(1, 2**31))
    image, later = tmp_path / "disk.ext4", tmp_path / "later.ext4"
    _make_file_system(image)

    with _mounted(image, tmp_path / "live") as live:
        acks = tmp_path / "acks"
        job = {"root": str(live / "store"), "seed": history.seed, "first": 0, "mode": "sync"}
        pid = server.start({**job, "acks": str(acks), "count": ENDLESS})
        try:
            wait_for_the_moment(chance, acks, pid, least=10, most=500)
            # Nobody writes while the image is copied: what is in it now is what the disk was given.
            os.kill(pid, signal.SIGSTOP)
            assert history.learn(list(read_acks(acks))) > 0
            shutil.copyfile(image, later)
        finally:
            code = end(server, pid)
        assert code == -signal.SIGKILL, server.log.read_text()

    with _mounted(later, tmp_path / "after") as after:
        check_after_crash(config(after / "store", "sync"), history, may_fill=True)


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
