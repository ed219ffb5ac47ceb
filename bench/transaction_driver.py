"""A light client of transactions: half message, answer, commit, answer; so many in flight.

    python bench/transaction_driver.py transactions ADDRESS TOPIC --depth 16 --seconds 4 [--connections 4]

Prints one JSON line: transactions a second, latencies from the half message to the answer of its commit, and
how many answers were no success.
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

KEY = "K" * 32
LOG_OFFSET, QUEUE_OFFSET = 10**17 + 1, 10**17 + 2
_ANSWER = re.compile(rb'"code":(\d+).*?"opaque":(\d+)', re.DOTALL)
_PLACE = re.compile(rb'"msgId":"[0-9A-F]{16}([0-9A-F]{16})"')
_QUEUE_OFFSET = re.compile(rb'"queueOffset":"(\d+)"')


class Requests:
    """The two requests of a transaction, as texts with places for what differs."""

    def __init__(self, topic: str) -> None:
        self._half = self._half_frames(topic)
        fields = {
            "producerGroup": "BenchGroup",
            "tranStateTableOffset": str(QUEUE_OFFSET),
            "commitLogOffset": str(LOG_OFFSET),
            "commitOrRollback": "8",
            "fromTransactionCheck": "false",
            "msgId": KEY,
            "transactionId": KEY,
            "topic": topic,
            "bname": "broker-a",
        }
        before, behind = frame(37, fields, b"")
        self._end = before[8:], behind

    @staticmethod
    def _half_frames(topic: str) -> list[tuple[bytes, bytes]]:
        texts = f"UNIQ_KEY\x01{KEY}\x02WAIT\x01true\x02TRAN_MSG\x01true\x02PGROUP\x01BenchGroup\x02"
        body = bytes(range(256)) * (BODY_BYTES // 256)
        found = []
        for queue_id in range(8):
            fields = {"a": "BenchGroup", "b": topic, "c": "TBW102", "d": "8", "e": str(queue_id)}
            fields |= {"f": "4", "g": str(time.time_ns() // 1_000_000), "h": "0", "i": texts}
            fields |= {"j": "0", "k": "false", "m": "false", "n": "broker-a"}
            found.append(frame(310, fields, body))
        return found

    def half(self, number: int) -> bytes:
        before, behind = self._half[number % 8]
        key = b"%032X" % number
        return before.replace(KEY.encode(), key) + b"%d" % (FIRST_OPAQUE + number) + behind

    def end(self, number: int, log_offset: int, queue_offset: int) -> bytes:
        before, behind = self._end
        text = before.replace(KEY.encode(), b"%032X" % number)
        text = text.replace(b"%d" % LOG_OFFSET, b"%d" % log_offset)
        text = text.replace(b"%d" % QUEUE_OFFSET, b"%d" % queue_offset)
        header = text + b"%d" % (FIRST_OPAQUE + number) + behind
        return (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


class Driver:
    """Keeps `depth` transactions in flight over all connections together."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._requests = Requests(arguments.topic)
        self._poll = select.epoll()
        self._links: dict[int, tuple[socket.socket, bytearray]] = {}
        for _ in range(min(arguments.connections, arguments.depth)):
            sock = connect(arguments.address)
            self._links[sock.fileno()] = sock, bytearray()
            self._poll.register(sock, select.EPOLLIN)
        self._depth = arguments.depth
        self._begun: list[float] = []
        self._half_done: set[int] = set()
        self._done: dict[int, float] = {}
        self.errors = 0

    def run(self, seconds: float, warm: float) -> dict[str, float]:
        """Do transactions for so long; the first part is not counted."""
        start = time.perf_counter()
        until = start + warm + seconds
        links = list(self._links.values())
        for index in range(self._depth):
            links[index % len(links)][0].sendall(self._begin())
        waiting = self._depth
        while waiting:
            ready = self._poll.poll(SILENCE_S)
            if not ready:
                raise SystemExit(f"no answer for {SILENCE_S} s; {waiting} transactions wait")
            for fileno, _ in ready:
                sock, buffer = self._links[fileno]
                out: list[bytes] = []
                for answer in self._answers(sock, buffer):
                    waiting -= self._take(answer, out, until)
                if out:
                    sock.sendall(b"".join(out))
        return figures(self._begun, self._done, start + warm, until, self.errors)

    def _begin(self) -> bytes:
        self._begun.append(time.perf_counter())
        return self._requests.half(len(self._begun) - 1)

    def _answers(self, sock: socket.socket, buffer: bytearray) -> Iterator[bytes]:
        data = sock.recv(1 << 20)
        if not data:
            raise SystemExit("the broker closed the connection")
        buffer += data
        at = 0
        while len(buffer) - at >= 4:
            end = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
            if len(buffer) < end:
                break
            yield bytes(buffer[at + 8 : end])
            at = end
        del buffer[:at]

    def _take(self, answer: bytes, out: list[bytes], until: float) -> int:
        """Go on with the transaction of an answer; return 1 if there is one less in flight."""
        found = _ANSWER.search(answer)
        if found is None:
            raise SystemExit(f"no answer: {answer[:200]!r}")
        number = int(found[2]) - FIRST_OPAQUE
        self.errors += found[1] != b"0"
        if number not in self._half_done:
            self._half_done.add(number)
            place, offset = _PLACE.search(answer), _QUEUE_OFFSET.search(answer)
            if place is None or offset is None:
                raise SystemExit(f"no half message: {answer[:300]!r}")
            out.append(self._requests.end(number, int(place[1], 16), int(offset[1])))
            return 0
        self._half_done.discard(number)
        self._done[number] = time.perf_counter()
        if self._done[number] >= until:
            return 1
        out.append(self._begin())
        return 0


def main() -> None:
    arguments = options(__doc__, "transactions")
    json.dump(Driver(arguments).run(arguments.seconds, arguments.warm), sys.stdout)
    print()


if __name__ == "__main__":
    main()
