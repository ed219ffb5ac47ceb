"""Questions to producers: when, to whom, how often, and what becomes of their answers."""

from pathlib import Path

import pytest

from orbitmq.format.record import decode_record
from orbitmq.units import HOUR_MS
from orbitmq.wire.command import Command
from transaction_world import CHECK_MAX_TOPIC, COMMIT, HALF_TOPIC, ROLLBACK, TransactionWorld


def test_a_producer_is_asked_and_its_answer_counts(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        producer = world.join()
        world.half(b"yes"), world.half(b"no", key="K2")
        world.round()
        first, second = producer.take()
        assert [(first.code, first.flag), (second.code, second.flag)] == [(39, 2), (39, 2)]
        assert world.end(first, COMMIT).code == 0
        assert world.end(second, ROLLBACK).code == 0
        assert world.bodies() == [b"yes"]
        world.round()
        assert producer.take() == []
        assert world.transactions.table.checked == 4


def test_a_question_shows_the_message_at_the_place_of_its_copy(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        producer = world.join()
        world.half(b"paid", h=5)
        world.round()
        (question,) = producer.take()
        fields = question.fields or {}
        first, copy = world.records(HALF_TOPIC)
        assert fields == {
            "topic": HALF_TOPIC,
            "tranStateTableOffset": "1",
            "commitLogOffset": str(copy.log_offset),
            "msgId": "K1",
            "transactionId": "K1",
            "offsetMsgId": copy.offset_id,
            "bname": "broker-a",
        }
        asked = decode_record(question.body)
        assert (asked.topic, asked.queue_id, asked.body, asked.flag) == ("Orders", 1, b"paid", 5)
        assert (asked.queue_offset, asked.log_offset) == (1, copy.log_offset)
        wanted = {**first.property_map, "TRANSACTION_CHECK_TIMES": "1"}
        assert copy.property_map == wanted
        assert asked.property_map == {**wanted, "WAIT": "false"}
        assert (copy.born_ms, copy.flag, copy.sys_flag) == (first.born_ms, 5, 0)


def test_no_producer_is_asked_before_the_timeout(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path, transaction_check_ms=1_000) as world:
        producer = world.join()
        world.half()
        world.round(6_000)
        assert producer.take() == []
        world.round(1_000)
        assert len(producer.take()) == 1


def test_rounds_come_at_their_interval(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path, transaction_check_ms=10_000) as world:
        producer = world.join()
        world.half()
        world.round(9_000)
        assert producer.take() == []
        world.round(1_000)
        assert len(producer.take()) == 1
        world.context.config.transaction_check_ms = 2_000  # at run time
        world.round(2_000)
        assert len(producer.take()) == 1


def test_the_producers_of_a_group_are_asked_in_turn_and_others_never(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        members, stranger = [world.join() for _ in range(2)], world.join("Other")
        for number in range(4):
            world.half(key=f"K{number}")
        world.round()
        assert [len(member.take()) for member in members] == [2, 2]
        world.disconnect(members[0])
        world.round()
        assert [len(member.take()) for member in members] == [0, 4]
        assert stranger.take() == []


def test_nobody_to_ask_counts_as_well(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path, transaction_check_max=2) as world:
        half = world.half()
        for _ in range(3):
            world.round()
        (given_up,) = world.records(CHECK_MAX_TOPIC)
        assert given_up.property_map["TRANSACTION_CHECK_TIMES"] == "2"
        assert (given_up.body, given_up.property_map["REAL_TOPIC"]) == (b"paid", "Orders")
        assert world.context.topics.get(CHECK_MAX_TOPIC).read_queue_nums == 1
        assert world.transactions.counts.snapshot()["transactionCount"]["Orders"]["count"] == 0
        world.round()
        assert len(world.records(HALF_TOPIC)) == 3
        # What was given up is not the last word.
        assert world.end(half).code == 0
        assert world.bodies() == [b"paid"]
        assert world.end(half).code == 0
        assert world.bodies() == [b"paid"]


def test_a_transaction_that_was_given_up_can_be_resumed(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path, transaction_check_max=1) as world:
        world.half()
        world.round()
        world.round()
        producer = world.join()
        (given_up,) = world.records(CHECK_MAX_TOPIC)
        resume = Command(323, {"msgId": given_up.offset_id, "topic": CHECK_MAX_TOPIC}, opaque=9)
        assert world.ask(world.client, resume).code == 0
        world.round()
        (question,) = producer.take()
        assert decode_record(question.body).property_map["TRANSACTION_CHECK_TIMES"] == "1"
        assert world.end(question).code == 0
        assert world.bodies() == [b"paid"]
        answer = world.ask(world.client, resume)
        assert answer.code == 1
        assert "committed" in (answer.remark or "")


def test_a_half_message_older_than_the_log_may_be_is_given_up(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path, store={"retention_ms": 2 * HOUR_MS}) as world:
        world.half()
        world.round(2 * HOUR_MS + 1)
        (given_up,) = world.records(CHECK_MAX_TOPIC)
        assert given_up.property_map["TRANSACTION_CHECK_TIMES"] == "1"
        assert len(world.records(HALF_TOPIC)) == 1


def test_a_longer_immunity_does_not_stop_those_behind_it(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        producer = world.join()
        world.half(b"slow", more={"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"})
        world.half(b"quick", key="K2")
        world.round()
        (question,) = producer.take()
        assert decode_record(question.body).body == b"quick"
        immune = world.records(HALF_TOPIC)[2].property_map
        assert immune["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
        assert (immune["WAIT"], immune["TRANSACTION_CHECK_TIMES"]) == ("false", "1")
        world.end(question)
        world.round()
        (question,) = producer.take()
        assert decode_record(question.body).body == b"slow"


def test_the_first_half_message_may_be_ended_while_its_copy_waits(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        producer = world.join()
        half = world.half()
        world.round()
        (question,) = producer.take()
        assert world.end(half).code == 0  # late, and before the answer to the question
        assert world.end(question).code == 0
        assert world.bodies() == [b"paid"]
        assert world.transactions.ops.write()
        assert world.ops() == [b"1,"]
        world.round()
        assert producer.take() == []


def test_a_message_from_the_future_is_asked_about(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        producer = world.join()
        world.half(g=world.clock.now_ms() + HOUR_MS)
        world.round()
        assert len(producer.take()) == 1


def test_what_is_young_ends_the_round(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        producer = world.join()
        world.half(key="K1")
        world.clock.advance(28_000)
        world.half(key="K2")
        world.half(key="K3", g=world.clock.now_ms() - HOUR_MS)  # old, but behind a young one
        world.round(3_000)
        assert [q.fields["msgId"] for q in producer.take()] == ["K1"]
        world.round()
        assert [q.fields["msgId"] for q in producer.take()] == ["K2", "K3", "K1"]


@pytest.mark.parametrize("text", ["x", "-1", "99999999999999999999"])
def test_an_immunity_that_is_no_number_is_the_timeout(tmp_path: Path, text: str) -> None:
    with TransactionWorld(tmp_path) as world:
        producer = world.join()
        world.half(more={"CHECK_IMMUNITY_TIME_IN_SECONDS": text})
        world.round()
        assert len(producer.take()) == 1


def test_a_long_round_lets_others_have_their_turn(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        producer = world.join()
        for number in range(300):
            world.half(key=f"K{number}")
        world.clock.advance(31_000)
        world.transactions.tick()
        assert len(producer.take()) == 256
        assert world.in_round
        world.transactions.tick()
        assert len(producer.take()) == 44


def test_offsets_are_saved_when_the_disk_has_what_they_speak_of(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        world.end(world.half(), ROLLBACK)
        world.half(key="K2")
        world.store.flush()
        world.clock.advance(31_000)
        world.settle()
        world.transactions.tick()
        assert world.transactions.table.checked == 2
        world.transactions.tick()
        assert world.offsets() == (-1, -1)  # the copy of K2 is not on disk
        world.store.flush()
        world.transactions.tick()
        assert world.offsets() == (2, 1)


def test_a_stop_makes_everything_durable_and_saves_offsets(tmp_path: Path) -> None:
    with TransactionWorld(tmp_path) as world:
        world.flushes = False
        world.transactions.start()
        world.end(world.half(), oneway=True)
        world.half(key="K2")
        world.round()
        assert world.ops() == []
        world.transactions.stop()
        assert world.ops() == [b"0,"]
        assert world.store.flushed_offset == world.store.max_log_offset
        assert world.offsets() == (2, 1)
