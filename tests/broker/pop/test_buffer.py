"""Check points in memory (enablePopBufferMerge): what is never written, what is, and what a kill leaves."""

from pathlib import Path

import pytest

from orbitmq.broker.pop.check_point import decode_ack, decode_check_point
from orbitmq.message import AppendResult, AppendStatus
from pop_world import INVISIBLE_MS, PopWorld, Taken


def buffered(tmp_path: Path, **given: object) -> PopWorld:
    return PopWorld(tmp_path, pop_buffer=True, **given)


def pop_long(world: PopWorld) -> Taken:
    return world.pop(invisible_time=60_000)


def test_what_is_acknowledged_soon_is_never_written(tmp_path: Path) -> None:
    with buffered(tmp_path) as world:
        world.send("a", "b")
        taken = pop_long(world)
        assert world.written() == []
        assert world.committed() == 0
        world.ack(taken.messages[1])
        assert world.committed() == 0
        world.ack(taken.messages[0])
        assert world.committed() == 2
        assert world.written() == []
        assert len(world.engine.buffer) == 0


def test_offsets_are_committed_in_order(tmp_path: Path) -> None:
    with buffered(tmp_path) as world:
        world.send("a", "b")
        first, second = world.pop(max_msg_nums=1, invisible_time=60_000), pop_long(world)
        world.ack(second.messages[0])
        assert world.committed() == 0
        world.ack(first.messages[0])
        assert world.committed() == 2


@pytest.mark.parametrize("batch", [True, False])
def test_what_waits_too_long_is_written_with_its_acks(tmp_path: Path, batch: bool) -> None:
    with buffered(tmp_path, pop_batch_ack=batch) as world:
        world.send("a", "b", "c")
        taken = pop_long(world)
        world.ack(taken.messages[0])
        world.ack(taken.messages[2])
        world.pass_time(9_000)
        assert world.written() == []
        world.pass_time(1_000)
        (_, point), *acks = world.written()
        assert decode_check_point(point.body).offsets == [0, 1, 2]
        assert [decode_ack(ack.body).offsets for _, ack in acks] == (
            [[0, 2]] if batch else [[0], [2]]
        )
        assert world.committed() == 3
        world.pass_time(60_000)
        assert world.pop().bodies == ["b"]


def test_a_short_invisible_time_is_written_at_once(tmp_path: Path) -> None:
    with buffered(tmp_path) as world:
        world.send("a")
        world.pop(invisible_time=4_000)
        assert len(world.written()) == 1


def test_late_acks_are_written(tmp_path: Path) -> None:
    with buffered(tmp_path) as world:
        world.send("a")
        taken = pop_long(world)
        world.pass_time(9_000)
        world.ack(taken.messages[0])
        assert [decode_ack(request.body).offset for _, request in world.written()] == [0]
        world.pass_time(70_000)
        assert world.pop().bodies == []


def test_the_buffer_has_a_limit(tmp_path: Path) -> None:
    with buffered(tmp_path, pop_buffer_size=0) as world:
        world.send("a", "b")
        world.pop(max_msg_nums=1, invisible_time=60_000)
        pop_long(world)
        assert (len(world.engine.buffer), len(world.written())) == (1, 1)


def test_a_queue_has_a_limit_in_the_buffer(tmp_path: Path) -> None:
    with buffered(tmp_path, pop_buffer_steps=1) as world:
        world.send("a", "b")
        world.pop(max_msg_nums=1, invisible_time=60_000)
        pop_long(world)
        assert (len(world.engine.buffer), len(world.written())) == (1, 1)


def test_a_stop_writes_everything(tmp_path: Path) -> None:
    with buffered(tmp_path) as world:
        world.send("a", "b")
        taken = pop_long(world)
        world.ack(taken.messages[0])
        world.pops.stop()
        assert len(world.written()) == 2
        assert world.committed() == 2


def test_a_switched_off_buffer_is_emptied(tmp_path: Path) -> None:
    with buffered(tmp_path) as world:
        world.send("a")
        pop_long(world)
        world.config.pop_buffer = False
        world.pops.tick()
        assert (len(world.engine.buffer), len(world.written())) == (0, 1)


def test_the_offset_stays_while_the_store_takes_nothing(tmp_path: Path) -> None:
    with buffered(tmp_path) as world:
        world.send("a")
        pop_long(world)
        world.refused = AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE)
        world.pass_time(12_000)
        assert world.committed() == 0
        world.refused = None
        world.pass_time(1_000)
        assert world.committed() == 1
        world.pass_time(60_000)
        assert world.pop().bodies == ["a"]


def test_without_the_setting_everything_is_written(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        world.pop(invisible_time=INVISIBLE_MS * 6)
        assert len(world.written()) == 1
