"""One store in the hands of RocketMQ's broker and of ours by turns: nothing is lost on the way.

A Java client sends to each broker and reads everything that was sent so far, also to those before it.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from compat.client_kinds import Clients
from compat.client_program import Client, Row, Talk
from compat.java_cluster import FLUSH_TIMERS, java_broker
from compat.java_store import needs_java
from compat.our_cluster import our_broker, our_namesrv
from compat.server_process import ServerProcess, await_route, create_topic, free_port
from compat.side_by_side import Outcome, begun
from orbitmq.client import Admin, Message, Producer, ReceivedMessage, TransactionState
from visible_messages import await_visible, visible

pytestmark = [pytest.mark.compat, needs_java]

Starts = Callable[..., AbstractContextManager[ServerProcess]]

ORDERS: Final[dict[str, tuple[Starts, ...]]] = {
    "ours-first": (our_broker, java_broker, our_broker),
    "java-first": (java_broker, our_broker, java_broker),
}
COUNT: Final = 20
WAIT_SECONDS: Final = 60.0
TIMER_MS: Final = 9_000  # longer than the broker lives that was given the message
RECALL: Final = {"recallMessageEnable": "true", "mappedFileSizeTimerLog": str(1 << 20)}
QUIET_SECONDS: Final = 3.0  # longer than a round of checks
DELAY_LEVEL: Final = 2  # five seconds: longer than the broker lives that was given the message


@dataclass
class Relay:
    """The topics that go from broker to broker, and what was sent to them so far."""

    name: str
    namesrv: str
    client: Client
    sent: list[Row] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    batched: list[Row] = field(default_factory=list)
    delayed: list[str] = field(default_factory=list)
    timed: dict[str, int] = field(default_factory=dict)  # and when each is due
    had: int = 0
    committed: list[str] = field(default_factory=list)

    def topic(self, kind: str) -> str:
        return f"{kind}-{self.name}"

    def create_topics(self, broker: ServerProcess) -> None:
        create_topic(broker.address, self.topic("Single"))
        create_topic(broker.address, self.topic("Late"), 1)
        create_topic(broker.address, self.topic("Timed"), 1)
        create_topic(broker.address, self.topic("Batch"), 2, queue_type="BatchCQ")
        create_topic(broker.address, self.topic("Tx"), 1)

    def await_routes(self) -> None:
        for kind in ("Single", "Late", "Timed", "Batch", "Tx"):
            await_route(self.namesrv, self.topic(kind))

    def send(self, stage: int) -> None:
        """Send in several ways; the delayed messages are still waiting when this broker ends."""
        self._send_singles(f"{stage}-first-")
        self.read_on(exactly=True)
        self._send_singles(f"{stage}-then-")
        self.batched += self.client.send(
            topic=self.topic("Batch"), count=COUNT, mode="batch", body=f"{stage}-"
        )
        late = self.client.send(
            topic=self.topic("Late"), count=3, body=f"{stage}-", delay=DELAY_LEVEL
        )
        self.delayed += [row["body"] for row in late]
        self._send_timed(stage)
        assert len(self.sent) == 4 * COUNT * (stage + 1)
        assert len(self.batched) == COUNT * (stage + 1)
        assert len(self.delayed) == 3 * (stage + 1)

    def _send_timed(self, stage: int) -> None:
        """Send messages that wait for longer than this broker lives, and recall some of them."""
        topic, due_ms = self.topic("Timed"), time.time_ns() // 1_000_000 + TIMER_MS
        rows = self.client.send(topic=topic, count=6, body=f"{stage}-", deliver=due_ms)
        assert len(rows) == 6
        for row in rows[4:]:
            self.client.recall(topic, row["handle"])
        self.timed |= {row["body"]: due_ms for row in rows[:4]}
        # Java saves once a second what is in its wheel, and is killed.
        time.sleep(2.5)  # sleep: so it has them there

    def begin_transactions(self, stage: int) -> None:
        """Commit one, and leave two that wait for their end when this broker ends."""
        with Producer(self.namesrv, self.topic("tx")) as producer:
            for kind in ("waits-C", "waits-R", "done-C"):
                message = Message(self.topic("Tx"), f"{stage}-{kind}".encode())
                with producer.transaction(message) as transaction:
                    if kind.startswith("waits"):
                        transaction.leave_open()
        self.committed += [f"{stage}-waits-C", f"{stage}-done-C"]

    def end_transactions(self) -> None:
        """Say what became of those that wait; each message that was committed is there once."""
        group, topic = self.topic("tx"), self.topic("Tx")
        with Producer(self.namesrv, group, checker=end_of, heartbeat_interval_ms=500) as producer:
            assert producer.queues(topic)
            await_visible(self.namesrv, topic, self.committed)
            time.sleep(QUIET_SECONDS)  # sleep: for a message that must not come
        assert visible(self.namesrv, topic) == Counter(self.committed)

    def _send_singles(self, prefix: str) -> None:
        words = {"topic": self.topic("Single"), "tag": "T", "key": prefix, "count": COUNT}
        for mode in ("sync", "batch"):
            self.sent += self.client.send(mode=mode, body=f"{prefix}{mode}-", **words)
        self.keys.append(prefix)

    def read_on(self, *, exactly: bool) -> None:
        """One group goes on from broker to broker: it gets what it has not had."""
        wanted = bodies(self.sent[self.had :])
        consumer = self.client.subscribe(topic=self.topic("Single"), group=f"on-{self.name}")
        self._await_all(consumer, wanted)
        got = bodies(consumer.leave())
        assert got == wanted or not exactly, got - wanted
        self.had = len(self.sent)

    def _await_all(self, consumer: Talk, wanted: Counter[str]) -> None:
        self.client.program.wait(
            lambda: wanted <= Counter(consumer.bodies("got")),
            WAIT_SECONDS,
            lambda: f"missing: {wanted - Counter(consumer.bodies('got'))}",
        )

    def read_all(self, stage: int, *, exactly: bool) -> None:
        """New groups get everything once, where the answers said, and every key is found.

        Unless `exactly`, what was delayed may have been delivered twice.
        """
        group = f"all-{self.name}-{stage}"
        singles = self.client.subscribe(topic=self.topic("Single"), group=group)
        batches = self.client.subscribe(topic=self.topic("Batch"), group=f"{group}-batch")
        late = self.client.subscribe(topic=self.topic("Late"), group=f"{group}-late")
        timed = self.client.subscribe(topic=self.topic("Timed"), group=f"{group}-timed")
        singles.wait("got", len(self.sent))
        batches.wait("got", len(self.batched))
        self._await_all(late, Counter(self.delayed))
        self._await_all(timed, Counter(self.timed.keys()))
        with ThreadPoolExecutor() as pool:  # each takes a second or more to leave
            leaving = pool.map(Talk.leave, (singles, batches, late, timed))
            got, got_batched, got_late, got_timed = leaving
        assert places(got) == places(self.sent)
        assert bodies(got_batched) == bodies(self.batched)
        if exactly:
            assert bodies(got_timed) == Counter(self.timed.keys())
            assert bodies(got_late) == Counter(self.delayed)
        assert {row["body"] for row in got_late} == set(self.delayed)
        assert {row["body"] for row in got_timed} == set(self.timed)
        assert all(row["store_ms"] >= self.timed[row["body"]] for row in got_timed)
        with Admin(self.namesrv) as admin:
            found = [
                message.body.decode()
                for key in self.keys
                for message in admin.messages_by_key(self.topic("Single"), key)
            ]
        assert Counter(found) == bodies(self.sent)


def end_of(message: ReceivedMessage) -> TransactionState:
    is_good = message.body.endswith(b"-C")
    return TransactionState.COMMIT if is_good else TransactionState.ROLLBACK


def bodies(rows: list[Row]) -> Counter[str]:
    return Counter(row["body"] for row in rows)


def places(rows: list[Row]) -> Counter[tuple[str, int, int]]:
    return Counter((row["body"], int(row["queue"]), row["offset"]) for row in rows)


def run_relay(name: str, directory: Path, clients: Clients) -> None:
    with our_namesrv(directory) as namesrv:
        relay = Relay(name, namesrv.address, clients.get("java-new-json", namesrv.address))
        place = {"namesrv": namesrv.address, "root": directory / "broker", "port": free_port()}
        for stage, start in enumerate(ORDERS[name]):
            before = ORDERS[name][:stage]
            with start(directory, settings=RECALL | FLUSH_TIMERS, **place) as broker:
                if not before:
                    relay.create_topics(broker)
                relay.await_routes()
                if before:
                    # A Java broker is killed here, and saves every few seconds how far groups are and
                    # what it delivered of delayed messages; ours is stopped.
                    relay.read_all(stage, exactly=java_broker not in before)
                    relay.read_on(exactly=before[-1] is our_broker)
                    relay.end_transactions()
                relay.send(stage)
                relay.begin_transactions(stage)


@pytest.fixture(scope="module")
def outcomes(
    tmp_path_factory: pytest.TempPathFactory, clients: Clients, request: pytest.FixtureRequest
) -> Iterator[Mapping[str, Outcome]]:
    """Both relays, begun; or the one that the run selects."""
    selected = {item.name for item in request.session.items}
    runs = {
        name: partial(run_relay, name, tmp_path_factory.mktemp(name), clients)
        for name in ORDERS
        if f"{test_nothing_is_lost_when_a_store_changes_hands.__name__}[{name}]" in selected
    }
    with begun(runs) as started:
        yield started


@pytest.mark.feature("X2.java-to-ours", "X2.ours-to-java")
@pytest.mark.parametrize("name", ORDERS)
def test_nothing_is_lost_when_a_store_changes_hands(
    name: str, outcomes: Mapping[str, Outcome]
) -> None:
    outcomes[name]()
