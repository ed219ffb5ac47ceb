"""What a start makes of wheel, timer log and checkpoint, whatever is left of them."""

import os
import shutil
from pathlib import Path

import pytest

from orbitmq.errors import WrongFileError
from orbitmq.format.timer_checkpoint import FIELDS, decode
from orbitmq.format.timer_log import BLANK, UNIT, UNIT_BYTES, TimerUnit, last_unit_at
from orbitmq.format.timer_wheel import SLOT_BYTES, WHEEL_BYTES
from orbitmq.message import TIMER_TOPIC
from orbitmq.store.timer.checkpoint import TimerCheckpointFile
from timer_world import TimerWorld

SMALL_LOG = {"timer_log_file_bytes": 10 * UNIT_BYTES + 16}


def fill(world: TimerWorld, count: int = 35) -> list[bytes]:
    """Send messages for 5 s to 5 s + count from now, put them into the wheel; return them in that order."""
    bodies = [b"%d" % number for number in range(count)]
    for body in bodies:
        world.send(body, delay_ms=5_000 + 1_000 * int(body))
    world.work()
    return bodies


def rest(world: TimerWorld, seconds: int = 60) -> list[bytes]:
    for _ in range(seconds):
        world.later(1_000)
    return world.delivered()


def checkpoint(root: Path) -> object:
    return decode((root / "config" / "timercheck").read_bytes())


@pytest.mark.parametrize("config", [{}, SMALL_LOG])
def test_a_stop_in_order_loses_and_doubles_nothing(tmp_path: Path, config: dict) -> None:
    with TimerWorld(tmp_path, **config) as world:
        bodies = fill(world)
        for seconds in (3, 12, 30):
            world.reopen()
            rest(world, seconds)
        assert world.delivered() == bodies


@pytest.mark.parametrize("config", [{}, SMALL_LOG])
def test_after_a_kill_nothing_is_lost_and_what_waits_waits_once(
    tmp_path: Path, config: dict
) -> None:
    with TimerWorld(tmp_path, **config) as world:
        bodies = fill(world, 20)
        world.save()
        bodies += [b"later"]
        world.send(b"later", delay_ms=30_000)
        world.work()
        end = world.timers.checkpoint.timer_log_end
        world.kill()
        world.work()
        assert world.timers.checkpoint.timer_log_end == end, "its unit was there already"
        assert sorted(rest(world)) == sorted(bodies)


def test_after_a_kill_the_slots_since_the_last_save_come_again(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        bodies = fill(world, 20)
        world.later(8_000)
        world.save()
        saved = len(world.delivered())
        world.later(2_000)
        again = world.delivered()[saved:]
        assert again
        world.kill()
        assert sorted(rest(world)) == sorted(bodies + again)


def test_killed_before_the_first_save(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        bodies = fill(world, 20)
        world.kill()
        assert not (tmp_path / "timerwheel").exists()
        assert rest(world) == bodies


@pytest.mark.parametrize("lost", ["timerwheel", "timerlog", "both", "all three"])
def test_lost_files_lose_no_message(tmp_path: Path, lost: str) -> None:
    with TimerWorld(tmp_path, **SMALL_LOG) as world:
        bodies = fill(world)
        rest(world, 10)
        assert 0 < len(world.delivered()) < len(bodies)
        world.reopen()
        world.timers.close()
        world.store.close()
        if lost != "timerlog":
            (tmp_path / "timerwheel").unlink()
        if lost != "timerwheel":
            shutil.rmtree(tmp_path / "timerlog")
        if lost == "all three":
            (tmp_path / "config" / "timercheck").unlink()
        world._open()
        got = rest(world)
    if lost == "all three":  # nobody knows what was delivered
        assert set(got) == set(bodies)
    else:
        assert sorted(got) == sorted(bodies)


def test_a_file_that_never_got_its_length_goes_with_those_behind_it(tmp_path: Path) -> None:
    """After a power cut: what no checkpoint speaks of may have reached the disk in any order."""
    with TimerWorld(tmp_path, **SMALL_LOG) as world:
        bodies = fill(world, 5)
        world.save()
        later = [b"later %d" % number for number in range(30)]
        for number, body in enumerate(later):
            world.send(body, delay_ms=20_000 + 1_000 * number)
        world.work()
        world.timers.close()
        world.store.close()
        files = sorted((tmp_path / "timerlog").iterdir())
        assert len(files) == 4
        os.truncate(files[2], 0)

        world._open()

        assert rest(world) == bodies + later


def test_a_wheel_of_wrong_length_is_made_again(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        bodies = fill(world)
        world.reopen()
        world.timers.close()
        world.store.close()
        with (tmp_path / "timerwheel").open("r+b") as file:
            file.truncate(WHEEL_BYTES // 3)
        world._open()
        assert rest(world) == bodies
        world.save()
        assert (tmp_path / "timerwheel").stat().st_size == WHEEL_BYTES


def test_a_wheel_that_leads_behind_the_timer_log_is_made_again(tmp_path: Path) -> None:
    """A power cut that kept the wheel and lost the last units: their messages are put in again."""
    with TimerWorld(tmp_path) as world:
        bodies = fill(world)
        world.reopen()
        world.timers.close()
        world.store.close()
        with (tmp_path / "timerlog" / "0".zfill(20)).open("r+b") as file:
            file.seek(12 * UNIT_BYTES)
            file.write(bytes(100 * UNIT_BYTES))
        world._open()
        assert world.timers.checkpoint.timer_log_end == 12 * UNIT_BYTES
        assert world.timers.queue_offset == 12
        assert sorted(rest(world)) == sorted(bodies)


def test_units_whose_records_are_gone_end_the_timer_log(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        bodies = fill(world, 10)
        end = world.store.max_log_offset
        world.save()
        unit = TimerUnit(UNIT_BYTES, -1, 1, 1_700_000_000_000, 9_000, end, 200, 0)
        world.timers.close()
        world.store.close()
        with (tmp_path / "timerlog" / "0".zfill(20)).open("r+b") as file:
            file.seek(10 * UNIT_BYTES)
            file.write(UNIT.pack(*unit))
        world._open()
        assert world.timers.checkpoint.timer_log_end == 10 * UNIT_BYTES
        assert rest(world) == bodies


def test_another_precision_loses_nothing(tmp_path: Path) -> None:
    from dataclasses import replace

    with TimerWorld(tmp_path) as world:
        bodies = fill(world)
        world.reopen()
        for precision_ms in (100, 1_000):
            world.timers.close()
            world.store.close()
            world.config = replace(world.config, timer_precision_ms=precision_ms)
            world._open()
        assert rest(world) == bodies


def test_a_long_time_down_loses_nothing(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        bodies = fill(world)
        world.reopen()
        world.clock.advance(20 * 24 * 3600 * 1000)  # more than the wheel is long
        world.reopen()
        world.send(b"new", delay_ms=5_000)
        assert rest(world, 10) == [*bodies, b"new"]


def test_progress_is_not_saved_ahead_of_the_commit_log(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        world.send(delay_ms=3_000)
        world.later(1_000)
        plan = world.timers.plan_flush()
        assert plan is not None
        assert plan.log_end == world.store.max_log_offset
        assert plan.checkpoint.queue_offset == 1
        world.timers.give_up(plan)
        again = world.timers.plan_flush()
        assert again is not None
        assert (again.files, again.pages.numbers) == (plan.files, plan.pages.numbers)
        world.timers.flush(again)
        assert world.timers.plan_flush() is None, "nothing has changed"
        world.later(1_000)
        assert world.timers.plan_flush() is None, "time alone is no change"


def test_the_checkpoint_is_written_in_place_and_says_how_far_all_is(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        fill(world, 3)
        world.later(6_000)
        world.save()
        found = checkpoint(tmp_path)
        assert found == world.timers.checkpoint
        assert found.read_ms == 1_700_000_006_000
        assert found.timer_log_end == 3 * UNIT_BYTES
        assert (found.queue_offset, found.master_queue_offset) == (3, 3)
        assert found.version_counter == 1
        assert (tmp_path / "config" / "timercheck").stat().st_size == 4096
        world.later(1_000)
        world.save()
        assert checkpoint(tmp_path).version_counter == 2


@pytest.mark.parametrize("page", [b"", b"short", FIELDS.pack(-1, 0, 0, 0, 0, 0, 0)])
def test_a_checkpoint_that_is_none_counts_as_missing(tmp_path: Path, page: bytes) -> None:
    path = tmp_path / "config" / "timercheck"
    with TimerWorld(tmp_path) as world:
        bodies = fill(world)
        world.reopen()
        world.timers.close()
        world.store.close()
        path.write_bytes(page)
        assert TimerCheckpointFile(path, world.disk).load() is False
        world._open()
        assert set(rest(world)) == set(bodies)


def test_files_of_the_timer_log_follow_each_other(tmp_path: Path) -> None:
    with TimerWorld(tmp_path, **SMALL_LOG) as world:
        fill(world, 25)
        names = sorted(path.name for path in (tmp_path / "timerlog").iterdir())
        assert [int(name) for name in names] == [0, 536, 1072]
        first = (tmp_path / "timerlog" / names[0]).read_bytes()
        assert BLANK.unpack_from(first, 520) == (16, 0, -875286124)
        assert last_unit_at(536) == 468
        assert last_unit_at(104_857_600) == 104_857_532


def test_old_files_of_the_timer_log_go_with_the_commit_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TimerWorld(tmp_path, **SMALL_LOG) as world:
        fill(world, 35)
        units = world.store.units(TIMER_TOPIC, 0, 0, 35)
        world.timers.clean()
        assert len(list((tmp_path / "timerlog").iterdir())) == 4
        monkeypatch.setattr(type(world.store), "min_log_offset", units[19].log_offset)
        world.timers.clean()
        assert len(list((tmp_path / "timerlog").iterdir())) == 3, "the 20th is still there"
        monkeypatch.setattr(type(world.store), "min_log_offset", units[20].log_offset)
        world.timers.clean()
        assert len(list((tmp_path / "timerlog").iterdir())) == 2
        monkeypatch.undo()
        assert rest(world) == [b"%d" % number for number in range(20, 35)]


def test_a_file_of_another_size_is_told(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        fill(world, 3)
        world.reopen()
        world.timers.close()
        path = tmp_path / "timerlog" / "0".zfill(20)
        with path.open("r+b") as file:
            file.truncate(5000)
        with pytest.raises(WrongFileError, match="5000"):
            type(world.timers).open(world.store, world.clock, world.disk)


def test_a_slot_is_32_bytes_of_the_file(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        world.send(deliver_ms=1_700_000_007_000)
        world.send(deliver_ms=1_700_000_007_000)
        world.work()
        world.save()
        raw = (tmp_path / "timerwheel").read_bytes()
    at = 1_700_000_006 % 1_209_600 * SLOT_BYTES
    fields = [1_700_000_006, 0, UNIT_BYTES]
    assert raw[at : at + 24] == b"".join(value.to_bytes(8, "big") for value in fields)
    assert raw[at + 24 : at + 32] == bytes((0, 0, 0, 2, 0, 0, 0, 0))
    assert raw.count(0) > WHEEL_BYTES - 40


def test_killed_in_the_middle_of_a_slot_all_of_it_comes_again(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        bodies = [b"%d" % number for number in range(10)]
        for body in bodies:
            world.send(body, delay_ms=5_000)
        world.work()
        world.clock.advance(7_000)
        while len(world.delivered()) < 3:
            world.timers.turn(256, 3)
        world.save()
        world.kill()
        world.work()
        assert world.delivered() == [*bodies[:3], *bodies]
