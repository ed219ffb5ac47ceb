"""A flush of timer messages: timer log, wheel, checkpoint, each on disk before the next is written."""

from pathlib import Path

import pytest

from conf_store import SeenDisk
from orbitmq.errors import StoreError
from orbitmq.testing.fake_clock import FakeClock
from timer_world import TimerWorld


def test_each_part_is_on_disk_before_the_next_is_written(tmp_path: Path) -> None:
    clock = FakeClock(1_700_000_000_400)
    disk = SeenDisk(tmp_path, clock)
    with TimerWorld(tmp_path, clock=clock, disk=disk) as world:
        for number in range(300):  # far apart: many pages of the wheel
            world.send(delay_s=5 + 500 * number)
        world.work()
        disk.forget()
        world.timers.flush_now()
    order = [
        (call.operation, call.path.split("/")[1 if call.path.startswith("config") else 0])
        for call in disk.calls
        if call.operation in ("write_at", "sync_data")
        and call.path.startswith(("timer", "config/timer", "commitlog"))
    ]
    steps = list(dict.fromkeys(order))
    assert steps == [
        ("sync_data", "commitlog"),
        ("sync_data", "timerlog"),
        ("write_at", "timerwheel"),
        ("sync_data", "timerwheel"),
        ("write_at", "timercheck"),
        ("sync_data", "timercheck"),
    ]
    # One sync each; the wheel is written in runs of pages.
    assert [order.count(step) for step in steps if step[0] == "sync_data"] == [1, 1, 1, 1]
    assert order.count(("write_at", "timerwheel")) == 300


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    clock = FakeClock(1_700_000_000_400)
    disk = SeenDisk(tmp_path, clock)
    with TimerWorld(tmp_path, clock=clock, disk=disk) as world:
        world.send(delay_s=5)
        world.send(delay_s=6)
        world.work()
        world.save()
        disk.forget()
        world.later(10_000)
        world.save()
        written = [call.length for call in disk.seen("write_at", "timerwheel")]
        assert written == [], "delivery changes no slot"
        world.send(delay_s=5)
        world.work()
        world.save()
        assert [call.length for call in disk.seen("write_at", "timerwheel")] == [4096]


def test_without_the_commit_log_nothing_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TimerWorld(tmp_path) as world:
        world.send(delay_s=5)
        world.work()
        with monkeypatch.context() as patch:
            patch.setattr(world.store, "wait_flushed", lambda log_offset: False)
            with pytest.raises(StoreError, match="not flushed"):
                world.timers.flush_now()
        assert not (tmp_path / "config" / "timercheck").exists()
        assert not (tmp_path / "timerwheel").exists()
        world.timers.flush_now()
        assert (tmp_path / "timerwheel").exists()
