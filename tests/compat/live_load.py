"""Producers and a consumer that go on while brokers die and come back, and what must be true of it all."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from orbitmq.client import (
    Consumer,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    ReceivedMessage,
    SendResult,
)
from orbitmq.errors import OrbitError

BATCH: Final = 5
BURST: Final = 20
PAUSE_SECONDS: Final = 0.05  # after a failed send; one broker of one is down for a while
ORDERED_SENDERS: Final = ("one", "batch")  # sends that overtake each other keep no order
ROUTE_MS: Final = 1000  # how soon a broker that came back is used again
BACKLOG_MAX: Final = 2000  # the consumer is to be at work, not hours behind
FILLER: Final = b"." * 200


@dataclass
class Ledger:
    """What was acknowledged to the producers, and what the consumer was given."""

    acknowledged: dict[tuple[MessageQueue, int], bytes] = field(default_factory=dict)
    handled: defaultdict[MessageQueue, set[int]] = field(default_factory=lambda: defaultdict(set))
    bodies: set[bytes] = field(default_factory=set)
    failures: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def acknowledge(self, body: bytes, result: SendResult) -> None:
        with self.lock:
            place = result.queue, result.queue_offset
            assert place not in self.acknowledged, f"two messages were given the place {place}"
            self.acknowledged[place] = body

    def handle(self, message: ReceivedMessage) -> None:
        with self.lock:
            self.handled[message.queue].add(message.queue_offset)
            self.bodies.add(message.body)

    def brokers(self, since: int) -> set[str]:
        """Return which brokers acknowledged, from the given number of the acknowledgement on."""
        with self.lock:
            return {queue.broker_name for queue, _ in list(self.acknowledged)[since:]}

    @property
    def backlog(self) -> int:
        return len(self.acknowledged) - len(self.bodies)

    def missing(self) -> set[bytes]:
        """Return what was acknowledged and not yet consumed."""
        with self.lock:
            return set(self.acknowledged.values()) - self.bodies


@dataclass
class Load:
    """Three producers, each sending in its own way, and one consumer, until it is stopped."""

    namesrv: str
    topic: str
    group: str
    pace_seconds: float = 0.0  # between the sends of each producer
    ledger: Ledger = field(default_factory=Ledger)
    error: BaseException | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def stop_sending(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        if self.error is not None:
            raise self.error

    def await_acknowledged(self, count: int, seconds: float = 60) -> None:
        """Wait until so many more messages were acknowledged."""
        wanted = len(self.ledger.acknowledged) + count
        deadline = time.monotonic() + seconds
        while len(self.ledger.acknowledged) < wanted:
            assert self.error is None, self.error
            assert time.monotonic() < deadline, "the producers do not get on"
            time.sleep(0.005)

    def await_handled(self, count: int, seconds: float = 60) -> None:
        """Wait until the consumer was given so many more messages."""
        wanted = len(self.ledger.bodies) + count
        deadline = time.monotonic() + seconds
        while len(self.ledger.bodies) < wanted:
            assert time.monotonic() < deadline, "the consumer does not get on"
            time.sleep(0.005)

    def await_consumed(self, seconds: float = 90) -> None:
        """Wait until everything acknowledged was consumed."""
        deadline = time.monotonic() + seconds
        while missing := self.ledger.missing():
            late = time.monotonic() > deadline
            assert not late, f"{len(missing)} not consumed: {sorted(missing)[:5]}"
            time.sleep(0.1)

    def _send(self, kind: str, producer: Producer) -> None:
        try:
            number = 0
            # sleep: the load runs until stop() is called.
            while not self._stopping.is_set():
                if self.ledger.backlog > BACKLOG_MAX:
                    time.sleep(PAUSE_SECONDS)  # sleep: the load's own pace; stop() ends the loop
                else:
                    number = self._send_some(kind, producer, number)
                    self._stopping.wait(self.pace_seconds)
        except BaseException as error:
            self.error = error

    def _send_some(self, kind: str, producer: Producer, number: int) -> int:
        count = {"one": 1, "batch": BATCH, "burst": BURST}[kind]
        messages = [
            Message(self.topic, b"%s-%d-%s" % (kind.encode(), n, FILLER))
            for n in range(number, number + count)
        ]
        try:
            results = self._results(kind, producer, messages)
        except OrbitError:
            self.ledger.failures += 1
            time.sleep(PAUSE_SECONDS)  # sleep: no busy loop while no broker answers
        else:
            for message, result in zip(messages, results, strict=True):
                if result is not None:
                    self.ledger.acknowledge(message.body, result)
            if None in results:
                time.sleep(PAUSE_SECONDS)  # sleep: the same
        return number + count

    def _results(
        self, kind: str, producer: Producer, messages: list[Message]
    ) -> list[SendResult | None]:
        if kind == "one":
            return [producer.send(messages[0])]
        if kind == "batch":
            return list(producer.send_batch(messages))
        futures = [producer.send_async(message) for message in messages]
        results: list[SendResult | None] = []
        for future in futures:
            error = future.exception()
            if error is not None and not isinstance(error, OrbitError):
                raise error
            results.append(None if error is not None else future.result())
        self.ledger.failures += results.count(None)
        return results


@contextmanager
def running_load(
    namesrv: str, topic: str, group: str, *, pace_seconds: float = 0.0
) -> Iterator[Load]:
    """Run a load for the length of the body; the consumer goes on until the end."""
    load = Load(namesrv, topic, group, pace_seconds)
    consumer = Consumer(
        namesrv,
        group,
        topic,
        handler=load.ledger.handle,
        start_from="first",
        workers=4,
        persist_interval_ms=300,
        pull_failed_wait_ms=200,
        rebalance_interval_ms=2000,
        route_interval_ms=ROUTE_MS,
    )
    producer = Producer(namesrv, "load", send_timeout_ms=2000, route_interval_ms=ROUTE_MS)
    with producer, consumer:
        for kind in ("one", "batch", "burst"):
            thread = threading.Thread(target=load._send, args=(kind, producer), name=kind)
            load._threads.append(thread)
            thread.start()
        try:
            yield load
        finally:
            load._stopping.set()
            for thread in load._threads:
                thread.join()


class QueueReader:
    """Reads the queues of a topic as they are stored and compares them with the ledger."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.ends: dict[MessageQueue, int] = {}
        self._pull = PullConsumer(load.namesrv, f"{load.group}-reader", auto_commit=False)

    def __enter__(self) -> "QueueReader":
        self._pull.open()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._pull.close()

    def queues(self) -> list[MessageQueue]:
        return self._pull.topic_queues(self.load.topic)

    def read(self, queue: MessageQueue, offset: int = 0) -> list[ReceivedMessage]:
        """Return the messages from an offset to the end of the queue; none is left out."""
        messages: list[ReceivedMessage] = []
        while found := self._pull.pull(queue, offset, count=32).messages():
            assert [m.queue_offset for m in found] == list(range(offset, offset + len(found)))
            messages += found
            offset += len(found)
        return messages

    def check_new(self) -> int:
        """Check what came since the last check; return how many messages are stored in all."""
        return self._check(self.ends)

    def check_all(self) -> int:
        """Check everything from the first message on; return how many messages are stored."""
        return self._check({})

    def _check(self, starts: dict[MessageQueue, int]) -> int:
        """Everything acknowledged is where the answer said, each queue in order."""
        with self.load.ledger.lock:
            acknowledged = {
                (queue, offset): body
                for (queue, offset), body in self.load.ledger.acknowledged.items()
                if offset >= starts.get(queue, 0)
            }
        for queue in self.queues():
            messages = self.read(queue, starts.get(queue, 0))
            _check_order(queue, messages)
            for message in messages:
                wanted = acknowledged.pop((queue, message.queue_offset), message.body)
                assert message.body == wanted, f"{queue} at {message.queue_offset}"
            self.ends[queue] = starts.get(queue, 0) + len(messages)
        assert not acknowledged, f"{len(acknowledged)} lost: {sorted(acknowledged.items())[:3]}"
        return sum(self.ends.values())


def _check_order(queue: MessageQueue, messages: list[ReceivedMessage]) -> None:
    """A producer's messages stand in the order of sending; one sent again may stand there twice."""
    last: dict[str, int] = {}
    for message in messages:
        kind, number, _ = message.body.decode().split("-")
        if kind in ORDERED_SENDERS:
            turn = int(number) // BATCH if kind == "batch" else int(number)
            assert turn >= last.get(kind, 0), f"{queue} at {message.queue_offset}"
            last[kind] = turn
