"""A writer is killed at random moments, again and again on the same directory; nothing may be missing.

ORBITMQ_CRASH_ROUNDS sets the number of kills (45 by default, five of each kind; `make test-crash` has 1 000);
ORBITMQ_CRASH_SEED chooses other messages and moments. A page cache survives the death of a process, so
these runs say nothing about power cuts: see test_power_cut.py.
"""

import json
import os
import random
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from crash.checker import History, check_after_crash, read_log, require_equal_to_rebuild
from crash.fork_server import ForkServer
from crash.lives import TOLD_FIRST, end, live_and_die, wait_for
from crash.workload import NUMBER
from crash.writer import config
from orbitmq.format.record import decode_record
from orbitmq.store.config import StoreConfig
from orbitmq.store.recovery.adopt import RecoveryReport
from orbitmq.store.store import MessageStore
from orbitmq.units import PAGE_BYTES

pytestmark = pytest.mark.crash

ROUNDS = int(os.environ.get("ORBITMQ_CRASH_ROUNDS", "45"))
KILLS_PER_STORE = 5
STORES = -(-ROUNDS // KILLS_PER_STORE)


class Kind(NamedTuple):
    """How a store is used."""

    mode: str
    clean: bool = False
    ext: bool = False
    batches: bool = False


KINDS = (
    Kind("async"),
    Kind("async", clean=True),
    Kind("sync", clean=True),
    Kind("pool"),
    Kind("pool", clean=True),
    Kind("async", ext=True, batches=True),
    Kind("pool", ext=True),
    Kind("sync", batches=True),
    Kind("async", clean=True, ext=True, batches=True),
)


@dataclass
class Tally:
    """What the kills of a run met."""

    kills: int = 0
    unfinished: int = 0  # kills that left records of which nobody had been told yet


@pytest.fixture(scope="module")
def tally() -> Iterator[Tally]:
    """Require that kills met appends that were under way: else the rounds prove little."""
    tally = Tally()
    yield tally
    assert tally.kills < 25 or tally.unfinished >= tally.kills // 10, tally


@pytest.mark.feature("F69", "F70", "X8")
@pytest.mark.parametrize("store_number", range(STORES))
def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(
    store_number: int, server: ForkServer, seed: str, tally: Tally, tmp_path: Path
) -> None:
    kind = KINDS[store_number % len(KINDS)]
    chance = random.Random(seed)
    history = History(seed=chance.randrange(1, 2**31), batches=kind.batches)
    root = tmp_path / "store"
    kills = min(KILLS_PER_STORE, ROUNDS - store_number * KILLS_PER_STORE)
    options = {"mode": kind.mode, "clean": kind.clean, "ext": kind.ext}

    told = 0
    for life in range(kills):
        told += live_and_die(server, root, chance, history, life, **options)
        # Sometimes a copy is checked, so that the next writer itself must recover what this one left.
        looked_at = root if chance.random() < 0.5 else _copy(root, tmp_path / "copy")
        if looked_at.exists():
            report = _check(kind, looked_at, history)
            tally.kills += 1
            tally.unfinished += _has_unfinished(_config(kind, looked_at), history, report, life)

    assert told >= TOLD_FIRST, "a writer that acknowledges nothing cannot lose anything"
    _check(kind, root, history)
    require_equal_to_rebuild(_config(kind, root), tmp_path / "rebuilt")


@pytest.mark.feature("F60")
def test_a_kill_loses_what_the_transient_pool_has_not_committed_and_nothing_else(
    server: ForkServer, tmp_path: Path
) -> None:
    root, told = tmp_path / "store", tmp_path / "told"
    pid = server.start({"act": "run_uncommitted", "root": str(root), "told": str(told)})
    try:
        wait_for(told, pid)
    finally:
        code = end(server, pid)
    assert code == -signal.SIGKILL, server.log.read_text()

    seen = json.loads(told.read_text())
    assert seen["statuses"] == ["PUT_OK"] * 4  # acknowledged, and not all of it committed
    assert seen["dispatched"] == seen["committed"] < seen["written"]
    assert (seen["queue_end"], seen["got"], seen["got_behind"]) == (1, 1, 0)
    assert seen["queried"] == [1, 0, 0, 0]
    assert seen["read"] == [True, False, False, False]
    with MessageStore.open(config(root, "pool")) as store:
        assert store.wait_dispatched()
        assert store.max_log_offset == seen["committed"]
        assert store.max_offset("T", 0) == 1
        (record,) = store.get("T", 0, 0, 32).records
        assert decode_record(record).body == bytes(2 * PAGE_BYTES)
        assert not store.query("T", "k1")


def _config(kind: Kind, root: Path) -> StoreConfig:
    return config(root, kind.mode, ext=kind.ext)


def _check(kind: Kind, root: Path, history: History) -> RecoveryReport:
    losing = kind.mode == "pool"
    return check_after_crash(_config(kind, root), history, cleaned=kind.clean, may_lose=losing)


def _has_unfinished(
    config: StoreConfig, history: History, report: RecoveryReport, life: int
) -> bool:
    """Tell whether the log has a record of this life of which the writer was never told."""
    records = read_log(config, report.min_offset, report.end_offset)
    numbers = {int(record.property_map[NUMBER]) for record in records if not record.is_filler}
    return any(number > history.told.get(life, 0) for number in numbers)


def _copy(root: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    if root.exists():
        shutil.copytree(root, target)
    return target
