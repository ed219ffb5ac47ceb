"""Pops: what is taken, what comes again, and where the group is afterwards."""

from pathlib import Path

import pytest

from orbitmq.broker.pop.check_point import decode_check_point
from orbitmq.message import AppendRequest, AppendResult, AppendStatus
from orbitmq.wire.codes import ResponseCode
from pop_world import GROUP, INVISIBLE_MS, TOPIC, PopWorld

RETRY_V1 = f"%RETRY%{GROUP}_{TOPIC}"
RETRY_V2 = f"%RETRY%{GROUP}+{TOPIC}"


def test_each_pop_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a", "b", "c")
        first, second = world.pop(max_msg_nums=2), world.pop()
        assert (first.bodies, second.bodies) == (["a", "b"], ["c"])
        assert first.answer.start_offset_info == "0 0 0"
        assert first.answer.msg_offset_info == "0 0 0,1"
        assert (first.answer.rest_num, second.answer.rest_num) == (1, 0)
        assert world.pop().code == ResponseCode.POLLING_TIMEOUT


def test_a_check_point_says_what_was_taken(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a", "b", TAGS="x")
        world.send("c", TAGS="y")
        world.send("d", TAGS="x")
        assert world.pop(exp="x", exp_type="TAG").bodies == ["a", "b", "d"]
        ((due_ms, request),) = world.written()
        point = decode_check_point(request.body)
        now = world.clock.now_ms()
        assert (point.topic, point.group, point.queue_id, point.broker) == (
            *(TOPIC, GROUP, 0, "broker-a"),
        )
        assert (point.start_offset, point.gaps, point.count) == (0, [0, 1, 3], 3)
        assert (point.pop_ms, point.invisible_ms) == (now, INVISIBLE_MS)
        assert due_ms == now + INVISIBLE_MS - 1_000


def test_all_queues_are_read_for_one_pop(tmp_path: Path) -> None:
    with PopWorld(tmp_path, queues=4) as world:
        for queue_id in range(4):
            world.send(f"{queue_id}a", f"{queue_id}b", queue_id=queue_id)
        assert sorted(world.pop().bodies) == sorted(f"{q}{m}" for q in range(4) for m in "ab")


def test_only_the_queue_that_was_asked_for_is_read(tmp_path: Path) -> None:
    with PopWorld(tmp_path, queues=2) as world:
        world.send("a", queue_id=0)
        world.send("b", queue_id=1)
        assert world.pop(queue_id=1).bodies == ["b"]


def test_acknowledged_messages_do_not_come_again_and_others_do(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a", "b", "c", KEYS="k")
        taken = world.pop()
        assert world.ack(taken.messages[1]).code == 0
        world.pass_time(INVISIBLE_MS - 1_000)
        assert world.pop().bodies == []
        world.pass_time(6_000)
        again = world.pop()
        assert again.bodies == ["a", "c"]
        for message in again.messages:
            record = message.record
            assert record.reconsume_times == 1
            assert record.topic == TOPIC
            assert record.property_map["KEYS"] == "k"
            assert record.property_map["1ST_POP_TIME"] == str(taken.answer.pop_time)
            assert record.property_map["POP_CK"] == message.receipt.text
            assert message.receipt.kind == "1"


def test_a_message_that_came_again_can_be_acknowledged(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        world.pop()
        world.pass_time(INVISIBLE_MS + 5_000)
        again = world.pop()
        assert world.ack(again.messages[0]).code == 0
        world.pass_time(INVISIBLE_MS + 5_000)
        assert world.pop().bodies == []
        assert len(world.retried()) == 1


def test_each_time_it_comes_again_the_message_counts_one_more(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        first = world.pop()
        times = []
        for _ in range(3):
            world.pass_time(INVISIBLE_MS + 5_000)
            (message,) = world.pop().messages
            times.append(message.record.reconsume_times)
            assert message.record.property_map["1ST_POP_TIME"] == str(first.answer.pop_time)
        assert times == [1, 2, 3]


def test_a_renewed_message_comes_again_at_its_new_time(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a", "b")
        taken = world.pop()
        world.ack(taken.messages[1])
        world.pass_time(5_000)
        renewed = world.renew(taken.messages[0], 30_000)
        assert renewed.receipt.start_offset == renewed.receipt.offset == 0
        world.pass_time(28_000)
        assert world.pop().bodies == []
        world.pass_time(6_000)
        (again,) = world.pop().messages
        assert again.body == "a"
        # Of the check point that expired, which is that of the change.
        assert again.record.property_map["1ST_POP_TIME"] == str(renewed.receipt.pop_ms)


def test_a_renewed_message_is_acknowledged_with_its_new_receipt(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        renewed = world.renew(world.pop().messages[0], 20_000)
        assert world.ack(renewed).code == 0
        world.pass_time(40_000)
        assert world.pop().bodies == []


def test_the_consumer_offset_follows_when_the_check_point_is_on_disk(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a", "b")
        world.store.flush()
        world.pop()
        assert world.committed() == 0
        world.store.flush()
        world.pops.tick()
        assert world.committed() == 2


def test_a_pop_that_cannot_be_written_down_takes_nothing(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        world.refused = AppendResult(AppendStatus.WHEEL_TIMER_FLOW_CONTROL, reason="full")
        refused = world.pop()
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "WHEEL_TIMER_FLOW_CONTROL" in refused.remark
        world.refused = None
        assert world.pop().bodies == ["a"]


def test_an_ack_that_cannot_be_written_down_is_refused(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        taken = world.pop()
        world.refused = AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE)
        assert world.ack(taken.messages[0]).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(("in_memory", "bodies"), [(True, ["a", "b", "c"]), (False, ["c"])])
def test_a_new_group_may_begin_at_the_end(
    tmp_path: Path, in_memory: bool, bodies: list[str]
) -> None:
    with PopWorld(tmp_path, pop_init_in_memory=in_memory) as world:
        world.send("a", "b", "c")
        assert world.pop(init_mode=1).bodies == bodies


def test_messages_that_a_filter_does_not_want_are_passed_over(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a", "b", TAGS="other")
        assert world.pop(exp="wanted", exp_type="TAG").bodies == []
        assert world.committed() == 2
        world.send("c", TAGS="wanted")
        assert world.pop(exp="wanted", exp_type="TAG").bodies == ["c"]


def test_a_pop_can_filter_by_properties(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("low", price="3")
        world.send("high", price="30")
        assert world.pop(exp="price > 10", exp_type="SQL92").bodies == ["high"]
        refused = world.pop(exp="price >", exp_type="SQL92")
        assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_retry_topics_may_have_their_newer_names(tmp_path: Path) -> None:
    with PopWorld(tmp_path, pop_retry_percent=0) as world:
        world.send("a", "b")
        world.pop(max_msg_nums=1)
        world.pass_time(INVISIBLE_MS + 5_000)
        world.config.retry_topic_v2 = True
        world.pop(max_msg_nums=1, queue_id=0)
        world.pass_time(INVISIBLE_MS + 5_000)
        assert [len(world.retried(topic)) for topic in (RETRY_V1, RETRY_V2)] == [1, 1]
        kinds: set[str] = set()
        for _ in range(200):  # which of both is looked at is drawn
            kinds |= {message.receipt.kind for message in world.pop().messages}
            if len(kinds) == 2:
                break
        assert kinds == {"1", "2"}


def test_the_older_retry_topic_can_be_left_alone(tmp_path: Path) -> None:
    with PopWorld(tmp_path, retry_topic_both=False) as world:
        world.send("a")
        world.pop()
        world.pass_time(INVISIBLE_MS + 5_000)
        world.config.retry_topic_v2 = True
        assert not any(world.pop().bodies for _ in range(50))


@pytest.mark.parametrize(("percent", "first"), [(100, "again"), (0, "new")])
def test_retries_come_before_or_after_the_topic_itself(
    tmp_path: Path, percent: int, first: str
) -> None:
    with PopWorld(tmp_path, pop_retry_percent=percent) as world:
        world.send("again")
        world.pop()
        world.pass_time(INVISIBLE_MS + 5_000)
        world.send("new")
        assert world.pop(max_msg_nums=1).bodies == [first]


def test_messages_of_a_retry_topic_may_come_as_they_lie(tmp_path: Path) -> None:
    with PopWorld(tmp_path, pop_actual_retry_topic=True) as world:
        world.send("a")
        world.pop()
        world.pass_time(INVISIBLE_MS + 5_000)
        (message,) = world.pop().messages
        assert message.record.topic == RETRY_V1
        assert "POP_CK" not in message.record.property_map


def test_too_many_messages_in_flight_stop_a_queue(tmp_path: Path) -> None:
    with PopWorld(tmp_path, pop_in_flight_limit=True, pop_in_flight_max=2) as world:
        world.send(*"abcdef")
        taken = world.pop(max_msg_nums=3)
        stopped = world.pop(max_msg_nums=1)
        assert (stopped.bodies, stopped.answer.rest_num) == ([], 3)
        for message in taken.messages:
            world.ack(message)
        assert world.pop(max_msg_nums=1).bodies == ["d"]


def test_queue_and_group_have_their_own_progress(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        assert world.pop().bodies == world.pop(consumer_group="Other").bodies == ["a"]


def test_what_was_not_dispatched_yet_is_found(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.store.append(AppendRequest(TOPIC, 0, b"fresh"))
        assert world.pop().bodies == ["fresh"]
