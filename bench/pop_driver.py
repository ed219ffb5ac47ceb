"""A light pop consumer: takes messages by 32 and acknowledges each, until nothing is left.

    python bench/pop_driver.py pop ADDRESS TOPIC [--connections 4]

Prints one JSON line like `raw_driver.py`; a latency is that of one pop with all of its acks.
"""

import argparse
import json
import threading
import time

import numpy as np

from frames import FIRST_OPAQUE, connect, frame

COUNT = 32
GROUP = "BenchPop"
INVISIBLE_MS = 60_000


class Popper:
    """One connection: a pop, then all of its acks in one write, then the next pop."""

    def __init__(self, address: str, topic: str) -> None:
        self._sock, self._topic = connect(address), topic
        self._buffer = b""
        self.messages = self.errors = 0
        self.latencies: list[float] = []

    def run(self) -> None:
        while True:
            started = time.perf_counter()
            header = self._ask_pop()
            if header["code"] != 0:
                return
            acks = self._acks(header["extFields"])
            self._sock.sendall(b"".join(acks))
            for _ in acks:
                self.errors += self._read()["code"] != 0
            self.messages += len(acks)
            self.latencies.append(time.perf_counter() - started)

    def _ask_pop(self) -> dict[str, object]:
        fields = {
            "consumerGroup": GROUP,
            "topic": self._topic,
            "queueId": "-1",
            "maxMsgNums": str(COUNT),
            "invisibleTime": str(INVISIBLE_MS),
            "pollTime": "0",
            "bornTime": str(time.time_ns() // 1_000_000),
            "initMode": "0",
            "order": "false",
        }
        self._sock.sendall(_whole(200050, fields))
        return self._read()

    def _acks(self, fields: dict[str, str]) -> list[bytes]:
        starts = {}
        for item in fields["startOffsetInfo"].split(";"):
            kind, queue, start = item.split(" ")
            starts[kind, queue] = start
        words = fields["popTime"], fields["invisibleTime"], fields["reviveQid"]
        found = []
        for item in fields["msgOffsetInfo"].split(";"):
            kind, queue, offsets = item.split(" ")
            for offset in offsets.split(","):
                receipt = (starts[kind, queue], *words, kind, "broker-a", queue, offset)
                ack = {
                    "consumerGroup": GROUP,
                    "topic": self._topic,
                    "queueId": queue,
                    "offset": offset,
                    "extraInfo": " ".join(receipt),
                }
                found.append(_whole(200051, ack))
        return found

    def _read(self) -> dict[str, object]:
        size = int.from_bytes(self._exactly(4), "big")
        raw = self._exactly(size)
        length = int.from_bytes(raw[1:4], "big")
        header: dict[str, object] = json.loads(raw[4 : 4 + length])
        return header

    def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            got = self._sock.recv(1 << 20)
            if not got:
                raise SystemExit("the broker closed the connection")
            self._buffer += got
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken


def _whole(code: int, fields: dict[str, str]) -> bytes:
    before, behind = frame(code, fields, b"")
    return before + str(FIRST_OPAQUE).encode() + behind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("pop",))
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--connections", type=int, default=4)
    arguments = parser.parse_args()
    poppers = [Popper(arguments.address, arguments.topic) for _ in range(arguments.connections)]
    threads = [threading.Thread(target=popper.run) for popper in poppers]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    latencies = [one for popper in poppers for one in popper.latencies] or [0.0]
    p50, p99, p999 = np.percentile(np.array(latencies) * 1000, [50, 99, 99.9])
    messages = sum(popper.messages for popper in poppers)
    row = {
        "rate": messages / seconds,
        "messages": messages or 1,
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "p999_ms": float(p999),
        "errors": sum(popper.errors for popper in poppers),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
