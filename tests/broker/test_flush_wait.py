"""Answers that wait for the disk come in order, once, and not for ever."""

from pathlib import Path

from broker_world import BrokerWorld
from orbitmq.broker.flush_wait import FlushWait
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
