"""Pop consumption without sockets and threads: a broker's engine, its timer wheel, and the test's time.

with PopWorld(tmp_path) as world:
    world.send("one", "two")
    taken = world.pop()
    world.ack(taken.messages[0])
    world.pass_time(12_000)  # the invisible time is over
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker_world import BrokerWorld, FakeConnection
from orbitmq.broker.delivery.timers import Timers
from orbitmq.broker.processors.acks import AckProcessor
from orbitmq.broker.processors.pop import PopProcessor
from orbitmq.format.properties import encode_properties
from orbitmq.format.record import Record, decode_record
from orbitmq.message import TIMER_TOPIC, AppendRequest, AppendResult
from orbitmq.store.timer.timer_store import TimerStore
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pop import AckHeader, ChangeInvisibleHeader, PopAnswer, PopHeader
from orbitmq.wire.receipt import Receipt, real_topic

TOPIC, GROUP = "Orders", "Cid"
INVISIBLE_MS = 10_000


@dataclass
class Message:
    """A popped message with its receipt."""

    record: Record
    receipt: Receipt

    @property
    def body(self) -> str:
        return self.record.body.decode()


@dataclass
class Taken:
    """What a pop's answer holds."""

    code: int
    answer: PopAnswer
    messages: list[Message] = field(default_factory=list)
    remark: str = ""

    @property
    def bodies(self) -> list[str]:
        return [message.body for message in self.messages]


class PopWorld(BrokerWorld):
    """A broker that serves pops of one topic."""

    def __init__(self, root: Path, *, queues: int = 1, **given: Any) -> None:
        super().__init__(root, **given)
        self.wheel = TimerStore.open(self.store, self.clock)
        self.context.timers = Timers(self.context, self.wheel)
        self.pops = self.context.pop
        self.engine = self.pops.engine
        self.refused: AppendResult | None = (
            None  # what the revive topic's appends are answered with
        )
        self._append = self.engine.log.append
        self.engine.log.append = self._maybe_append  # type: ignore[method-assign]
        self.topic(TOPIC, queues)
        self.context.groups.get_or_create(GROUP)
        self.route(PopProcessor(self.context), AckProcessor(self.context))
        self.client = self.connect()
        self._opaque = 0

    def __exit__(self, *error: Any) -> None:
        self.wheel.close()
        super().__exit__(*error)

    def _maybe_append(self, requests: Sequence[AppendRequest]) -> list[AppendResult]:
        if self.refused is not None:
            return [self.refused] * len(requests)
        return self._append(requests)

    def topic(self, name: str, queues: int = 1) -> None:
        config = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
        self.context.topics.put(config)

    def send(self, *bodies: str, queue_id: int = 0, topic: str = TOPIC, **properties: str) -> None:
        raw = encode_properties(properties)
        self.append(
            topic,
            *(body.encode() for body in bodies),
            queue_id=queue_id,
            properties=raw,
            born_ms=self.clock.now_ms(),
        )

    # --- requests ---

    def pop_command(self, **given: Any) -> Command:
        fields: dict[str, Any] = {
            "consumer_group": GROUP,
            "topic": TOPIC,
            "queue_id": -1,
            "max_msg_nums": 32,
            "invisible_time": INVISIBLE_MS,
            "poll_time": 0,
            "born_time": self.clock.now_ms(),
            "init_mode": 0,
        }
        self._opaque += 1
        header = PopHeader(**(fields | given))
        return Command(RequestCode.POP_MESSAGE, header.write(), opaque=self._opaque)

    def pop(self, **given: Any) -> Taken:
        command = self.pop_command(**given)
        return taken_of(self.ask(self.client, command), command)

    def park(self, client: FakeConnection | None = None, **given: Any) -> Command:
        """Send a pop that finds nothing and waits."""
        client = client or self.client
        command = self.pop_command(**({"poll_time": 15_000} | given))
        before = len(client.sent)
        self.handler.on_commands(client, [command])  # type: ignore[arg-type]
        self.turn()
        assert len(client.sent) == before, client.sent[before:]
        return command

    def parked_answer(self, command: Command, client: FakeConnection | None = None) -> Taken | None:
        """Return the answer to a pop that waited, None if it still waits."""
        self.turn()
        for answer in (client or self.client).take():
            if answer.opaque == command.opaque:
                return taken_of(answer, command)
        return None

    def ack(self, message: Message, *, group: str = GROUP, topic: str = TOPIC) -> Command:
        return self.ask(self.client, self.ack_command(message, group=group, topic=topic))

    def ack_command(self, message: Message, *, group: str = GROUP, topic: str = TOPIC) -> Command:
        receipt = message.receipt
        header = AckHeader(
            consumer_group=group,
            topic=real_topic(topic, group, receipt.kind),
            queue_id=receipt.queue_id,
            extra_info=receipt.text,
            offset=receipt.offset,
        )
        self._opaque += 1
        return Command(RequestCode.ACK_MESSAGE, header.write(), opaque=self._opaque)

    def renew(self, message: Message, invisible_ms: int, *, group: str = GROUP) -> Message:
        """Change the invisible time; return the message with its new receipt."""
        receipt = message.receipt
        header = ChangeInvisibleHeader(
            consumer_group=group,
            topic=real_topic(TOPIC, group, receipt.kind),
            queue_id=receipt.queue_id,
            extra_info=receipt.text,
            offset=receipt.offset,
            invisible_time=invisible_ms,
        )
        self._opaque += 1
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        answer = self.ask(self.client, Command(code, header.write(), opaque=self._opaque))
        assert answer.code == 0, answer
        fields = answer.fields or {}
        start = receipt.start_offset if receipt.is_order else receipt.offset
        new = receipt._replace(
            start_offset=start,
            pop_ms=int(fields["popTime"]),
            invisible_ms=int(fields["invisibleTime"]),
            revive_queue=int(fields["reviveQid"]),
        )
        return Message(message.record, new)

    # --- time ---

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass in steps of a second; what is due is done."""
        left = milliseconds
        while left > 0:
            step = min(left, 1_000)
            left -= step
            self.clock.advance(step)
            self.work()

    def work(self) -> None:
        """Do what is due: timer messages, commits, revival."""
        self.settle()
        while self.wheel.turn(256, 64):
            self.settle()
        for _ in range(3):
            self.store.flush_log()
            self.pops.tick()
            self.settle()

    def written(self) -> list[tuple[int, Record]]:
        """Return check points and acks that were written, with the times at which they are due."""
        self.settle()
        end, found = self.store.max_offset(TIMER_TOPIC, 0), []
        while len(found) < end:
            result = self.store.get(TIMER_TOPIC, 0, len(found), 32)
            found += [decode_record(bytes(raw)) for raw in result.records]
        return [(int(one.property_map["TIMER_DELIVER_MS"]), one) for one in found]

    def committed(self, queue_id: int = 0, topic: str = TOPIC, group: str = GROUP) -> int:
        return self.context.offsets.get(group, topic, queue_id)

    def retried(self, topic: str = f"%RETRY%{GROUP}_{TOPIC}") -> list[Record]:
        """Return what lies in the retry topic."""
        return [decode_record(bytes(raw)) for raw in self.store.get(topic, 0, 0, 1_000).records]


def taken_of(answer: Command, command: Command) -> Taken:
    """Return what an answer to a pop holds, with receipts as a client makes them."""
    header = PopAnswer.read(answer.fields)
    taken = Taken(answer.code, header, remark=answer.remark or "")
    starts = {
        (kind, int(queue)): int(start)
        for kind, queue, start in (
            item.split(" ") for item in (header.start_offset_info or "").split(";") if item
        )
    }
    offsets = [
        (kind, int(queue), int(offset))
        for kind, queue, text in (
            item.split(" ") for item in (header.msg_offset_info or "").split(";") if item
        )
        for offset in text.split(",")
    ]
    place = 0
    for kind, queue_id, offset in offsets:
        record = decode_record(answer.body, place)
        place += record.size
        receipt = Receipt(
            starts[kind, queue_id],
            header.pop_time,
            header.invisible_time,
            header.revive_qid,
            kind,
            "broker-a",
            queue_id,
            offset,
        )
        taken.messages.append(Message(record, receipt))
    assert place == len(answer.body)
    return taken
