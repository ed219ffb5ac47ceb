"""Sends client batches at a steady rate, whatever the answers do: traffic for those who follow a broker.

    python bench/paced_driver.py paced ADDRESS TOPIC --rate 20000 --seconds 60 [--batch 16]

Prints one JSON line: how many messages were stored, at which rate, how many answers said that the broker is
busy (these are sent again, as a producer does), and how many were no success otherwise. Batches go to 8
queues in turn over one connection. A broker that is slower than the rate holds the driver up, and the rate
that is told is lower than the one that was asked for.
"""

import argparse
import json
import sys
import threading
import time
from collections import deque

import numpy as np

from frames import FIRST_OPAQUE, connect
from raw_driver import send_frame, split

QUEUES = 8
BUFFER_BYTES = 1 << 20
SYSTEM_BUSY = 2


class PacedSender:
    """One connection: this thread sends, another one counts answers."""

    def __init__(self, address: str, topic: str, batch: int) -> None:
        self._sock = connect(address)
        self._frames = [send_frame(topic, queue, batch) for queue in range(QUEUES)]
        self._batch = batch
        self._stored = self._busy = self._errors = 0
        self._again: deque[int] = deque()

    def run(self, rate: float, seconds: float) -> dict[str, float]:
        count = max(1, round(rate * seconds / self._batch))
        listener = threading.Thread(target=self._listen, args=(count,))
        listener.start()
        start = time.monotonic()
        for number in range(count):
            early = start + number * self._batch / rate - time.monotonic()
            if early > 0:
                time.sleep(early)
            self._send(number)
            while self._again:
                self._send(self._again.popleft())
        while listener.is_alive():
            listener.join(0.01)
            while self._again:
                self._send(self._again.popleft())
        took = max(time.monotonic() - start, count * self._batch / rate)
        messages = self._stored * self._batch
        figures = {"rate": messages / took, "messages": messages}
        return {**figures, "busy": self._busy, "errors": self._errors}

    def _send(self, number: int) -> None:
        before, behind = self._frames[number % QUEUES]
        self._sock.sendall(before + b"%d" % (FIRST_OPAQUE + number) + behind)

    def _listen(self, count: int) -> None:
        buffer = np.zeros(BUFFER_BYTES, np.uint8)
        view, filled = memoryview(buffer), 0
        found = [np.zeros(4096, np.int64) for _ in range(3)]
        while self._stored + self._errors < count:
            got = self._sock.recv_into(view[filled:])
            if not got:
                raise SystemExit("the broker closed the connection")
            filled += got
            whole, rest = split(buffer, filled, *found)
            numbers, codes = found[0][:whole] - FIRST_OPAQUE, found[1][:whole]
            busy = numbers[codes == SYSTEM_BUSY].tolist()
            self._again.extend(busy)
            self._busy += len(busy)
            self._stored += int(np.count_nonzero(codes == 0))
            self._errors += int(np.count_nonzero((codes != 0) & (codes != SYSTEM_BUSY)))
            buffer[: filled - rest] = buffer[rest:filled].copy()
            filled -= rest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("paced",))
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--rate", type=float, default=20_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--batch", type=int, default=16)
    arguments = parser.parse_args()
    sender = PacedSender(arguments.address, arguments.topic, arguments.batch)
    json.dump(sender.run(arguments.rate, arguments.seconds), sys.stdout)
    print()


if __name__ == "__main__":
    main()
