"""Pulls that want one message in a hundred: by tag, and by an SQL92 expression, over one connection.

`bench_broker.py` has them as its part `filtered`. The clock runs from the first pull of a queue to the answer
at its end; the next pull is sent when an answer is there, as a consumer does.
"""

import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

from doors import (
    ClientMessage,
    Command,
    FrameDecoder,
    encode_client_batch,
    encode_command,
    encode_properties,
)

BATCH = 100
BODY = bytes(range(256)) * 4
ONE_IN = 100
FILTERS = {
    "tag": ("TAG", "Wanted"),
    "SQL92": ("SQL92", "price > 100 AND city = 'Rome'"),
}
SEND_BATCH, PULL = 320, 11
FOUND, AT_END, NO_MATCH = 0, 19, 20
SUBSCRIPTION_IN_REQUEST = 4

Fields = dict[str, str]


class Door:
    """One connection, one request at a time."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder()

    def ask(self, code: int, fields: Fields, body: bytes = b"") -> Any:
        self._socket.sendall(encode_command(Command(code, fields, body)))
        while True:
            data = self._socket.recv(1 << 20)
            if not data:
                raise SystemExit("the broker closed the connection")
            for answer in self._decoder.receive(data):
                return answer

    def close(self) -> None:
        self._socket.close()


def message(number: int) -> ClientMessage:
    """Return a message; one in a hundred is what both filters want."""
    is_wanted = number % ONE_IN == 0
    properties = {
        "KEYS": f"order-{number}",
        "UNIQ_KEY": f"{number:032X}",
        "TAGS": "Wanted" if is_wanted else f"Other{number % 7}",
        "city": "Rome" if is_wanted or number % 3 else "Oslo",
        "price": str(1000 if is_wanted else number % 100),
        "WAIT": "true",
    }
    return ClientMessage(BODY, encode_properties(properties))


def fill(address: str, topic: str, count: int) -> None:
    """Send so many messages to queue 0 of a topic."""
    door = Door(address)
    fields = {"a": "BenchGroup", "b": topic, "c": "TBW102", "d": "8", "e": "0", "f": "0", "h": "0"}
    fields |= {"i": "WAIT\x01true\x02", "j": "0", "k": "false", "m": "true", "n": "broker-a"}
    for first in range(0, count, BATCH):
        fields["g"] = str(time.time_ns() // 1_000_000)
        batch = encode_client_batch(map(message, range(first, min(first + BATCH, count))))
        answer = door.ask(SEND_BATCH, fields, batch)
        if answer.code != 0:
            raise SystemExit(f"a batch was answered with {answer.code} {answer.remark}")
    door.close()


def seconds_of(address: str, topic: str, count: int, kind: str, expression: str) -> float:
    """Return how long a consumer takes from the first to the last unit of queue 0, and check what it got."""
    door = Door(address)
    started = time.perf_counter()
    found = sum(_pulled(door, topic, kind, expression))
    seconds = time.perf_counter() - started
    door.close()
    if found != -(-count // ONE_IN):
        raise SystemExit(f"{kind} {expression}: {found} messages instead of {count // ONE_IN}")
    return seconds


def _pulled(door: Door, topic: str, kind: str, expression: str) -> Iterator[int]:
    """Yield how many messages each pull brought."""
    fields = {
        "consumerGroup": "BenchPull",
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": str(SUBSCRIPTION_IN_REQUEST),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": expression,
        "subVersion": "0",
        "expressionType": kind,
    }
    while True:
        answer = door.ask(PULL, fields)
        if answer.code == AT_END:
            return
        if answer.code not in (FOUND, NO_MATCH):
            raise SystemExit(f"a pull was answered with {answer.code} {answer.remark}")
        fields["queueOffset"] = answer.fields["nextBeginOffset"]
        yield _records(answer.body) if answer.code == FOUND else 0


def _records(body: bytes) -> int:
    at = count = 0
    while at < len(body):
        at += struct.unpack_from(">i", body, at)[0]
        count += 1
    return count
