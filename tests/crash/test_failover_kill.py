"""A primary is killed under load and its replica promoted, again and again: nothing acknowledged is lost.

Sync replication (inSyncReplicas=2), as real processes. The killed one comes back as the replica of the other,
and is the next primary. ORBITMQ_FAILOVER_KILLS sets the number of kills (5 by default), ORBITMQ_CRASH_SEED
other moments; a test that fails leaves its history as history.jsonl.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from compat.our_cluster import our_broker, our_namesrv
from compat.server_process import ServerProcess, await_route, create_topic
from crash.etcd_cluster import Node, etcd_cluster
from crash.failover_history import FailoverHistory, Told
from orbitmq.client import Admin, Message, Producer, PullConsumer, SendStatus
from orbitmq.errors import OrbitError

pytestmark = [pytest.mark.crash, pytest.mark.feature("F84")]

KILLS: Final = int(os.environ.get("ORBITMQ_FAILOVER_KILLS", "5"))
SEED: Final = int(os.environ.get("ORBITMQ_CRASH_SEED", "0"))
TOPIC: Final = "Failover"
QUEUES: Final = 3
WAIT_SECONDS: Final = 60.0
COMMON: Final = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "haSendHeartbeatInterval": "500",
    "stateSyncInterval": "200",
    "inSyncReplicas": "2",
    "slaveTimeout": "1000",
}


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


def await_acknowledged(history: FailoverHistory, more: int, *brokers: ServerProcess) -> None:
    wanted, deadline = history.acknowledged + more, time.monotonic() + WAIT_SECONDS
    while history.acknowledged < wanted:
        assert time.monotonic() < deadline, "\n".join(broker.tail() for broker in brokers)
        time.sleep(0.01)


def promote(admin: Admin, broker: ServerProcess) -> None:
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


def await_equal(one: ServerProcess, other: ServerProcess, admin: Admin) -> int:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        figures = [admin.broker_runtime(broker.address) for broker in (one, other)]
        ends = {int(figure["commitLogMaxOffset"]) for figure in figures}
        if len(ends) == 1:
            return ends.pop()
        assert time.monotonic() < deadline, f"{ends}\n{one.tail()}\n{other.tail()}"
        time.sleep(0.05)


def log_bytes(broker: ServerProcess, end: int) -> bytes:
    files = sorted((broker.root / "store" / "commitlog").iterdir())
    assert int(files[0].name) == 0
    return b"".join(file.read_bytes() for file in files)[:end]


def read_queues(namesrv: str) -> dict[int, list[str]]:
    """Return what each queue holds."""
    read: dict[int, list[str]] = {}
    with PullConsumer(namesrv, "reader", auto_commit=False) as reader:
        for queue in reader.topic_queues(TOPIC):
            bodies: list[str] = []
            while found := reader.pull(queue, len(bodies), count=32).messages():
                bodies += [message.body.decode().rstrip() for message in found]
            read[queue.queue_id] = bodies
    return read


@contextmanager
def told(history: FailoverHistory, directory: Path) -> Iterator[None]:
    """Leave the history behind if the test fails."""
    try:
        yield
    except BaseException:
        (directory / "history.jsonl").write_text("\n".join(history.lines()) + "\n")
        raise


@pytest.mark.timeout(180 + 60 * KILLS)
def test_nothing_acknowledged_is_lost_when_a_primary_is_killed_and_its_replica_promoted(
    tmp_path: Path,
) -> None:
    chance, history = random.Random(f"failover {SEED}"), FailoverHistory()
    with ExitStack() as stack:
        namesrv = stack.enter_context(our_namesrv(tmp_path)).address
        given = {"namesrv": namesrv, "name": "broker-f"}
        one = our_broker(
            tmp_path / "one", settings={**COMMON, "brokerRole": "SYNC_MASTER"}, **given
        )
        role = {"brokerRole": "SLAVE", "brokerId": "1"}
        other = our_broker(tmp_path / "other", settings={**COMMON, **role}, **given)
        primary, replica = stack.enter_context(one), stack.enter_context(other)
        create_topic(primary.address, TOPIC, QUEUES)
        await_route(namesrv, TOPIC)
        admin = stack.enter_context(Admin(namesrv))
        stack.enter_context(told(history, tmp_path))
        with Senders(namesrv, history) as senders:
            for _ in range(KILLS):
                await_acknowledged(history, chance.randrange(20, 300), primary, replica)
                primary.kill()
                promote(admin, replica)
                primary.start()
                primary, replica = replica, primary
            await_acknowledged(history, 100, primary, replica)
            senders.stop()
        end = await_equal(primary, replica, admin)
        problems = list(history.problems(read_queues(namesrv)))
        assert problems == []
        assert history.acknowledged > 20 * KILLS
        assert log_bytes(primary, end) == log_bytes(replica, end)


def paused(node: Node, promote: Callable[[], None]) -> None:
    """Promote the replica of a primary that sleeps, and wake that one up then."""
    node.signal(signal.SIGSTOP)
    promote()
    node.signal(signal.SIGCONT)


def cut_off(node: Node, promote: Callable[[], None]) -> None:
    """Promote the replica of a primary that only its producers reach, and let the others reach it then."""
    node.cut_off()
    promote()
    node.heal()


@pytest.mark.timeout(240)
def test_a_primary_that_was_paused_or_cut_off_during_a_promotion_acknowledges_nothing_that_is_lost(
    tmp_path: Path,
) -> None:
    with etcd_cluster(tmp_path, has_etcd=False) as cluster, told(cluster.history, tmp_path):
        old = 0
        with Admin(cluster.namesrv) as admin:
            for scene in (paused, cut_off):
                cluster.await_acks(old)
                new = cluster.nodes[1 - old].direct
                scene(cluster.nodes[old], lambda new=new: admin.promote(new, force=True))
                old = 1 - old
            cluster.await_acks(old)
            cluster.end()
            one, other = (node.process for node in cluster.nodes)
            end = await_equal(one, other, admin)
        assert list(cluster.history.problems(read_queues(cluster.namesrv))) == []
        assert log_bytes(one, end) == log_bytes(other, end)
