"""Transactions through the front door: our client and a real broker over sockets, also across a restart."""

import threading
from collections import Counter
from pathlib import Path

import pytest

from orbitmq.client import Message, Producer, ReceivedMessage, TransactionState
from orbitmq.files.state_file import read_state
from orbitmq.testing import Broker
from visible_messages import await_visible, visible

pytestmark = pytest.mark.feature("X3")

QUICK = {
    "transactionTimeOut": "100",
    "transactionCheckInterval": "100",
    "transactionOpBatchInterval": "50",
    # On a busy machine an answer may take longer than fifteen such rounds, after which nobody is asked.
    "transactionCheckMax": "1000",
}
TOPIC = "Paid"


class Checker:
    """Says what it is told to, and notes what it was asked."""

    def __init__(self, state: TransactionState) -> None:
        self.state = state
        self.asked: list[str] = []
        self.called = threading.Event()

    def __call__(self, message: ReceivedMessage) -> TransactionState:
        self.asked.append(message.body.decode())
        self.called.set()
        return self.state


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_blocks_decide_and_the_checker_where_they_do_not(tmp_path: Path, flush: str) -> None:
    settings = {**QUICK, "flushDiskType": flush}
    checker = Checker(TransactionState.COMMIT)
    with (
        Broker(tmp_path, settings=settings) as broker,
        Producer(broker.namesrv, "payers", checker=checker) as producer,
    ):
        with producer.transaction(Message(TOPIC, b"good")):
            assert visible(broker.namesrv, TOPIC) == Counter()
        assert visible(broker.namesrv, TOPIC) == Counter(["good"])
        with pytest.raises(KeyError), producer.transaction(Message(TOPIC, b"bad")):
            raise KeyError("no such order")
        with producer.transaction(Message(TOPIC, b"late")) as transaction:
            transaction.leave_open()
        await_visible(broker.namesrv, TOPIC, ["good", "late"])
        assert visible(broker.namesrv, TOPIC) == Counter(["good", "late"])
        assert set(checker.asked) == {"late"}


def test_what_waits_goes_on_after_a_restart(tmp_path: Path) -> None:
    checker = Checker(TransactionState.COMMIT)
    with Broker(tmp_path, settings=QUICK) as broker, Producer(broker.namesrv, "payers") as producer:
        with producer.transaction(Message(TOPIC, b"good")):
            pass
        with producer.transaction(Message(TOPIC, b"late")) as transaction:
            transaction.leave_open()
    counts = read_state(tmp_path / "config" / "transactionMetrics")["transactionCount"]
    assert counts[TOPIC]["count"] == 1
    with (
        Broker(tmp_path, settings=QUICK) as broker,
        Producer(broker.namesrv, "payers", checker=checker) as producer,
    ):
        producer.send(Message("Other", b"so that the broker knows the producer"))
        await_visible(broker.namesrv, TOPIC, ["good", "late"])
        assert visible(broker.namesrv, TOPIC) == Counter(["good", "late"])
        assert checker.asked == ["late"]
    offsets = read_state(tmp_path / "config" / "consumerOffset.json")["offsetTable"]
    half = offsets["RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS"]["0"]
    op = offsets["RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS"]["0"]
    assert half >= 2
    assert op >= 1


def test_a_transaction_that_is_still_open_is_left_alone(tmp_path: Path) -> None:
    checker = Checker(TransactionState.ROLLBACK)
    with (
        Broker(tmp_path, settings=QUICK) as broker,
        Producer(broker.namesrv, "payers", checker=checker) as producer,
    ):
        with producer.transaction(Message(TOPIC, b"slow")):
            assert not checker.called.wait(0.5)
        assert visible(broker.namesrv, TOPIC) == Counter(["slow"])
