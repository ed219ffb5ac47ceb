"""A light asker and replier: request, pull, reply, push; so many requests in flight.

    python bench/request_driver.py request ADDRESS TOPIC --depth 16 --seconds 4 [--connections 4]

The askers are producers that the broker knows by their heartbeats; the replier waits for requests with one
long poll per queue and sends replies on a connection of its own. Prints one JSON line: replies a second,
latencies from the send of a request to the push of its reply, and how many answers were no success. A reply
too many, too few or of another request ends the run.
"""

import argparse
import json
import re
import select
import socket
import sys
import time
from collections.abc import Iterator

from frames import BODY_BYTES, FIRST_OPAQUE, SILENCE_S, connect, figures, frame, options

QUEUES = 8
NUMBER = "N" * 12  # stands in the frames, to be replaced by the number of a request
KEY = f"{'0' * 20}{NUMBER}"
CORRELATION = f"00000000-0000-4000-8000-{NUMBER}"
CLIENT = "C" * 16
OFFSET = "1000000000"  # as long as each offset that takes its place
HEARTBEAT, PULL, SEND, REPLY, PUSH = 34, 11, 310, 325, 326
FOUND, NOT_FOUND, AGAIN = b"0", b"19", b"20"
_CODE = re.compile(rb'"code":(\d+)')
_OPAQUE = re.compile(rb'"opaque":(\d+)')
_NEXT = re.compile(rb'"nextBeginOffset":"(\d+)"')
_ASKED = re.compile(rb"CORRELATION_ID(?:\x01|\\u0001)[0-9a-f]{8}-0000-4000-8000-(\d{12})")


class Frames:
    """All requests of both, as bytes with places for what differs."""

    def __init__(self, topic: str, askers: int) -> None:
        self._sends = [_send(topic, queue_id) for queue_id in range(QUEUES)]
        self._pulls = [_pull(topic, queue_id) for queue_id in range(QUEUES)]
        self._reply = _reply()
        self._clients = [client_id(index) for index in range(askers)]
        header = {"code": 0, "flag": 1, "language": "JAVA", "opaque": 0, "version": 479}
        text = json.dumps(header | {"serializeTypeCurrentRPC": "JSON"}, separators=(",", ":"))
        self._taken = [part.encode() for part in text.split('"opaque":0')]

    def send(self, number: int) -> bytes:
        return self._fill(self._sends[number % QUEUES], number)

    def reply(self, number: int) -> bytes:
        return self._fill(self._reply, number)

    def _fill(self, parts: tuple[bytes, bytes], number: int) -> bytes:
        before, behind = parts
        whole = before + b"%d" % (FIRST_OPAQUE + number) + behind
        whole = whole.replace(NUMBER.encode(), b"%012d" % number)
        return whole.replace(CLIENT.encode(), self._clients[number % len(self._clients)])

    def pull(self, queue_id: int, offset: int) -> bytes:
        before, behind = self._pulls[queue_id]
        text = before.replace(OFFSET.encode(), b"%010d" % offset)
        return text + b"%d" % (FIRST_OPAQUE + queue_id) + behind

    def taken(self, opaque: bytes) -> bytes:
        """Return an asker's answer to the push of a reply."""
        before, behind = self._taken
        text = before + b'"opaque":' + opaque + behind
        return (len(text) + 4).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text


def client_id(index: int) -> bytes:
    return b"bench@%010d" % index


def _message(topic: str, group: str, queue_id: int, properties: dict[str, str]) -> dict[str, str]:
    fields = {"a": group, "b": topic, "c": "TBW102", "d": "8", "e": str(queue_id), "f": "0"}
    fields |= {"g": str(time.time_ns() // 1_000_000), "h": "0"}
    fields["i"] = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return fields | {"j": "0", "k": "false", "m": "false", "n": "broker-a"}


def _send(topic: str, queue_id: int) -> tuple[bytes, bytes]:
    asks = {"REPLY_TO_CLIENT": CLIENT, "TTL": "30000", "CORRELATION_ID": CORRELATION}
    properties = {**asks, "UNIQ_KEY": KEY, "WAIT": "true", "TAGS": "TagA"}
    body = bytes(range(256)) * (BODY_BYTES // 256)
    return frame(SEND, _message(topic, "BenchAsk", queue_id, properties), body)


def _reply() -> tuple[bytes, bytes]:
    says = {"MSG_TYPE": "reply", "REPLY_TO_CLIENT": CLIENT, "TTL": "30000"}
    properties = {**says, "CORRELATION_ID": CORRELATION, "UNIQ_KEY": KEY}
    fields = _message("DefaultCluster_REPLY_TOPIC", "BenchReply", 0, properties)
    return frame(REPLY, fields, b"reply to " + NUMBER.encode())


def _pull(topic: str, queue_id: int) -> tuple[bytes, bytes]:
    fields = {
        "consumerGroup": "BenchReplier",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": OFFSET,
        "maxMsgNums": "32",
        "sysFlag": "6",  # may wait, and says what it wants
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return frame(PULL, fields, b"")


def greet(sock: socket.socket, index: int) -> None:
    """Make a connection known to the broker as that of a producer."""
    groups = [{"groupName": "BenchAsk"}]
    data = {"clientID": client_id(index).decode(), "consumerDataSet": [], "producerDataSet": groups}
    before, behind = frame(HEARTBEAT, {}, json.dumps(data).encode())
    sock.sendall(before + b"%d" % FIRST_OPAQUE + behind)
    head, _ = next(frames(sock, bytearray()))
    if b'"code":0' not in head:
        raise SystemExit(f"a heartbeat was not taken: {head[:200]!r}")


def frames(sock: socket.socket, buffer: bytearray) -> Iterator[tuple[bytes, bytes]]:
    """Yield header and body of each frame that is there."""
    data = sock.recv(1 << 20)
    if not data:
        raise SystemExit("the broker closed the connection")
    buffer += data
    at = 0
    while len(buffer) - at >= 8:
        end = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
        if len(buffer) < end:
            break
        head_end = at + 8 + int.from_bytes(buffer[at + 5 : at + 8], "big")
        yield bytes(buffer[at + 8 : head_end]), bytes(buffer[head_end:end])
        at = end
    del buffer[:at]


def found(pattern: re.Pattern[bytes], text: bytes) -> bytes:
    match = pattern.search(text)
    if match is None:
        raise SystemExit(f"no {pattern.pattern!r} in {text[:300]!r}")
    return match[1]


class Driver:
    """Keeps `depth` requests in flight over all askers together, and replies to each."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._depth = arguments.depth
        askers = [
            connect(arguments.address) for _ in range(min(arguments.connections, self._depth))
        ]
        for index, sock in enumerate(askers):
            greet(sock, index)
        self._askers = askers
        self._puller, self._replier = connect(arguments.address), connect(arguments.address)
        takers = {self._puller: self._take_requests, self._replier: self._take_answers}
        takers |= dict.fromkeys(askers, self._take_pushes)
        self._poll = select.epoll()
        self._links = {sock.fileno(): (sock, bytearray(), take) for sock, take in takers.items()}
        for sock in takers:
            self._poll.register(sock, select.EPOLLIN)
        self._frames = Frames(arguments.topic, len(askers))
        self._begun: list[float] = []
        self._done: dict[int, float] = {}
        self._unanswered = 0  # requests, replies
        self._until = 0.0
        self.errors = 0

    def run(self, seconds: float, warm: float) -> dict[str, float]:
        """Ask for so long; the first part is not counted."""
        start = time.perf_counter()
        self._until = start + warm + seconds
        self._puller.sendall(b"".join(self._frames.pull(queue, 0) for queue in range(QUEUES)))
        for _ in range(self._depth):
            self._ask()
        while len(self._done) < len(self._begun) or self._unanswered:
            ready = self._poll.poll(SILENCE_S)
            if not ready:
                waiting = len(self._begun) - len(self._done)
                raise SystemExit(f"nothing came for {SILENCE_S} s; {waiting} requests wait")
            for fileno, _ in ready:
                sock, buffer, take = self._links[fileno]
                take(sock, frames(sock, buffer))
        return figures(self._begun, self._done, start + warm, self._until, self.errors)

    def _ask(self) -> None:
        number = len(self._begun)
        data = self._frames.send(number)
        self._unanswered += 1
        self._begun.append(time.perf_counter())
        self._askers[number % len(self._askers)].sendall(data)

    def _take_answers(self, _: socket.socket, arrived: Iterator[tuple[bytes, bytes]]) -> None:
        for head, _body in arrived:
            self._answered(found(_CODE, head))

    def _answered(self, code: bytes) -> None:
        self._unanswered -= 1
        self.errors += code != b"0"

    def _take_pushes(self, sock: socket.socket, arrived: Iterator[tuple[bytes, bytes]]) -> None:
        """End the requests whose replies came, and begin as many others."""
        now, out, ended = time.perf_counter(), [], 0
        for head, body in arrived:
            code = found(_CODE, head)
            if code != b"%d" % PUSH:
                self._answered(code)
                continue
            number = int(found(_ASKED, head))
            if body != b"reply to %012d" % number or number in self._done:
                raise SystemExit(f"request {number} got {body[:40]!r}, or a second reply")
            self._done[number] = now
            out.append(self._frames.taken(found(_OPAQUE, head)))
            ended += 1
        if out:
            sock.sendall(b"".join(out))
        if now < self._until:
            for _ in range(ended):
                self._ask()

    def _take_requests(self, sock: socket.socket, arrived: Iterator[tuple[bytes, bytes]]) -> None:
        """Reply to what the pulls brought, then pull again."""
        replies, pulls = [], []
        for head, body in arrived:
            code = found(_CODE, head)
            if code not in (FOUND, NOT_FOUND, AGAIN):
                raise SystemExit(f"a pull was answered with {head!r}")
            numbers = _ASKED.findall(body)
            replies += [self._frames.reply(int(number)) for number in numbers]
            queue_id = int(found(_OPAQUE, head)) - FIRST_OPAQUE
            pulls.append(self._frames.pull(queue_id, int(found(_NEXT, head))))
        if replies:
            self._unanswered += len(replies)
            self._replier.sendall(b"".join(replies))
        sock.sendall(b"".join(pulls))


def main() -> None:
    arguments = options(__doc__, "request")
    json.dump(Driver(arguments).run(arguments.seconds, arguments.warm), sys.stdout)
    print()


if __name__ == "__main__":
    main()
