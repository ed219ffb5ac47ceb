"""Delayed messages: on time, in order, once while the broker lives, and never lost."""

from pathlib import Path

import pytest

from async_run import until
from broker_world import BrokerWorld
from message_replay import MessageWorld, replay, send_command
from orbitmq.broker.delivery.schedule import DELAY_FILE, Schedule
from orbitmq.broker.tables.state_files import StateFiles
from orbitmq.errors import StateFileError
from orbitmq.message import SCHEDULE_TOPIC, AppendRequest, AppendResult, AppendStatus, Host


def delayed(level: int, body: bytes = b"hello", **given: object) -> object:
    text = f"UNIQ_KEY\x01K\x02DELAY\x01{level}\x02TAGS\x01TagA\x02"
    return send_command(body=body, properties=text, **given)


@pytest.mark.parametrize(
    ("level", "wait_ms"), [(1, 1_000), (3, 10_000), (18, 7_200_000), (99, 7_200_000)]
)
def test_each_level_waits_as_long_as_it_says(tmp_path: Path, level: int, wait_ms: int) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect(peer_host=Host(b"\x0a\x00\x00\x01", 77))
        assert replay(world, client, delayed(level, queue_id=2, h="9")).code == 0
        assert world.records("Orders", 2) == []
        world.later(wait_ms - 1)
        assert world.records("Orders", 2) == []
        world.later(1)
        (record,) = world.records("Orders", 2)
        assert record.flag == 9
        assert record.born_host == Host(b"\x0a\x00\x00\x01", 77)
        properties = record.property_map
        assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("Orders", "2")
        assert properties["DELAY"] == str(min(level, 18))
        assert properties["TAGS"] == "TagA"
        world.later(wait_ms)
        assert len(world.records("Orders", 2)) == 1, "delivered once, though it still says DELAY"


def test_many_messages_of_a_level_keep_their_order(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        bodies = [b"%d" % number for number in range(700)]
        for body in bodies:
            world.tell(client, delayed(1, body))
        world.later(1_000)
        world.later(0)
        assert [record.body for record in world.records("Orders")] == bodies


def test_levels_come_from_the_store_config(tmp_path: Path) -> None:
    with MessageWorld(tmp_path, store={"delay_ms": (0, 2_000, 5_000)}) as world:
        client = world.connect()
        replay(world, client, delayed(1, b"a"))
        replay(world, client, delayed(7, b"b"))
        world.later(2_000)
        assert [record.body for record in world.records("Orders")] == [b"a"]
        world.later(3_000)
        assert [record.body for record in world.records("Orders")] == [b"a", b"b"]


def test_progress_says_how_far_each_level_is(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client, schedule = world.connect(), world.context.schedule
        for level in (1, 1, 3):
            replay(world, client, delayed(level))
        assert schedule.progress() == {1: (0, 2), 3: (0, 1)}
        world.later(1_000)
        assert schedule.progress() == {1: (2, 2), 3: (0, 1)}


def test_progress_is_saved_only_when_what_was_delivered_is_on_disk(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client, schedule = world.connect(), world.context.schedule
        replay(world, client, delayed(1))
        world.store.flush()
        world.later(1_000)
        assert [schedule.changes, schedule.changes] == [0, 0]  # however often it is asked
        assert schedule.snapshot()["offsetTable"] == {}
        world.store.flush()
        assert schedule.changes == 1
        assert schedule.snapshot()["offsetTable"] == {1: 1}
        replay(world, client, delayed(1))
        world.later(1_000)
        schedule.stop()  # makes it durable
        assert schedule.changes == 2
        assert schedule.snapshot()["offsetTable"] == {1: 2}


def test_a_broker_goes_on_where_its_file_says(tmp_path: Path) -> None:
    with MessageWorld(tmp_path / "store") as world:
        client = world.connect()
        replay(world, client, delayed(1, b"a"))
        world.later(1_000)
        replay(world, client, delayed(1, b"b"))
        world.store.flush()
        files = StateFiles(tmp_path)
        files.add(DELAY_FILE, world.context.schedule)
        world.context.schedule._progress = {1: 1}
        assert world.context.schedule.changes == 1
        world.loop.run_until_complete(files.close())
        again = Schedule(world.context)
        files = StateFiles(tmp_path)
        files.add(DELAY_FILE, again)
        world.clock.advance(1_000)
        again.tick()
        assert [record.body for record in world.records("Orders")] == [b"a", b"b"]
        world.loop.run_until_complete(files.close())


def test_without_its_file_everything_comes_again(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, delayed(1, b"a"))
        world.later(1_000)
        Schedule(world.context).tick()
        assert [record.body for record in world.records("Orders")] == [b"a", b"a"]


@pytest.mark.parametrize("offset", [-5, 1_000])
def test_progress_outside_of_the_queue_is_put_right(tmp_path: Path, offset: int) -> None:
    with MessageWorld(tmp_path) as world:
        client, schedule = world.connect(), world.context.schedule
        replay(world, client, delayed(1, b"a"))
        schedule.load({"offsetTable": {"1": offset}}, tmp_path)
        world.later(1_000)
        assert schedule.progress() == {1: (1, 1)}
        replay(world, client, delayed(1, b"b"))
        world.later(1_000)
        assert world.records("Orders")[-1].body == b"b"


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        for state in ({"offsetTable": {"1": "x"}}, {"offsetTable": [1]}):
            with pytest.raises(StateFileError, match="no table of delay offsets"):
                world.context.schedule.load(state, tmp_path / DELAY_FILE)


def test_a_clock_that_is_set_back_holds_nobody_up(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, delayed(1))
        world.clock.set_now_ms(world.clock.now_ms() - 3_600_000)
        world.later(0)
        assert len(world.records("Orders")) == 1


def test_a_message_that_says_not_where_it_belongs_stops_nobody(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        world.append(SCHEDULE_TOPIC, b"lost")
        world.append(SCHEDULE_TOPIC, b"odd", properties=b"REAL_TOPIC\x01a/b\x02REAL_QID\x010\x02")
        replay(world, world.connect(), delayed(1, b"b"))
        world.later(1_000)
        assert [record.body for record in world.records("Orders")] == [b"b"]
        assert world.context.schedule.progress() == {1: (3, 3)}


def test_what_the_store_refuses_is_delivered_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageWorld(tmp_path) as world:
        for body in (b"a", b"b"):
            replay(world, world.connect(), delayed(1, body))
        real, refusals = world.store.append_nowait, [b"b"]

        def busy(request: AppendRequest) -> AppendResult:
            if request.body in refusals:
                refusals.remove(request.body)
                return AppendResult(AppendStatus.OS_PAGE_CACHE_BUSY, reason="busy")
            return real(request)

        monkeypatch.setattr(world.store, "append_nowait", busy)
        world.later(1_000)
        assert world.context.schedule.progress() == {1: (1, 2)}
        world.later(100)
        assert [record.body for record in world.records("Orders")] == [b"a", b"b"]


def test_the_loop_delivers_by_itself(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        replay(world, world.connect(), delayed(1))
        world.clock.advance(1_000)
        world.context.schedule.start()
        world.loop.run_until_complete(until(lambda: world.records("Orders")))
        world.context.schedule.stop()
        assert len(world.records("Orders")) == 1
