"""Every step of timer messages and of transactions against power cuts; see cut_points.py.

ORBITMQ_POWER_CUT_ROUNDS sets how many orders of events are tried: one for each 24 (24 by default).
"""

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from crash.cut_points import Cut, CuttingDisk, NoSyncDisk, kill_all
from orbitmq.broker.tables.state_files import plain
from orbitmq.files.state_file import read_state, write_state
from orbitmq.format.record import decode_record
from orbitmq.format.timer_checkpoint import decode as decode_timer_checkpoint
from orbitmq.store.config import FlushMode
from orbitmq.store.timer import recovery, timer_store, wheel
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.testing.power_cut import write_image
from orbitmq.units import KiB
from timer_world import TimerWorld
from transaction_world import COMMIT, ROLLBACK, TransactionWorld

pytestmark = pytest.mark.crash

ORDERS = max(1, int(os.environ.get("ORBITMQ_POWER_CUT_ROUNDS", "24")) // 24)
START_MS = 1_700_000_000_400
SLOTS = 512  # of a wheel that is small enough to be kept a hundred times


class Promises:
    """What was promised until now, and the time."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.flushed = clock, 0
        self.acked: dict[bytes, int] = {}

    def copy(self) -> "Promises":
        other = Promises(FakeClock(self.clock.now_ms()))
        other.acked = dict(self.acked)
        return other


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory in memory; wheels are small."""
    for module in (recovery, timer_store, wheel):
        monkeypatch.setattr(module, "WHEEL_SLOTS", SLOTS)
    for module in (recovery, timer_store):
        monkeypatch.setattr(module, "WINDOW_SLOTS", SLOTS // 2)
    monkeypatch.setattr(wheel, "WHEEL_BYTES", SLOTS * wheel.SLOT_BYTES)
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


def cutting_disk(place: Path, clock: FakeClock) -> tuple[CuttingDisk, Path]:
    (root := place / "store").mkdir()
    promises: Any = Promises(clock)
    return CuttingDisk(root, place, promises, ("nothing", "bytes"), mixed=1), root


def check(place: Path, disk: CuttingDisk, least: int, look: Callable[[Path, Cut], None]) -> None:
    """Look at each state that was kept; at least so many have to differ."""
    disk.armed = False
    disk.keep("the end")
    assert len(disk.cuts) >= least, f"only {len(disk.cuts)} states were kept"
    for number, cut in enumerate(disk.cuts):
        try:
            look(write_image(cut.image, place / f"cut-{number}"), cut)
        except Exception as error:
            raise AssertionError(f"{cut.label}: {error}") from error
        shutil.rmtree(place / f"cut-{number}")


# --- messages that wait for a time ---

TIMER_CONFIG = {
    "segment_bytes": 16 * KiB,
    "cq_file_bytes": 200,
    "message_bytes_max": 4 * KiB,
    "timer_log_file_bytes": 52 * 5 + 16,
    "flush_mode": FlushMode.SYNC,
    "clean_forced": False,
}


@pytest.mark.feature("X8")
@pytest.mark.parametrize("order", range(ORDERS))
def test_an_acknowledged_timer_message_comes_whenever_the_power_fails(
    place: Path, order: int
) -> None:
    clock, chance = FakeClock(START_MS), random.Random(order + 3)
    disk, root = cutting_disk(place, clock)
    world = TimerWorld(root, clock=clock, disk=disk, **TIMER_CONFIG)
    disk.armed = True

    for number in range(12):
        due_ms = world.now + chance.choice((600, 1_500, 2_500, 4_000))
        world.send(b"%d" % number, deliver_ms=due_ms)
        disk.history.acked[b"%d" % number] = due_ms  # type: ignore[index, assignment]
        clock.advance(chance.randrange(500))
        if number % 3 == 2:
            world.work()
        if number % 4 == 3:
            world.save()
    world.later(2_000)
    world.save()

    kill_all(root)
    check(place, disk, 40, _require_delivered)


def _require_delivered(root: Path, cut: Cut) -> None:
    promised: Promises = cut.history  # type: ignore[assignment]
    page = cut.image.get("config/timercheck")
    saved_ms = decode_timer_checkpoint(page).read_ms if page else 0
    with TimerWorld(root, clock=promised.clock, disk=NoSyncDisk(), **TIMER_CONFIG) as world:
        for _ in range(12):
            world.later(500)
        world.store.flush_log()  # with sync flush nobody sees a message before the disk has it
        records = world.records()
    counts = Counter(record.body for record in records)
    lost = promised.acked.keys() - counts.keys()
    assert not lost, f"lost: {lost}"
    for record in records:
        due_ms = int(record.property_map["TIMER_DELIVER_MS"])
        assert record.store_ms >= due_ms, (
            f"{record.body!r} came {due_ms - record.store_ms} ms early"
        )
        # What was delivered since progress was last saved comes again, nothing else, and once.
        most = 1 if due_ms <= saved_ms else 2
        assert counts[record.body] <= most, f"{record.body!r} came {counts[record.body]} times"


# --- transactions ---


@pytest.mark.feature("X8")
@pytest.mark.parametrize("order", range(ORDERS))
def test_a_power_cut_neither_loses_nor_doubles_what_was_committed(place: Path, order: int) -> None:
    clock, chance = FakeClock(START_MS), random.Random(order)
    disk, root = cutting_disk(place, clock)
    world = TransactionWorld(root, clock=clock, disk=disk, store=_SMALL)
    world.flushes = False
    world.transactions.start()
    producer = world.join()
    disk.armed = True

    for number in range(9):
        body = b"%d" % number
        half = world.half(body, key=f"K{number}")
        if chance.random() < 0.6:  # else it is left to the checks
            world.end(half, _plan(body))
        if number % 3 == 2:
            world.round()
            for question in producer.take()[:1]:
                world.end(question, _plan(decode_record(question.body).body))
        world.store.tick()
        world.store.flush_log()
        disk.history.acked |= {b"%d" % known: 0 for known in range(number + 1)}  # type: ignore[dict-item]
        world.transactions.tick()
        write_state(
            disk, root / "config" / "consumerOffset.json", plain(world.context.offsets.snapshot())
        )

    kill_all(root)
    world.loop.close()
    check(place, disk, 40, _require_ended)


_SMALL = {
    "segment_bytes": 16 * KiB,
    "cq_file_bytes": 200,
    "message_bytes_max": 4 * KiB,
    "clean_forced": False,
}


def _plan(body: bytes) -> int:
    return ROLLBACK if int(body) % 3 == 1 else COMMIT


def _require_ended(root: Path, cut: Cut) -> None:
    """Have all that waits asked about: what the disk had comes once, or never if that was the plan."""
    promised: Promises = cut.history  # type: ignore[assignment]
    offsets = read_state(root / "config" / "consumerOffset.json")
    given = {"clock": promised.clock, "disk": NoSyncDisk(), "store": _SMALL}
    with TransactionWorld(root, offsets=offsets, **given) as world:
        world.transactions.start()
        producer = world.join()
        for _ in range(3):
            world.round(61_000)
            for question in producer.take():
                world.end(question, _plan(decode_record(question.body).body))
        bodies = world.bodies()
    twice = [body for body, count in Counter(bodies).items() if count > 1]
    assert not twice, f"committed twice: {twice}"
    assert not [body for body in bodies if _plan(body) == ROLLBACK], "rolled back, and there"
    lost = {body for body in promised.acked if _plan(body) == COMMIT} - set(bodies)
    assert not lost, f"lost: {lost}"
