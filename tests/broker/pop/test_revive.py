"""The revive service: what it goes through, what it leaves for later, where a new one goes on."""

from pathlib import Path

from orbitmq.broker.pop.check_point import decode_ack, decode_check_point
from orbitmq.broker.pop.revive import AGAIN_SECONDS, ReviveService
from orbitmq.message import AppendRequest, AppendResult, AppendStatus
from pop_world import GROUP, INVISIBLE_MS, TOPIC, PopWorld

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
RETRY = f"%RETRY%{GROUP}_{TOPIC}"


def progress(world: PopWorld) -> dict[int, int]:
    return dict(world.context.offsets.queues(REVIVE_GROUP, world.engine.log.topic))


def test_progress_is_the_last_check_point_and_never_ahead_of_the_disk(tmp_path: Path) -> None:
    with PopWorld(tmp_path, revive_queues=1) as world:
        world.send("a", "b")
        first = world.pop(max_msg_nums=1)
        world.pop()
        world.ack(first.messages[0])
        world.pass_time(INVISIBLE_MS - 1_000)
        flush = world.store.flush_log
        world.store.flush_log = lambda: None  # type: ignore[method-assign]
        world.pass_time(4_000)
        assert len(world.retried()) == 1
        assert progress(world) == {}
        world.store.flush_log = flush  # type: ignore[method-assign]
        world.work()
        assert progress(world) == {0: 1}  # the ack lies at 2


def test_a_new_service_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    with PopWorld(tmp_path, revive_queues=1, pop_retry_percent=0) as world:
        world.send("a", "b")
        world.pop(max_msg_nums=1)
        world.pass_time(INVISIBLE_MS + 3_000)
        assert len(world.retried()) == 1
        world.pop(queue_id=0, max_msg_nums=1)
        world.pops.revive = ReviveService(world.context, world.engine)
        world.pass_time(INVISIBLE_MS + 3_000)
        assert [record.body for record in world.retried()] == [b"a", b"b"]


def test_nothing_comes_again_before_everything_that_was_due_was_read(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        taken = world.pop()
        world.ack(taken.messages[0])
        world.pass_time(
            INVISIBLE_MS - 1_000
        )  # the check point is read; its ack comes a second later
        assert world.pops.revive.waiting == 1
        world.clock.advance(3_000)
        for _ in range(5):
            world.settle()
            world.store.flush()
            world.pops.revive.look()
            world.pops.revive.tick()
        assert world.retried() == []
        world.pass_time(3_000)
        assert world.retried() == []
        assert world.pops.revive.waiting == 0


def test_a_message_that_cannot_be_put_is_tried_later(tmp_path: Path) -> None:
    with PopWorld(tmp_path, revive_queues=1) as world:
        world.send("a")
        world.pop()
        append, refused = world.store.append_nowait, []

        def refuse(request: AppendRequest, *, flush: bool = True) -> AppendResult:
            if request.topic == RETRY:
                refused.append(request)
                return AppendResult(AppendStatus.OS_PAGE_CACHE_BUSY)
            return append(request, flush=flush)

        world.store.append_nowait = refuse  # type: ignore[method-assign]
        world.pass_time(INVISIBLE_MS + 3_000)
        assert len(refused) == 1
        again = [decode_check_point(one.body) for _, one in world.written()][-1]
        assert (again.times_put, again.offsets) == (1, [0])
        assert again.invisible_ms == INVISIBLE_MS + AGAIN_SECONDS[0] * 1_000
        assert progress(world) == {0: 0}
        world.store.append_nowait = append  # type: ignore[method-assign]
        world.pass_time(AGAIN_SECONDS[0] * 1_000 + 3_000)
        assert world.pop().bodies == ["a"]


def test_nothing_moves_on_while_the_store_takes_nothing_at_all(tmp_path: Path) -> None:
    with PopWorld(tmp_path, revive_queues=1) as world:
        world.send("a")
        world.pop()
        world.pass_time(INVISIBLE_MS - 2_000)
        append = world.store.append_nowait

        def refuse(request: AppendRequest, *, flush: bool = True) -> AppendResult:
            if request.topic.startswith(("%RETRY%", "rmq_sys_REVIVE")) and not request.due:
                return AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE)
            if request.topic == RETRY:
                return AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE)
            return append(request, flush=flush)

        world.store.append_nowait = refuse  # type: ignore[method-assign]
        world.pass_time(20_000)
        assert progress(world) == {}
        assert world.pops.revive.waiting == 1
        world.store.append_nowait = append  # type: ignore[method-assign]
        world.pass_time(1_000)
        assert world.pop().bodies == ["a"]
        assert progress(world) == {0: 0}


def test_giving_up_is_a_setting(tmp_path: Path) -> None:
    for give_up, kept in ((False, 1), (True, 0)):
        with PopWorld(tmp_path / str(give_up), revive_queues=1, pop_give_up=give_up) as world:
            world.send("a")
            world.pop()
            ((_, record),) = world.written()
            point = decode_check_point(record.body)
            point.puts = str(len(AGAIN_SECONDS))
            before = len(world.written())
            queue = world.pops.revive
            world.pops.revive.tick()
            assert queue._put_again(queue._queues[0], point, 0)
            world.settle()
            assert len(world.written()) - before == kept


def test_bodies_that_are_none_are_passed_over(tmp_path: Path) -> None:
    with PopWorld(tmp_path, revive_queues=1) as world:
        topic = world.engine.log.topic
        for tag, body in (("ck", b"{"), ("ck", b'{"n":99}'), ("ack", b"[1]"), ("odd", b"x")):
            properties = f"TAGS\x01{tag}\x02".encode()
            world.store.append(AppendRequest(topic, 0, body, properties))
        world.send("a")
        world.pop()
        world.pass_time(INVISIBLE_MS + 3_000)
        assert world.pop().bodies == ["a"]


def test_older_names_of_acks_are_understood() -> None:
    ack = decode_ack(
        b'{"ackOffset":7,"consumerGroup":"g","popTime":5,"queueId":2,"startOffset":6,"topic":"t"}'
    )
    assert (ack.offsets, ack.check_point_id) == ([7], ("t", "g", 2, 6, 5))


def test_check_points_without_gaps_are_understood() -> None:
    point = decode_check_point(b'{"bm":0,"c":"g","it":9,"n":3,"pt":5,"q":2,"ro":0,"so":6,"t":"t"}')
    assert (point.offsets, point.revive_ms, point.times_put) == ([6, 7, 8], 14, 0)


def test_a_delayed_message_is_not_delayed_again(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.append(
            TOPIC, b"was delayed", properties=b"DELAY\x015\x02TIMER_DELAY_MS\x019\x02", due=True
        )
        assert world.pop().bodies == ["was delayed"]
        world.pass_time(INVISIBLE_MS + 3_000)
        assert world.pop().bodies == ["was delayed"]
