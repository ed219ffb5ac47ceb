"""A light client without a client library: frames made ahead, answers counted by a kernel.

    python bench/raw_driver.py send ADDRESS TOPIC --depth 64 --seconds 4 [--connections 4] [--batch 16]
    python bench/raw_driver.py pull ADDRESS TOPIC --queues 8 [--connections 4]

Prints one JSON line: rate, latencies, and how many answers were no success. It stands for many clients on
other machines: its own cost per message must stay far below a broker's.
"""

import argparse
import json
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass, field

import numba
import numpy as np
import numpy.typing as npt

from frames import BODY_BYTES, FIRST_OPAQUE, SILENCE_S, connect, frame

REQUESTS_MAX = 1 << 24
_OPAQUE = np.frombuffer(b'"opaque":', np.uint8)
_CODE = np.frombuffer(b'"code":', np.uint8)


@numba.njit(cache=True)
def _number_behind(buffer, start, end, word):  # type: ignore[no-untyped-def]
    """Return the number behind a word of the header, -1 if it is not there."""
    for at in range(start, end - len(word)):
        if buffer[at] == word[0]:
            same = True
            for index in range(1, len(word)):
                if buffer[at + index] != word[index]:
                    same = False
                    break
            if same:
                value = 0
                digit = at + len(word)
                while digit < end and 48 <= buffer[digit] <= 57:
                    value = value * 10 + buffer[digit] - 48
                    digit += 1
                return value
    return -1


@numba.njit(cache=True)
def split(buffer, end, opaques, codes, bodies):  # type: ignore[no-untyped-def]
    """Find the whole frames in a buffer; return how many, and where the rest begins."""
    at = count = 0
    while end - at >= 8 and count < len(opaques):
        length = (
            buffer[at] * 16777216 + buffer[at + 1] * 65536 + buffer[at + 2] * 256 + buffer[at + 3]
        )
        if end - at < length + 4:
            break
        header = buffer[at + 5] * 65536 + buffer[at + 6] * 256 + buffer[at + 7]
        opaques[count] = _number_behind(buffer, at + 8, at + 8 + header, _OPAQUE)
        codes[count] = _number_behind(buffer, at + 8, at + 8 + header, _CODE)
        bodies[count] = at + 8 + header
        count += 1
        at += length + 4
    return count, at


def send_frame(topic: str, queue_id: int, batch: int, more: str = "") -> tuple[bytes, bytes]:
    """Return a send of one message, with `more` properties, or of a client batch."""
    unique = f"{queue_id:032X}"
    properties = f"KEYS\x01k{queue_id}\x02UNIQ_KEY\x01{unique}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    properties += more
    body = bytes(range(256)) * (BODY_BYTES // 256)
    if batch > 1:
        raw = properties.encode()
        size = 22 + len(body) + len(raw)
        one = struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body
        body = (one + struct.pack(">h", len(raw)) + raw) * batch
        properties = "WAIT\x01true\x02"
    fields = {
        "a": "BenchGroup",
        "b": topic,
        "c": "TBW102",
        "d": "8",
        "e": str(queue_id),
        "f": "0",
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "true" if batch > 1 else "false",
        "n": "broker-a",
    }
    return frame(320 if batch > 1 else 310, fields, body)


@dataclass
class Link:
    """One connection and its requests in flight."""

    sock: socket.socket
    frames: list[tuple[bytes, bytes]]
    depth: int
    turn: int = 0
    buffer: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(1 << 23, np.uint8))
    filled: int = 0

    def __post_init__(self) -> None:
        self.view = memoryview(self.buffer)


class Sender:
    """Keeps `depth` sends in flight over all connections together."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._until = 0.0
        self._next = 0
        self._batch = arguments.batch
        self.errors = 0
        count = max(1, min(arguments.connections, arguments.depth))
        # By number of the request: pages that are not used cost nothing.
        self._sent_at = np.zeros(REQUESTS_MAX)
        self._done_at = np.zeros(REQUESTS_MAX)
        self._opaques = np.zeros(1 << 16, np.int64)
        self._codes = np.zeros(1 << 16, np.int64)
        self._bodies = np.zeros(1 << 16, np.int64)
        self._poll = select.epoll()
        self.links: dict[int, Link] = {}
        for index in range(count):
            depth = arguments.depth // count + (index < arguments.depth % count)
            queues = [q for q in range(8) if q % count == index % 8] or [index % 8]
            frames = [send_frame(arguments.topic, q, arguments.batch) for q in queues]
            link = Link(connect(arguments.address), frames, depth)
            self.links[link.sock.fileno()] = link
            self._poll.register(link.sock, select.EPOLLIN)

    def run(self, seconds: float, warm: float) -> dict[str, float]:
        """Send for so long; the first part is not counted."""
        start = time.perf_counter()
        self._until = start + warm + seconds
        waiting = 0
        for link in self.links.values():
            self._send(link, link.depth)
            waiting += link.depth
        alone = link if len(self.links) == 1 else None
        while waiting:
            for link in (alone,) if alone is not None else self._ready(waiting):
                answered = self._receive(link)
                waiting -= answered
                if answered and time.perf_counter() < self._until:
                    self._send(link, answered)
                    waiting += answered
        return self._figures(start + warm)

    def _ready(self, waiting: int) -> list[Link]:
        ready = self._poll.poll(SILENCE_S)
        if not ready:
            raise SystemExit(f"no answer for {SILENCE_S} s; {waiting} requests wait")
        return [self.links[number] for number, _ in ready]

    def _send(self, link: Link, count: int) -> None:
        parts: list[bytes] = []
        first = self._next
        self._next = first + count
        if self._next >= REQUESTS_MAX:
            raise SystemExit("more requests than this driver can remember")
        for number in range(first, first + count):
            before, behind = link.frames[link.turn]
            link.turn = (link.turn + 1) % len(link.frames)
            parts += (before, b"%d" % (FIRST_OPAQUE + number), behind)
        data = b"".join(parts)
        self._sent_at[first : first + count] = time.perf_counter()
        link.sock.sendall(data)

    def _receive(self, link: Link) -> int:
        got = link.sock.recv_into(link.view[link.filled :] if link.filled else link.view)
        if not got:
            raise SystemExit("the broker closed the connection")
        link.filled += got
        count, rest = split(link.buffer, link.filled, self._opaques, self._codes, self._bodies)
        if rest < link.filled:
            link.buffer[: link.filled - rest] = link.buffer[rest : link.filled].copy()
        link.filled -= rest
        if count == 1:
            self.errors += self._codes.item(0) != 0
            self._done_at[self._opaques.item(0) - FIRST_OPAQUE] = time.perf_counter()
        elif count:
            self.errors += int(np.count_nonzero(self._codes[:count]))
            self._done_at[self._opaques[:count] - FIRST_OPAQUE] = time.perf_counter()
        return int(count)

    def _figures(self, counted_from: float) -> dict[str, float]:
        done_at, sent_at = self._done_at[: self._next], self._sent_at[: self._next]
        inside = (counted_from <= done_at) & (done_at < self._until)
        if not inside.any():  # on a machine that stood still nothing may have come in that time
            inside[:] = True
        latency = (done_at - sent_at)[inside] * 1000
        p50, p99, p999 = np.percentile(latency, [50, 99, 99.9])
        seconds = self._until - counted_from
        return {
            "rate": len(latency) * self._batch / seconds,
            "messages": self._next * self._batch,
            "p50_ms": float(p50),
            "p99_ms": float(p99),
            "p999_ms": float(p999),
            "errors": self.errors,
        }


def send(arguments: argparse.Namespace) -> dict[str, float]:
    return Sender(arguments).run(arguments.seconds, arguments.warm)


def pull(arguments: argparse.Namespace) -> dict[str, float]:
    """Read every queue from its first message to its end, one pull in flight per queue."""
    links = [connect(arguments.address) for _ in range(arguments.connections)]
    poll = select.epoll()
    started = time.perf_counter()
    pullers = [
        Puller(arguments.topic, queue, links[queue % len(links)], arguments.count)
        for queue in range(arguments.queues)
    ]
    by_number: dict[int, Link] = {}
    for sock in links:
        poll.register(sock, select.EPOLLIN)
        by_number[sock.fileno()] = Link(sock, [], 0)
    for puller in pullers:
        puller.ask()
    latencies: list[float] = []
    while any(not puller.done for puller in pullers):
        for number, _ in poll.poll(SILENCE_S):
            link = by_number[number]
            got = link.sock.recv_into(memoryview(link.buffer)[link.filled :])
            if not got:
                raise SystemExit("the broker closed the connection")
            link.filled += got
            _take_pulls(link, pullers, latencies)
    seconds = time.perf_counter() - started
    messages = sum(puller.messages for puller in pullers)
    p50, p99, p999 = np.percentile(np.array(latencies) * 1000, [50, 99, 99.9])
    return {
        "rate": messages / seconds,
        "messages": messages,
        "bytes": sum(puller.bytes for puller in pullers),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "p999_ms": float(p999),
    }


def _take_pulls(link: Link, pullers: list["Puller"], latencies: list[float]) -> None:
    at = 0
    view = memoryview(link.buffer)
    while link.filled - at >= 8:
        length, mark = struct.unpack_from(">iI", link.buffer, at)
        if link.filled - at < length + 4:
            break
        size = mark & 0xFFFFFF
        header = json.loads(bytes(view[at + 8 : at + 8 + size]))
        puller = pullers[header["opaque"] - FIRST_OPAQUE]
        latencies.append(time.perf_counter() - puller.asked_at)
        puller.take(header, link.buffer[at + 8 + size : at + 4 + length])
        at += length + 4
    link.buffer[: link.filled - at] = link.buffer[at : link.filled].copy()
    link.filled -= at


@numba.njit(cache=True)
def count_records(body):  # type: ignore[no-untyped-def]
    """Return how many records a pull answer holds."""
    at = count = 0
    while at + 4 <= len(body):
        at += body[at] * 16777216 + body[at + 1] * 65536 + body[at + 2] * 256 + body[at + 3]
        count += 1
    return count


class Puller:
    """Reads one queue."""

    def __init__(self, topic: str, queue_id: int, sock: socket.socket, count: int) -> None:
        self.done = False
        self.messages = self.bytes = 0
        self.asked_at = 0.0
        self._topic, self._queue_id, self._sock, self._count = topic, queue_id, sock, count
        self._offset = 0

    def ask(self) -> None:
        fields = {
            "consumerGroup": "BenchPull",
            "topic": self._topic,
            "queueId": str(self._queue_id),
            "queueOffset": str(self._offset),
            "maxMsgNums": str(self._count),
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        before, behind = frame(11, fields, b"")
        self.asked_at = time.perf_counter()
        self._sock.sendall(before + b"%d" % (FIRST_OPAQUE + self._queue_id) + behind)

    def take(self, header: dict[str, object], body: npt.NDArray[np.uint8]) -> None:
        fields = header.get("extFields") or {}
        if header["code"] == 0:
            self.messages += count_records(body)
            self.bytes += len(body)
        elif header["code"] not in (19, 20, 21):
            raise SystemExit(f"queue {self._queue_id}: {header}")
        self._offset = int(fields["nextBeginOffset"])  # type: ignore[index]
        self.done = header["code"] in (19, 21) and self._offset >= int(fields["maxOffset"])  # type: ignore[index]
        if not self.done:
            self.ask()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["send", "pull"])
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--warm", type=float, default=1)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--count", type=int, default=32, help="messages asked for in one pull")
    arguments = parser.parse_args()
    split(
        np.zeros(16, np.uint8),
        0,
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
    )
    count_records(np.zeros(1, np.uint8))
    figures = send(arguments) if arguments.what == "send" else pull(arguments)
    json.dump(figures, sys.stdout)
    print()


if __name__ == "__main__":
    main()
