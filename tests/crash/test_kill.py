"""A writer is killed at random moments, again and again on the same directory; nothing may be missing.

ORBITMQ_CRASH_ROUNDS sets the number of kills (50 by default, `make test-crash` has 1 000);
ORBITMQ_CRASH_SEED chooses other messages and moments. A page cache survives the death of a process, so
these runs say nothing about power cuts: see test_power_cut.py.
"""

import os
import random
import shutil
from pathlib import Path

import pytest

from crash.checker import History, check_after_crash, require_equal_to_rebuild
from crash.fork_server import ForkServer
from crash.lives import live_and_die
from crash.writer import config

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("ORBITMQ_CRASH_SEED", "0"))
ROUNDS = int(os.environ.get("ORBITMQ_CRASH_ROUNDS", "50"))
KILLS_PER_STORE = 5
STORES = -(-ROUNDS // KILLS_PER_STORE)
KINDS = (("async", False), ("async", True), ("sync", True), ("pool", False), ("pool", True))


@pytest.mark.feature("F69", "F70", "X8")
@pytest.mark.parametrize("store_number", range(STORES))
def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(
    store_number: int, server: ForkServer, tmp_path: Path
) -> None:
    mode, clean = KINDS[store_number % len(KINDS)]
    chance = random.Random(f"{SEED} {store_number}")
    history = History(seed=store_number + 1)
    root = tmp_path / "store"
    kills = min(KILLS_PER_STORE, ROUNDS - store_number * KILLS_PER_STORE)

    allowed = {"cleaned": clean, "may_lose": mode == "pool"}
    for life in range(kills):
        live_and_die(server, root, chance, history, life, mode=mode, clean=clean)
        # Sometimes a copy is checked, so that the next writer itself must recover what this one left.
        looked_at = root if chance.random() < 0.5 else _copy(root, tmp_path / "copy")
        if looked_at.exists():
            check_after_crash(config(looked_at, mode), history, **allowed)

    check_after_crash(config(root, mode), history, **allowed)
    require_equal_to_rebuild(config(root, mode), tmp_path / "rebuilt")


def _copy(root: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    if root.exists():
        shutil.copytree(root, target)
    return target
