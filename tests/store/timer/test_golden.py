"""The store `timer` of a RocketMQ broker: what waits in it is read, and delivered once, at its time."""

from collections import Counter
from pathlib import Path

import numpy as np

from golden_stores import settings, unpack
from orbitmq.files.disk import Disk
from orbitmq.format.java_hash import java_hash
from orbitmq.format.record import decode_record
from orbitmq.format.timer_checkpoint import decode
from orbitmq.format.timer_log import UNIT_DTYPE, TimerUnit
from orbitmq.format.timer_wheel import SLOT_DTYPE, WHEEL_SLOTS
from orbitmq.message import TIMER_TOPIC
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.store.timer.timer_log import TimerLog
from orbitmq.store.timer.timer_store import TimerStore
from orbitmq.store.timer.wheel import TimerWheel
from orbitmq.testing.fake_clock import FakeClock


def golden_units(root: Path) -> list[tuple[int, TimerUnit]]:
    log = TimerLog(root / "timerlog", 5216, Disk())
    log.load()
    found = []
    for position, units in log.walk(0):
        for number, unit in enumerate(units):
            found.append((position + 52 * number, TimerUnit(*unit.tolist())))
    log.close()
    return found


def test_units_slots_and_checkpoint_agree(tmp_path: Path) -> None:
    root = unpack("timer", tmp_path)
    units = golden_units(root)
    checkpoint = decode((root / "config" / "timercheck").read_bytes())
    assert checkpoint.queue_offset == checkpoint.master_queue_offset
    slots = np.frombuffer((root / "timerwheel").read_bytes(), dtype=SLOT_DTYPE)
    assert len(slots) == WHEEL_SLOTS
    by_slot = Counter(unit.slot_ms for _, unit in units)
    for position, unit in units:
        slot = slots[unit.slot_ms // 1000 % WHEEL_SLOTS]
        assert slot["time"] == unit.slot_ms // 1000
        assert slot["first"] <= position <= slot["last"]
        assert slot["count"] == by_slot[unit.slot_ms]
        assert unit.topic_hash == java_hash("TimerT")
    assert np.count_nonzero(slots["time"]) == len(by_slot)
    assert UNIT_DTYPE.itemsize == 52


def test_our_wheel_writes_the_bytes_that_it_read(tmp_path: Path) -> None:
    root = unpack("timer", tmp_path)
    golden = (root / "timerwheel").read_bytes()
    wheel = TimerWheel(root / "timerwheel", Disk(), 1000)
    assert wheel.load()
    assert wheel.changed().numbers == []
    (root / "timerwheel").unlink()
    wheel._changed = set(range(len(golden) // 4096))
    wheel.write(wheel.changed())
    assert (root / "timerwheel").read_bytes() == golden


def test_a_wheel_made_from_the_timer_log_is_the_one_that_was_there(tmp_path: Path) -> None:
    root = unpack("timer", tmp_path)
    golden = (root / "timerwheel").read_bytes()
    wheel = TimerWheel(tmp_path / "new", Disk(), 1000)
    for position, unit in golden_units(root):
        wheel.add(unit.slot_ms, position, -1 if unit.cancels else 1)
    wheel.write(wheel.changed())
    assert (tmp_path / "new").read_bytes() == golden


def test_what_waited_is_delivered_once_and_not_early(tmp_path: Path) -> None:
    root = unpack("timer", tmp_path)
    config = StoreConfig.from_settings(root, settings("timer"))
    checkpoint = decode((root / "config" / "timercheck").read_bytes())
    clock = FakeClock(checkpoint.read_ms)
    store = MessageStore.open(config, clock=clock, background=False)
    timers = TimerStore.open(store, clock)
    before = {queue: store.max_offset("TimerT", queue) for queue in (0, 1)}
    waiting = [
        decode_record(raw)
        for offset in range(store.max_offset(TIMER_TOPIC, 0))
        for raw in store.get(TIMER_TOPIC, 0, offset, 1).records
    ]
    keys = {
        record.unique_key
        for record in waiting
        if int(record.property_map["TIMER_OUT_MS"]) >= checkpoint.read_ms
    }
    assert len(keys) == 100
    last_ms = max(int(record.property_map["TIMER_OUT_MS"]) for record in waiting)
    while clock.now_ms() < last_ms + 2_000:
        clock.advance(min(3_600_000, last_ms + 2_000 - clock.now_ms()))
        while timers.turn(100, 100):
            store.wait_dispatched()
        store.wait_dispatched()
    got = [
        decode_record(raw)
        for queue in (0, 1)
        for offset in range(before[queue], store.max_offset("TimerT", queue))
        for raw in store.get("TimerT", queue, offset, 1).records
    ]
    assert Counter(record.unique_key for record in got) == Counter(keys)
    theirs = [
        decode_record(raw)
        for queue in (0, 1)
        for offset in range(before[queue])
        for raw in store.get("TimerT", queue, offset, 1).records
    ]
    names = {frozenset(one.property_map) for one in theirs if "TIMER_OUT_MS" in one.property_map}
    some = {"TIMER_ROLL_TIMES", "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"}
    assert {frozenset(one.property_map) - some for one in got} == {one - some for one in names}
    for record in got:
        assert int(record.property_map["TIMER_DEQUEUE_MS"]) >= (
            int(record.property_map["TIMER_OUT_MS"]) + 1000
        )
    timers.close()
    store.close()
