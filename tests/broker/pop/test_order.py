"""Ordered pops: one batch of a queue at a time, the same attempt may ask again, times of each message."""

import json
from pathlib import Path

from orbitmq.broker.pop.order import ORDER_FILE, OrderTable
from orbitmq.broker.tables.state_files import StateText
from orbitmq.files.state_file import read_state
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.receipt import ORDER_QUEUE
from pop_world import GROUP, INVISIBLE_MS, TOPIC, PopWorld

KEY = GROUP, TOPIC, 0


def test_a_queue_is_blocked_until_its_batch_is_acknowledged(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send(*"abcd")
        taken = world.pop(order=True, max_msg_nums=2)
        assert taken.answer.revive_qid == ORDER_QUEUE
        assert world.pop(order=True).bodies == []
        world.ack(taken.messages[0])
        assert world.pop(order=True).bodies == []
        assert world.committed() == 1
        world.ack(taken.messages[1])
        assert world.committed() == 2
        assert world.pop(order=True).bodies == ["c", "d"]
        assert world.written() == []


def test_what_is_not_acknowledged_in_time_comes_again_from_its_place(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send(*"abc")
        first = world.pop(order=True)
        assert first.answer.order_count_info == "0 0 0"
        world.ack(first.messages[0])
        world.pass_time(INVISIBLE_MS)
        again = world.pop(order=True)
        assert again.bodies == ["b", "c"]
        assert again.answer.order_count_info == "0 qo0%1 1;0 qo0%2 1;0 0 1"


def test_the_attempt_that_has_the_messages_gets_them_again(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send(*"ab")
        first = world.pop(order=True, attempt_id="one")
        assert world.pop(order=True, attempt_id="two").bodies == []
        again = world.pop(order=True, attempt_id="one")
        assert again.bodies == first.bodies == ["a", "b"]
        assert again.answer.order_count_info == "0 0 0"  # its answer was lost: that is no delivery


def test_acks_of_an_earlier_batch_change_nothing(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        late = world.pop(order=True)
        world.pass_time(INVISIBLE_MS)
        world.pop(order=True)
        assert world.ack(late.messages[0]).code == 0
        assert world.committed() == 0
        assert world.pop(order=True).bodies == []


def test_an_ack_of_a_message_that_is_not_in_the_batch_is_refused(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a", "b")
        taken = world.pop(order=True, max_msg_nums=1)
        taken.messages[0].receipt = taken.messages[0].receipt._replace(offset=1)
        answer = world.ack(taken.messages[0])
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_message_can_be_made_visible_earlier_or_later(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        renewed = world.renew(world.pop(order=True).messages[0], 60_000)
        assert renewed.receipt.revive_queue == ORDER_QUEUE
        world.pass_time(INVISIBLE_MS)
        assert world.pop(order=True).bodies == []
        world.renew(renewed, 1_000)
        world.pass_time(1_000)
        assert world.pop(order=True).bodies == ["a"]


def test_who_waits_gets_the_next_messages_when_the_queue_is_free(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a", "b")
        taken = world.pop(order=True, max_msg_nums=1)
        parked = world.park(order=True)
        world.ack(taken.messages[0])
        answer = world.parked_answer(parked)
        assert answer is not None
        assert answer.bodies == ["b"]


def test_who_waits_is_told_when_the_invisible_time_is_over(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        world.pop(order=True)
        timers = world.pops._order_timers
        assert list(timers._timers) == [KEY]
        parked = world.park(order=True)
        world.clock.advance(INVISIBLE_MS)
        timers.wake(KEY)
        answer = world.parked_answer(parked)
        assert answer is not None
        assert answer.bodies == ["a"]


def test_nobody_is_told_without_the_setting(tmp_path: Path) -> None:
    with PopWorld(tmp_path, pop_order_notify=False) as world:
        world.send("a")
        world.pop(order=True)
        assert not world.pops._order_timers._timers


def test_the_table_is_saved_as_rocketmq_does(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send(*"abc")
        taken = world.pop(order=True, attempt_id="try")
        world.ack(taken.messages[0])
        world.renew(taken.messages[1], 50_000)
        now = world.clock.now_ms()
        path = tmp_path / ORDER_FILE
        path.write_text(StateText().text(world.engine.order.snapshot()))
        state = read_state(path)
        row = json.loads(json.dumps(state))["table"][f"{TOPIC}@{GROUP}"]["0"]
        assert row == {
            "popTime": now,
            "i": INVISIBLE_MS,
            "o": [0, 1, 2],
            "ot": {"1": now + 50_000},
            "l": now,
            "cm": 1,
            "a": "try",
        }
        table = OrderTable(world.context)
        table.load(state, path)
        assert table.is_blocked(KEY)
        assert not table.is_blocked(KEY, "try")
        world.clock.advance(INVISIBLE_MS)
        assert table.is_blocked(KEY)  # the second message is invisible for longer
        world.clock.advance(40_000)
        assert not table.is_blocked(KEY)


def test_batches_of_what_is_gone_are_not_saved(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        world.pop(order=True)
        assert world.engine.order.snapshot()["table"]
        world.clock.advance(25 * 3_600_000)
        assert not world.engine.order.snapshot()["table"]
