"""Recorded requests about messages, asked of a broker without sockets, and what differs in the answers."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from broker_world import BrokerWorld, FakeConnection
from golden_frames import Frame, exchanges, good_frames
from orbitmq.broker.processors.pull import PullProcessor
from orbitmq.broker.processors.query import QueryProcessor
from orbitmq.broker.processors.send import SendProcessor
from orbitmq.broker.processors.send_back import SendBackProcessor
from orbitmq.format.record import Record, decode_record
from orbitmq.message import GetStatus
from orbitmq.wire.command import Command

SENDS = (10, 310, 320)
_PORT = re.compile(r"127\.0\.0\.1:\d+")


class MessageWorld(BrokerWorld):
    """A broker that knows everything about messages."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.sends = SendProcessor(self.context)
        self.pulls = PullProcessor(self.context)
        self.backs = SendBackProcessor(self.context)
        self.queries = QueryProcessor(self.context)
        self.route(self.sends, self.pulls, self.backs, self.queries)

    def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        """Return everything that a queue holds."""
        self.settle()
        found, offset = [], 0
        while True:
            result = self.store.get(topic, queue_id, offset)
            if result.status is not GetStatus.FOUND:
                return found
            found += [decode_record(raw) for raw in result.records]
            assert result.next_offset > offset
            offset = result.next_offset

    def later(self, milliseconds: float) -> None:
        """Let time pass, and have done what is due then."""
        self.clock.advance(milliseconds)
        self.settle()
        self.context.schedule.tick()
        self.settle()
        self.context.long_poll.deadlines.expire()
        self.turn()


def send_command(
    topic: str = "Orders",
    body: bytes = b"hello",
    *,
    queue_id: int = 0,
    properties: str = "UNIQ_KEY\x01K1\x02",
    code: int = 310,
    flag: int = 0,
    **letters: Any,
) -> Command:
    """Return a send as the Java client writes it; `letters` change its fields."""
    fields = {
        "a": "Pid",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
    }
    fields |= {name: str(value) for name, value in letters.items()}
    return Command(code, fields, body, 7, flag, language="JAVA")


def pull_command(topic: str = "Orders", *, group: str = "Cid", **given: Any) -> Command:
    """Return a pull with its subscription in the request; `given` changes its fields."""
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    fields |= {name: str(value) for name, value in given.items()}
    return Command(11, fields, opaque=9, language="JAVA")


def recorded(name: str, *codes: int) -> list[tuple[Frame, Frame]]:
    """Return requests with these codes and their answers, in the order of the requests."""
    pairs = [pair for pair in exchanges(name, "broker") if pair[0].command.code in codes]
    return sorted(pairs, key=lambda pair: pair[0].line)


def recorded_requests(name: str, *codes: int) -> list[Command]:
    """Return requests with these codes, also those that nobody answered."""
    frames = [frame for frame in good_frames(name) if frame.role == "broker" and frame.to_server]
    return [
        frame.command
        for frame in frames
        if frame.command.code in codes and not frame.command.is_response
    ]


def recorded_records(name: str, *topics: str) -> list[Record]:
    """Return the messages of these topics that were pulled."""
    found = []
    for request, answer in recorded(name, 11):
        if (request.command.fields or {})["topic"] in topics:
            found += list(records_of(answer.command.body))
    return found


def records_of(body: bytes) -> Iterator[Record]:
    """Yield the messages of a pull's body."""
    at = 0
    while at < len(body):
        record = decode_record(body, at)
        yield record
        at += record.size


def replay(world: BrokerWorld, client: FakeConnection, request: Command) -> Command | None:
    """Ask again what was asked; None: no answer, as for a one-way request."""
    answers = world.tell(client, replace(request))
    world.settle()
    return answers[0] if answers else None


def without_port(remark: str | None) -> str | None:
    """Return the remark with the client's address made equal."""
    return None if remark is None else _PORT.sub("127.0.0.1:0", remark)
