"""Answers that wait for the disk come in order, once, and not for ever."""

from collections.abc import Callable
from pathlib import Path

import pytest

from async_run import until
from broker_world import BrokerWorld
from orbitmq.broker.replication.in_sync import InSync
from orbitmq.broker.sends.flush_wait import FlushWait
from orbitmq.errors import StoreFailedError
from orbitmq.message import AppendRequest, AppendStatus

OK, LATE = AppendStatus.PUT_OK, AppendStatus.FLUSH_DISK_TIMEOUT


def append(world: BrokerWorld) -> int:
    result = world.store.append_nowait(AppendRequest("T", 0, b"x"))
    return result.log_offset + result.size


def test_what_is_on_disk_already_is_answered_at_once(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        waits, told = FlushWait(world.context), []
        end = append(world)
        world.store.flush()
        waits.add(end, told.append)
        assert (told, waits.count) == ([OK], 0)


def test_a_flush_answers_all_that_it_covers(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        waits, told = FlushWait(world.context), []
        for _ in range(3):
            waits.add(append(world), told.append)
        assert told == []
        world.store.flush()
        world.turn()
        assert told == [OK, OK, OK]


def test_a_disk_that_does_not_sync_in_time_is_told_and_later_ones_still_wait(
    tmp_path: Path,
) -> None:
    with BrokerWorld(tmp_path, store={"sync_flush_timeout_ms": 100}) as world:
        waits, told = FlushWait(world.context), []
        waits.add(append(world), told.append)
        world.clock.advance(99)
        waits.add(append(world), told.append)
        waits.look()
        assert told == []
        world.clock.advance(1)
        waits.look()
        assert (told, waits.count) == ([LATE], 1)


def test_a_failing_answer_does_not_stop_the_others(tmp_path: Path) -> None:
    def broken(status: AppendStatus) -> None:
        raise RuntimeError("bug")

    with BrokerWorld(tmp_path) as world:
        waits, told = FlushWait(world.context), []
        waits.add(append(world), broken)
        waits.add(append(world), told.append)
        world.store.flush()
        world.turn()
        assert told == [OK]


def test_a_store_that_failed_keeps_nobody_waiting(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        waits, told = FlushWait(world.context), []
        waits.add(append(world), told.append)
        world.store.flags.fail(StoreFailedError(tmp_path, "a sync failed", "Restart."))
        world.turn()
        waits.add(1 << 40, told.append)
        assert told == [LATE, LATE]
        world.store.flags.failure = None  # so that the world can close it


class PassingClock:
    """A clock that goes on by some milliseconds whenever it is looked at."""

    def __init__(self, *steps_ms: float) -> None:
        self._now_ms, self._steps_ms = 0.0, list(steps_ms)

    def monotonic_ms(self) -> float:
        self._now_ms += self._steps_ms.pop(0) if self._steps_ms else 0.0
        return self._now_ms


def test_a_time_for_replicas_that_ends_just_behind_a_look_is_over_at_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[tuple[float, Callable[[], None]]] = []
    with BrokerWorld(tmp_path, replica_timeout_ms=300, in_sync_replicas=2) as world:
        monkeypatch.setattr(world.loop, "call_later", lambda *timer: timers.append(timer))
        world.context.replicas = InSync(world.context.config, lambda: world.store.max_log_offset)
        # Asked to wait, looked at a moment too soon, the timer set behind the deadline.
        world.context.clock = PassingClock(0, 0, 0, 299.9, 0.2)
        waits, told = FlushWait(world.context), []
        waits.add(append(world), told.append)
        (seconds, look) = timers.pop()
        look()
        assert (seconds, told) == (0.3, [])
        (seconds, look) = timers.pop()
        look()
        assert seconds == 0
        assert told == [AppendStatus.FLUSH_SLAVE_TIMEOUT]


def test_each_flush_is_heard_of(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        waits, told = FlushWait(world.context), []
        for count in (1, 2, 3):
            waits.add(append(world), told.append)
            world.store.flush()
            world.turn()
            assert told == [OK] * count


def test_a_flush_that_ends_while_others_are_answered_is_heard_of(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        waits, told = FlushWait(world.context), []

        def answer_and_go_on(status: AppendStatus) -> None:
            waits.add(append(world), told.append)
            world.store.flush()

        waits.add(append(world), answer_and_go_on)
        world.store.flush()
        world.turn()
        assert told == [OK]


def test_a_record_is_not_on_disk_before_its_last_byte_is(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        waits, told = FlushWait(world.context), []
        end = append(world)
        world.store.flush()
        waits.add(end + 1, told.append)
        waits.look()
        assert told == []


def test_who_waits_is_told_when_the_time_is_over_though_nothing_happens(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path, store={"sync_flush_timeout_ms": 5}) as world:
        waits, told = FlushWait(world.context), []
        for count in (1, 2):
            waits.add(append(world), told.append)
            world.clock.advance(5)
            world.loop.run_until_complete(until(lambda count=count: len(told) >= count))  # type: ignore[misc]
        assert told == [LATE, LATE]


def test_the_clock_goes_on_for_those_behind_the_first(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path, store={"sync_flush_timeout_ms": 5}) as world:
        waits, told = FlushWait(world.context), []
        waits.add(append(world), told.append)
        world.clock.advance(4)
        waits.add(append(world), told.append)
        world.clock.advance(1)

        world.loop.run_until_complete(until(lambda: len(told) == 1))
        world.clock.advance(5)
        world.loop.run_until_complete(until(lambda: len(told) == 2))
        assert told == [LATE, LATE]


def test_one_sync_does_for_a_turn_and_the_next_turn_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerWorld(tmp_path) as world:
        waits, syncs = FlushWait(world.context), []
        monkeypatch.setattr(world.store, "flush_log", lambda: syncs.append(1))
        for turns in (1, 2):
            for _ in range(3):
                waits.sync_soon()
            world.turn()
            assert len(syncs) == turns


@pytest.mark.parametrize(("took_ms", "is_slow"), [(19, False), (21, True)])
def test_a_disk_is_slow_when_its_average_sync_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took_ms: float, is_slow: bool
) -> None:
    with BrokerWorld(tmp_path) as world:
        waits, syncs = FlushWait(world.context), []

        def sync() -> None:
            syncs.append(1)
            world.clock.advance(took_ms)

        monkeypatch.setattr(world.store, "flush_log", sync)
        waits.sync_soon()
        world.turn()
        waits.sync_soon()
        world.turn()
        assert len(syncs) == (1 if is_slow else 2)
