"""A primary is killed under load and its replica promoted, again and again: nothing acknowledged is lost.

Sync replication (inSyncReplicas=2), as processes of their own. The killed one comes back as the replica of
the other, and is the next primary. ORBITMQ_FAILOVER_KILLS sets the number of kills (20 by default),
ORBITMQ_CRASH_SEED other moments; a test that fails leaves its history as history.jsonl.
"""

import os
import random
import signal
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pytest

from compat.our_cluster import SMALL_BROKER, our_namesrv
from compat.server_process import ask, await_route, create_topic
from crash.copies import COPIED_TWICE, TOPIC, WAIT_SECONDS, check_copies, left_if_failed
from crash.failover_cluster import FailoverCluster, failover_cluster
from crash.failover_history import FailoverHistory, Told
from crash.fork_server import ForkServer
from crash.forked_broker import ForkedBroker
from orbitmq.client import Admin, Message, Producer, SendStatus
from orbitmq.errors import OrbitError
from orbitmq.wire.codes import RequestCode

pytestmark = [pytest.mark.crash, pytest.mark.feature("F84")]

KILLS: Final = int(os.environ.get("ORBITMQ_FAILOVER_KILLS", "20"))
QUEUES: Final = 3
ROLES: Final = (
    {"brokerRole": "SYNC_MASTER"},
    {"brokerRole": "SLAVE", "brokerId": "1"},
)


class Senders:
    """Two threads that send, each message once, until they are stopped."""

    def __init__(self, namesrv: str, history: FailoverHistory) -> None:
        self.history, self._stopping = history, threading.Event()
        self._producer = Producer(namesrv, "failover", retries=0, route_interval_ms=300)
        names = ("a", "b")
        self._threads = [threading.Thread(target=self._send, args=(name,)) for name in names]

    def __enter__(self) -> "Senders":
        self._producer.open()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._producer.close()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _send(self, name: str) -> None:
        number, history = 0, self.history
        while not self._stopping.is_set():
            body, number = f"{name}-{number}", number + 1
            history.ask(body)
            try:
                result = self._producer.send(Message(TOPIC, body.encode().ljust(300, b" ")))
            except OrbitError:
                history.fail()
                self._stopping.wait(0.05)
                continue
            is_acknowledged = result.status is SendStatus.OK
            told = Told(result.queue.queue_id, result.queue_offset, is_acknowledged)
            history.tell(body, told)
            self._stopping.wait(0.002 if is_acknowledged else 0.1)


def await_acknowledged(history: FailoverHistory, more: int, *brokers: ForkedBroker) -> None:
    wanted, deadline = history.acknowledged + more, time.monotonic() + WAIT_SECONDS
    while history.acknowledged < wanted:
        assert time.monotonic() < deadline, "\n".join(broker.tail() for broker in brokers)
        time.sleep(0.01)


def promote(admin: Admin, broker: ForkedBroker) -> None:
    """Promote a replica whose primary was killed a moment ago: it may not have noticed yet."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            admin.promote(broker.address)
        except OrbitError as error:
            if "is alive" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


@pytest.mark.timeout(180 + 60 * KILLS)
def test_nothing_acknowledged_is_lost_when_a_primary_is_killed_and_its_replica_promoted(
    tmp_path: Path, seed: str
) -> None:
    chance, history = random.Random(seed), FailoverHistory()
    with ExitStack() as stack:
        namesrv = stack.enter_context(our_namesrv(tmp_path)).address
        pair: list[ForkedBroker] = []
        for number, role in enumerate(ROLES):
            # One each: a fork server waits for its broker's end.
            forks = stack.enter_context(closing(ForkServer(tmp_path / f"broker-{number}.txt")))
            given = {**SMALL_BROKER, **COPIED_TWICE, **role}
            pair.append(ForkedBroker(forks, tmp_path / f"broker-{number}", namesrv, given))
            stack.callback(pair[-1].kill)
            pair[-1].start()
        primary, replica = pair
        create_topic(primary.address, TOPIC, QUEUES)
        await_route(namesrv, TOPIC)
        admin = stack.enter_context(Admin(namesrv))
        stack.enter_context(left_if_failed(history, tmp_path))
        with Senders(namesrv, history) as senders:
            for _ in range(KILLS):
                await_acknowledged(history, chance.randrange(5, 150), primary, replica)
                primary.kill()
                promote(admin, replica)
                primary.start()
                primary, replica = replica, primary
            await_acknowledged(history, 100, primary, replica)
            senders.stop()
        check_copies(namesrv, history, pair)
        assert history.acknowledged > 5 * KILLS


def promote_one(cluster: FailoverCluster, old: int) -> int:
    """Promote a replica that has everything, as an operator does: who is refused says why."""
    others = [number for number in range(len(cluster.nodes)) if number != old]
    deadline, remark = time.monotonic() + WAIT_SECONDS, ""
    while True:
        for number in others:
            try:
                code, remark, _ = ask(cluster.nodes[number].direct, RequestCode.PROMOTE_REPLICA)
            except OSError as error:  # it starts again: it was the primary before, and is cut
                code, remark = -1, str(error)
            if code == 0:
                return number
        assert time.monotonic() < deadline, remark
        time.sleep(0.05)


def paused(cluster: FailoverCluster, old: int) -> int:
    """Promote a replica of a primary that sleeps, and wake that one up then."""
    cluster.nodes[old].signal(signal.SIGSTOP)
    new = promote_one(cluster, old)
    cluster.nodes[old].signal(signal.SIGCONT)
    return new


def cut_off(cluster: FailoverCluster, old: int) -> int:
    """Promote a replica of a primary that only its producers reach, and let the others reach it then."""
    cluster.nodes[old].cut_off()
    new = promote_one(cluster, old)
    cluster.nodes[old].heal()
    return new


@pytest.mark.timeout(240)
def test_a_primary_that_was_paused_or_cut_off_during_a_promotion_acknowledges_nothing_that_is_lost(
    tmp_path: Path,
) -> None:
    # Three: the one that is not promoted has to leave the primary before, which it could go on with.
    with failover_cluster(tmp_path, 3, has_etcd=False) as cluster:
        primary = 0
        for scene in (paused, cut_off):
            cluster.await_acks(primary)
            primary = scene(cluster, primary)
        cluster.await_acks(primary)
        cluster.check()
