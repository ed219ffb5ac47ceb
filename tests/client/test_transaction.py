"""Transactions of producers: what is sent when a block ends, and what a broker that asks is told."""

import asyncio
import threading

import pytest

from async_run import run_async, until
from fake_cluster import FakeCluster, hang_up, refuse
from orbitmq.client import AsyncProducer, Message, Producer, TransactionState
from orbitmq.errors import (
    ClientError,
    InvalidMessageError,
    ResponseError,
    SendFailedError,
    TransactionInDoubtError,
)
from orbitmq.format.record import encode_record
from orbitmq.message import AppendRequest, Host
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.transaction import COMMIT, ROLLBACK, UNKNOWN

END = 37
MESSAGE = Message("T", b"paid", tag="A", properties={"order": "17"})
HOST = Host(b"\x7f\x00\x00\x01", 10911)


def run_with_producer(test, **settings):
    async def main():
        async with FakeCluster(["broker-a"]) as cluster:
            cluster.add_topic("T")
            broker = cluster.brokers["broker-a"]
            broker.reactions[END] = lambda connection, request: request.answer()
            async with AsyncProducer(cluster.namesrv_address, "PG", **settings) as producer:
                await test(broker, producer)

    run_async(main)


def ends(broker) -> list[tuple[int, bool]]:
    """Return what the broker heard of ends: the state, and whether the request was one-way."""
    return [
        (int(request.fields["commitOrRollback"]), request.is_oneway)
        for request in broker.of_code(END)
    ]


async def ask(broker, message_id: str, group: str = "PG") -> None:
    """Ask the connected producer what became of a half message."""
    texts = {"UNIQ_KEY": message_id, "PGROUP": group}
    properties = "".join(f"{name}\x01{text}\x02" for name, text in texts.items()).encode()
    body = encode_record(
        AppendRequest("T", 0, b"paid", properties),
        log_offset=500,
        queue_offset=5,
        store_ms=1,
        store_host=HOST,
    )
    fields = {
        "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
        "tranStateTableOffset": "5",
        "commitLogOffset": "500",
        "transactionId": message_id,
        "bname": "broker-a",
    }
    broker.connections[-1].oneway(Command(39, fields, body))


def test_the_end_of_the_block_commits():
    async def test(broker, producer):
        async with producer.transaction(MESSAGE) as transaction:
            assert ends(broker) == []
            assert transaction.state is None
        assert ends(broker) == [(COMMIT, False)]
        assert transaction.state is TransactionState.COMMIT
        (half,), (end,) = broker.sends, broker.of_code(END)
        assert int(half.fields["f"]) == 4
        assert "TRAN_MSG\x01true\x02" in half.fields["i"]
        assert "PGROUP\x01PG\x02" in half.fields["i"]
        assert "order\x0117\x02" in half.fields["i"]
        assert end.fields == {
            "producerGroup": "PG",
            "tranStateTableOffset": str(transaction.result.queue_offset),
            "commitLogOffset": "0",
            "commitOrRollback": "8",
            "fromTransactionCheck": "false",
            "msgId": transaction.transaction_id,
            "transactionId": transaction.transaction_id,
            "topic": "T",
            "bname": "broker-a",
        }
        assert MESSAGE.reserved == {}

    run_with_producer(test)


def test_an_exception_rolls_back_and_goes_on():
    async def test(broker, producer):
        with pytest.raises(KeyError):
            async with producer.transaction(MESSAGE) as transaction:
                raise KeyError("no such order")
        assert ends(broker) == [(ROLLBACK, False)]
        assert transaction.state is TransactionState.ROLLBACK

    run_with_producer(test)


def test_a_rollback_that_fails_does_not_hide_the_exception():
    async def test(broker, producer):
        broker.reactions[END] = refuse(1)
        with pytest.raises(KeyError):
            async with producer.transaction(MESSAGE):
                raise KeyError("no such order")

    run_with_producer(test)


def test_it_may_be_ended_inside_the_block_and_once():
    async def test(broker, producer):
        async with producer.transaction(MESSAGE) as first:
            await first.rollback()
            with pytest.raises(ClientError, match="has ended: ROLLBACK"):
                await first.commit()
        async with producer.transaction(MESSAGE) as second:
            await second.leave_open()
        await until(lambda: ends(broker) == [(ROLLBACK, False), (UNKNOWN, True)])
        with pytest.raises(ClientError, match="used once"):
            async with second:
                pass
        with pytest.raises(ClientError, match="not begun"):
            await producer.transaction(MESSAGE).commit()

    run_with_producer(test)


def test_a_refused_commit_is_told():
    async def test(broker, producer):
        broker.reactions[END] = refuse(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        with pytest.raises(ResponseError, match="group wrong"):
            async with producer.transaction(MESSAGE):
                pass

    run_with_producer(test)


def test_a_commit_without_an_answer_is_in_doubt_and_told_when_asked():
    async def test(broker, producer):
        broker.reactions[END] = hang_up
        with pytest.raises(TransactionInDoubtError, match="checker running") as caught:
            async with producer.transaction(MESSAGE) as transaction:
                pass
        assert caught.value.transaction_id == transaction.transaction_id
        broker.reactions[END] = lambda connection, request: request.answer()
        await producer.send(MESSAGE)  # a connection
        await ask(broker, transaction.transaction_id)
        await until(lambda: len(ends(broker)) == 2)
        told = broker.of_code(END)[-1]
        assert (told.fields["commitOrRollback"], told.is_oneway) == ("8", True)
        assert told.fields["fromTransactionCheck"] == "true"

    run_with_producer(test)


def test_a_half_message_that_is_not_safe_is_rolled_back():
    async def test(broker, producer):
        broker.script = [lambda connection, request: broker.store(connection, request, 10)]
        with pytest.raises(SendFailedError, match="FLUSH_DISK_TIMEOUT"):
            async with producer.transaction(MESSAGE):
                raise AssertionError("the block was entered")
        assert ends(broker) == [(ROLLBACK, False)]

    run_with_producer(test)


@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize("kind", ["coroutine", "plain"])
def test_the_checker_answers_for_transactions_of_others(state, kind):
    seen = []

    async def check(message):
        seen.append((message.message_id, message.body, threading.current_thread()))
        return state

    def check_in_thread(message):
        seen.append((message.message_id, message.body, threading.current_thread()))
        return state

    async def test(broker, producer):
        await producer.send(MESSAGE)
        await ask(broker, "theirs")
        await until(lambda: ends(broker))
        (end,) = broker.of_code(END)
        assert (int(end.fields["commitOrRollback"]), end.is_oneway) == (state.value, True)
        wanted = {"tranStateTableOffset": "5", "commitLogOffset": "500", "msgId": "theirs"}
        assert wanted.items() <= end.fields.items()
        assert seen[0][:2] == ("theirs", b"paid")
        in_loop = seen[0][2] is threading.current_thread()
        assert in_loop is (kind == "coroutine")

    run_with_producer(test, checker=check if kind == "coroutine" else check_in_thread)


def test_an_open_transaction_is_not_the_checkers_business():
    asked = []

    async def check(message):
        asked.append(message)
        return TransactionState.ROLLBACK

    async def test(broker, producer):
        async with producer.transaction(MESSAGE) as transaction:
            await ask(broker, transaction.transaction_id)
            await until(lambda: ends(broker))
            assert ends(broker) == [(UNKNOWN, True)]
        assert asked == []
        assert ends(broker)[-1] == (COMMIT, False)

    run_with_producer(test, checker=check)


@pytest.mark.parametrize("outcome", ["raises", "no state"])
def test_a_checker_that_cannot_say_is_asked_again_later(outcome):
    def check(message):
        if outcome == "raises":
            raise KeyError("no such table")
        return "commit"

    async def test(broker, producer):
        await producer.send(MESSAGE)
        await ask(broker, "theirs")
        await until(lambda: ends(broker))
        assert ends(broker) == [(UNKNOWN, True)]

    run_with_producer(test, checker=check)


def test_without_a_checker_nothing_is_said_of_others():
    async def test(broker, producer):
        await producer.send(MESSAGE)
        await ask(broker, "theirs")
        await ask(broker, "theirs", group="another")
        await producer.send(MESSAGE)
        await asyncio.sleep(0)
        assert ends(broker) == []

    run_with_producer(test)


@pytest.mark.parametrize("delay", [{"delay_level": 3}, {"deliver_ms": 5}])
def test_a_delayed_message_is_refused(delay):
    async def test(broker, producer):
        with pytest.raises(InvalidMessageError, match="delayed"):
            producer.transaction(Message("T", b"x", **delay))

    run_with_producer(test)


def test_checks_can_be_put_off():
    async def test(broker, producer):
        async with producer.transaction(MESSAGE, check_after_s=90, key="order-17"):
            pass
        assert "CHECK_IMMUNITY_TIME_IN_SECONDS\x0190\x02" in broker.sends[0].fields["i"]

    run_with_producer(test)


def test_code_without_asyncio_has_the_same():
    def check(message):
        return TransactionState.COMMIT

    def use(namesrv):
        with Producer(namesrv, "PG", checker=check) as producer:
            with producer.transaction(MESSAGE) as transaction:
                assert transaction.transaction_id == transaction.result.message_id
            assert transaction.state is TransactionState.COMMIT
            with pytest.raises(KeyError), producer.transaction(MESSAGE):
                raise KeyError("no such order")
            for name in ("commit", "rollback", "leave_open"):
                with producer.transaction(MESSAGE) as transaction:
                    getattr(transaction, name)()

    async def main():
        async with FakeCluster(["broker-a"]) as cluster:
            cluster.add_topic("T")
            broker = cluster.brokers["broker-a"]
            broker.reactions[END] = lambda connection, request: request.answer()
            await asyncio.to_thread(use, cluster.namesrv_address)
            states = [COMMIT, ROLLBACK, COMMIT, ROLLBACK, UNKNOWN]
            await until(lambda: [state for state, _ in ends(broker)] == states)

    run_async(main)
