"""A broker is killed at random moments while transactions begin, end and are asked about.

What was committed is in the log exactly once, what was rolled back never: also where the producer did not
hear of the end, or left it to its checker. ORBITMQ_CRASH_ROUNDS sets the number of kills (20 by default, 200
at most), ORBITMQ_CRASH_SEED other moments.
"""

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from async_run import run_async
from compat.our_cluster import SMALL_BROKER, our_namesrv
from compat.server_process import await_route, create_topic
from crash.fork_server import ForkServer
from crash.forked_broker import ForkedBroker
from orbitmq.client import AsyncProducer, Message, ReceivedMessage, TransactionState
from orbitmq.errors import OrbitError
from visible_messages import visible

pytestmark = pytest.mark.crash

KILLS = min(int(os.environ.get("ORBITMQ_CRASH_ROUNDS", "20")), 200)
TOPIC, QUEUES, WORKERS = "TxKilled", 2, 8
SETTINGS = {
    **SMALL_BROKER,
    "transactionTimeOut": "200",
    "transactionCheckInterval": "300",
    "transactionCheckMax": "100000",
    "transactionOpBatchInterval": "200",
    "flushConsumerOffsetInterval": "200",
}
END_SECONDS = 60.0
PAUSE_SECONDS = 0.01  # some of the workers are at it at any moment, the processor is not full
QUIET_SECONDS = 1.0  # some rounds of checks


class Ledger:
    """What became of each transaction, as a database would know it: decided before the message is sent."""

    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)
        self.states: dict[str, TransactionState] = {}
        self.held: set[str] = set()  # the broker said that it has the half message

    def begin(self) -> str:
        body = f"m{len(self.states)}"
        is_good = self.chance.random() < 0.6
        self.states[body] = TransactionState.COMMIT if is_good else TransactionState.ROLLBACK
        return body

    async def check(self, message: ReceivedMessage) -> TransactionState:
        return self.states[message.body.decode()]

    @property
    def wanted(self) -> set[str]:
        return {body for body in self.held if self.states[body] is TransactionState.COMMIT}


async def work(producer: AsyncProducer, ledger: Ledger, stopped: asyncio.Event) -> None:
    """Do one transaction after another."""
    # sleep: the load goes on until it is stopped.
    while not stopped.is_set():
        await transact(producer, ledger, ledger.begin())
        await asyncio.sleep(PAUSE_SECONDS)  # sleep: so many a second


async def transact(producer: AsyncProducer, ledger: Ledger, body: str) -> None:
    """Do one transaction; whatever a dead broker does not answer is left to the checker."""
    try:
        async with producer.transaction(Message(TOPIC, body.encode())) as transaction:
            ledger.held.add(body)
            if ledger.chance.random() < 0.2:
                await transaction.leave_open()
            elif ledger.states[body] is TransactionState.ROLLBACK:
                await transaction.rollback()
    except OrbitError:
        await asyncio.sleep(0.1)  # sleep: the broker is dead, and comes again


async def load_and_kill(namesrv: str, broker: ForkedBroker, seed: str) -> Ledger:
    """Kill as often as wanted; return what should have become of it all, when all has ended."""
    ledger, stopped = Ledger(seed), asyncio.Event()
    chance = random.Random(f"{seed} moments")
    settings = {"retries": 0, "send_timeout_ms": 2_000, "heartbeat_interval_ms": 500}
    async with AsyncProducer(namesrv, "tx-killed", checker=ledger.check, **settings) as producer:
        workers = [asyncio.ensure_future(work(producer, ledger, stopped)) for _ in range(WORKERS)]
        for _ in range(KILLS):
            await asyncio.sleep(chance.uniform(0.1, 0.7))  # sleep: any moment will do
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
        stopped.set()
        await asyncio.gather(*workers)
        await until_all_ended(namesrv, ledger)
    return ledger


async def until_all_ended(namesrv: str, ledger: Ledger) -> None:
    """Wait until every committed message is there, and some rounds more for what must not come."""
    deadline = time.monotonic() + END_SECONDS
    while missing := ledger.wanted - set(await asyncio.to_thread(visible, namesrv, TOPIC)):
        assert time.monotonic() < deadline, f"committed and not there: {sorted(missing)[:5]}"
        await asyncio.sleep(0.3)  # sleep: a round of checks
    await asyncio.sleep(QUIET_SECONDS)  # sleep: for a message that must not come


@pytest.mark.timeout(300 + 10 * KILLS)
def test_a_kill_neither_loses_nor_doubles_what_was_committed(
    tmp_path: Path, seed: str, server: ForkServer
) -> None:
    with our_namesrv(tmp_path) as namesrv:
        broker = ForkedBroker(server, tmp_path / "broker", namesrv.address, SETTINGS)
        broker.start()
        try:
            create_topic(broker.address, TOPIC, QUEUES)
            await_route(namesrv.address, TOPIC)
            ledger = run_async(
                lambda: load_and_kill(namesrv.address, broker, seed), seconds=250 + 10 * KILLS
            )
            found = visible(namesrv.address, TOPIC)
        finally:
            broker.kill()
    assert len(ledger.held) > 10 * KILLS
    twice = [body for body, count in found.items() if count > 1]
    assert not twice, f"{len(twice)} of {len(found)} came twice: {twice[:5]}"
    states = {body: ledger.states[body] for body in found}
    assert set(states.values()) == {TransactionState.COMMIT}, "rolled back, and there"
    assert ledger.wanted <= found.keys()
