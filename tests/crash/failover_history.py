"""What senders asked for and were told, and what was read in the end: does it fit together?

Rules, of messages that were each asked for once:
  acknowledged   in the log once, at the place that was told
  anything else  in the log once or not at all
  order          what one sender sent to a queue lies there in the order in which it was asked for
  nothing else   no message that nobody asked for
"""

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Told(NamedTuple):
    """What became of a message."""

    queue: int
    offset: int
    acknowledged: bool


@dataclass
class FailoverHistory:
    """One history. Any thread may add to it."""

    asked: dict[str, float] = field(default_factory=dict)  # body -> when
    told: dict[str, Told] = field(default_factory=dict)
    failures: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, body: str) -> None:
        with self._lock:
            assert body not in self.asked
            self.asked[body] = time.monotonic()

    def tell(self, body: str, told: Told) -> None:
        with self._lock:
            self.told[body] = told

    def fail(self) -> None:
        with self._lock:
            self.failures += 1

    @property
    def acknowledged(self) -> int:
        with self._lock:
            return sum(told.acknowledged for told in self.told.values())

    def problems(self, read: Mapping[int, Iterable[str]]) -> Iterator[str]:
        """Yield what is wrong; `read` is what each queue holds, from its first offset on."""
        places: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for queue, bodies in read.items():
            for offset, body in enumerate(bodies):
                places[body].append((queue, offset))
        for body, told in self.told.items():
            if told.acknowledged and places[body] != [(told.queue, told.offset)]:
                yield f"{body}: acknowledged as {told[:2]}, found at {places[body]}"
        for body, found in places.items():
            if len(found) > 1:
                yield f"{body}: stored {len(found)} times"
            if body not in self.asked:
                yield f"{body}: nobody sent it"
        for queue, bodies in read.items():
            yield from self._disorder(queue, bodies)

    def _disorder(self, queue: int, bodies: Iterable[str]) -> Iterator[str]:
        last: Counter[str] = Counter()
        for body in bodies:
            sender, _, number = body.partition("-")
            if int(number) < last[sender]:
                yield f"queue {queue}: {body} behind {sender}-{last[sender]}"
            last[sender] = int(number)

    def lines(self) -> Iterator[str]:
        """Yield the history as JSON, one event in a line, for checkers of other people."""
        for body, asked in self.asked.items():
            yield json.dumps({"type": "invoke", "f": "send", "value": body, "time": asked})
            told = self.told.get(body)
            if told is not None:
                kind = "ok" if told.acknowledged else "info"
                value = [body, told.queue, told.offset]
                yield json.dumps({"type": kind, "f": "send", "value": value})
