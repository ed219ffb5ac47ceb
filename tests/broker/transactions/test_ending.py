"""Half messages and their ends: what is stored, what is refused, what happens only once."""

from pathlib import Path

import pytest

from async_run import until
from message_replay import replay, send_command
from orbitmq.message import SysFlag
from orbitmq.store.config import FlushMode
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.command import Command
from orbitmq.wire.fast.kernels import plain
from orbitmq.wire.frame import encode_command
from transaction_world import (
    CHECK_MAX_TOPIC,
    COMMIT,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    ROLLBACK,
    UNKNOWN,
    TransactionWorld,
    end_command,
)


def test_nobody_sees_a_half_message_and_everybody_a_committed_one(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        answer = world.half(b"paid", h=77)
        assert world.bodies() == []
        (half,) = world.records(HALF_TOPIC)
        assert (half.queue_id, half.sys_flag, half.flag) == (0, 0, 77)
        assert half.property_map["REAL_TOPIC"] == "Orders"
        assert half.property_map["REAL_QID"] == "1"
        assert half.property_map["__transactionId__"] == "K1"
        assert (answer.fields or {})["queueId"] == "1"

        done = world.end(answer)
        assert (done.code, done.remark, done.fields) == (0, None, None)
        (message,) = world.records("Orders", 1)
        assert message.sys_flag & SysFlag.TRANSACTION == SysFlag.COMMIT
        assert message.prepared_offset == half.log_offset
        assert message.properties == half.properties
        same = ("body", "flag", "born_ms", "born_host", "store_host", "reconsume_times")
        assert [getattr(message, name) for name in same] == [getattr(half, name) for name in same]


def test_nobody_ever_sees_a_message_that_was_rolled_back(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        done = world.end(world.half(), ROLLBACK)
        assert (done.code, done.remark) == (0, "not set any response code")
        world.round()
        assert world.bodies() == []


def test_who_waits_for_a_rollback_finds_it_in_the_log(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        first, second = world.half(), world.half(key="K2")
        world.end(first, ROLLBACK, oneway=True)
        assert world.ops() == []  # it waits for others
        assert world.end(second, ROLLBACK).code == 0
        assert world.ops() == [b"0,1,"]


def test_ends_wait_for_each_other_until_their_interval_is_over(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path, op_batch_ms=1_000) as world:
        world.transactions.start()
        for number in range(3):
            world.end(world.half(key=f"K{number}"), oneway=True)
        assert world.ops() == []
        world.loop.run_until_complete(until(lambda: world.transactions.ops.count == 0))
        assert world.ops() == [b"0,1,2,"]
        (op,) = world.records(OP_HALF_TOPIC)
        assert op.property_map == {"WAIT": "true", "TAGS": "d"}
        assert op.born_host == op.store_host
        world.transactions.stop()


def test_an_op_message_holds_no_more_than_its_size(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path, op_message_bytes_max=4) as world:
        world.transactions.ops.add([0, 1])
        world.turn()
        assert world.ops() == []
        world.transactions.ops.add([2, 3, 4])  # more than fits: these do not wait
        world.turn()
        assert world.ops() == [b"0,1,", b"2,3,", b"4,"]


def test_who_does_not_know_yet_gets_no_answer(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        answer = world.half()
        assert world.end(answer, UNKNOWN) is None
        assert world.end(answer).code == 0
        assert world.bodies() == [b"paid"]


@pytest.mark.parametrize(
    ("changed", "remark"),
    [
        ({"producerGroup": "Other"}, "The producer group wrong"),
        ({"tranStateTableOffset": 1}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 99_999}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 3}, "Find prepared transaction message failed"),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 2**63 - 1}, "Find prepared transaction message failed"),
        ({"tranStateTableOffset": -(2**63)}, "The transaction state table offset wrong"),
        ({"commitLogOffset": "x"}, "header field commitLogOffset"),
        ({"commitOrRollback": 5}, "commitOrRollback field wrong"),
    ],
)
@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
def test_an_end_that_fits_no_half_message_is_refused(
    tmp_path: Path, changed: dict, remark: str, state: int
) -> None:
    with TransactionWorld(tmp_path) as world:
        answer = world.end(world.half(), state, **changed)
        assert answer.code == 1
        assert (answer.remark or "").startswith(remark)
        world.transactions.ops.write()
        assert (world.bodies(), world.ops()) == ([], [])


def test_a_message_that_is_no_half_message_cannot_be_committed(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        first = world.half()
        world.end(first)
        (message,) = world.records("Orders", 1)
        changed = {"commitLogOffset": message.log_offset, "tranStateTableOffset": 0}
        answer = world.end(first, **changed)
        assert (answer.code, answer.remark) == (1, "Find prepared transaction message failed")
        assert world.bodies() == [b"paid"]


def test_a_transaction_ends_once(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        committed, rolled_back = world.half(b"yes"), world.half(b"no", key="K2")
        assert world.end(committed).code == 0
        assert world.end(committed).code == 0  # it may not have heard the answer
        assert world.end(rolled_back, ROLLBACK).code == 0
        assert world.end(rolled_back, ROLLBACK).code == 0
        for half, state, was in (
            (committed, ROLLBACK, "committed"),
            (rolled_back, COMMIT, "rolled"),
        ):
            answer = world.end(half, state)
            assert answer.code == 1
            assert was in (answer.remark or "")
        assert world.bodies() == [b"yes"]


def test_an_end_long_after_is_told_what_became_of_it(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        committed, rolled_back = world.half(b"yes"), world.half(b"no", key="K2")
        world.end(committed)
        world.end(rolled_back, ROLLBACK)
        world.round()
        world.round()
        assert world.transactions.table.checked == 2
        assert world.end(committed).code == 0
        assert world.end(rolled_back, ROLLBACK).code == 0
        assert world.end(rolled_back).code == 1
        assert world.end(committed, ROLLBACK).code == 1
        assert world.bodies() == [b"yes"]


def test_after_its_immunity_an_end_has_to_wait_for_the_question(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        answer = world.half(more={"CHECK_IMMUNITY_TIME_IN_SECONDS": "20"})
        world.clock.advance(20_001)
        for state in (COMMIT, ROLLBACK):
            assert world.end(answer, state).code == 604
        assert world.end(answer, fromTransactionCheck="true").code == 0


def test_no_immunity_is_shorter_than_the_timeout(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        answer = world.half(more={"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"})
        world.clock.advance(6_000)
        assert world.end(answer).code == 0


def test_a_committed_message_is_delayed_and_a_half_message_is_not(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        answer = world.half(more={"DELAY": "3"})
        assert len(world.records(HALF_TOPIC)) == 1
        assert world.end(answer).code == 0
        assert world.bodies() == []
        world.later(9_999)
        assert world.bodies() == []
        world.later(2)
        assert world.bodies() == [b"paid"]


def test_transactions_can_be_forbidden(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path, reject_transactions=True) as world:
        text = "UNIQ_KEY\x01K1\x02TRAN_MSG\x01true\x02PGROUP\x01Pid\x02"
        answer = replay(world, world.client, send_command(properties=text))
        assert answer.code == 16
        assert answer.remark == "the broker[127.0.0.1] sending transaction message is forbidden"
        retry = replay(
            world, world.client, send_command(properties=f"{text}DELAY\x011\x02", j=1, queue_id=1)
        )
        assert retry.code == 0  # an old client's retry, which leaves the property in
        world.later(1_000)
        assert world.bodies() == [b"hello"]


def test_a_topic_in_memory_has_no_transactions(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path, memory_topics=True) as world:
        config = TopicConfig(topic_name="Fast", attributes={"memory.topic": "true"})
        world.context.topics.put(config)
        text = "UNIQ_KEY\x01K1\x02TRAN_MSG\x01true\x02PGROUP\x01Pid\x02"
        answer = replay(world, world.client, send_command("Fast", properties=text))
        assert answer.code == 16
        assert "kept in memory" in (answer.remark or "")


def test_with_sync_flush_an_end_is_answered_when_it_is_on_disk(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path, store={"flush_mode": FlushMode.SYNC}) as world:
        for state in (COMMIT, ROLLBACK):
            half = world.half(key=f"K{state}")
            flushed = world.store.flushed_offset
            world.handler.on_commands(world.client, [end_command(half, state)])
            assert world.client.take() == []
            assert world.store.flushed_offset == flushed
            world.turn()
            (answer,) = world.client.take()
            assert answer.code == 0
            assert world.store.flushed_offset == world.store.max_log_offset > flushed


def test_open_transactions_are_counted_by_topic(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        counts = world.transactions.counts
        halves = [world.half(key=f"K{number}") for number in range(3)]
        assert counts.snapshot()["transactionCount"]["Orders"]["count"] == 3
        world.end(halves[0])
        world.end(halves[0])
        world.end(halves[1], ROLLBACK)
        assert counts.snapshot()["transactionCount"]["Orders"]["count"] == 1
        world.context.topics.delete("Orders")
        assert counts.snapshot()["transactionCount"] == {}


def test_only_what_was_given_up_can_be_resumed(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        half = world.half()
        answer = world.ask(world.client, Command(323, {"msgId": half.fields["msgId"]}, opaque=3))
        assert answer.code == 1
        assert CHECK_MAX_TOPIC in (answer.remark or "")
        for message_id in ("no id", f"{'0' * 16}{'F' * 16}", half.fields["msgId"][:-1] + "7"):
            answer = world.ask(world.client, Command(323, {"msgId": message_id}, opaque=4))
            assert answer.code == 1
        answer = world.ask(world.client, Command(323, {}, opaque=5))
        assert answer.code == 29


def test_nobody_sends_to_the_topic_of_half_messages(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        world.sends.fast_way.use(plain())
        world.half()
        frame = encode_command(send_command(HALF_TOPIC))
        assert world.sends.take(world.client, frame) == 0
        assert replay(world, world.client, send_command(HALF_TOPIC)).code == 16
        assert len(world.records(HALF_TOPIC)) == 1


def test_a_commit_is_listed_when_the_disk_has_its_message(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        world.flushes = False
        yes, no = world.half(), world.half(key="K2")
        world.end(yes)
        world.end(no, ROLLBACK)
        assert world.ops() == [b"1,"]
        world.store.flush_log()
        assert world.transactions.ops.write()
        assert world.ops() == [b"1,", b"0,"]
