"""The queues of a store, numbered: everything that is kept per queue is kept by this number."""

import logging
import threading
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.files.listing import topic_name_problem
from orbitmq.format.kernels import Kernels, QueueTable
from orbitmq.format.snapshot import QueueKind

log = logging.getLogger(__name__)

SIMPLE: Final = QueueKind.SIMPLE
BATCH: Final = QueueKind.BATCH
NO_QUEUE: Final = 2
"""A topic that cannot name a directory: its records stay in the log and are in no queue."""

_FIRST_CAPACITY: Final = 64


class QueueNames:
    """Names and kinds of all queues, of both families.

    Any thread may look up; `add` and the kernels' table belong to the dispatching thread.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._lock = threading.Lock()  # guards the growing of all below
        self._names: list[tuple[str, int]] = []
        self._numbers: dict[tuple[str, int], int] = {}
        self._raw: list[bytes] = []  # the topic as records spell it
        self._kinds: npt.NDArray[np.int8] = np.zeros(_FIRST_CAPACITY, dtype=np.int8)
        self._table: QueueTable = kernels.queue_table()
        self.all_simple = True  # no queue of another kind was ever added

    def use(self, kernels: Kernels) -> None:
        """Number with other kernels from now on; every queue keeps its number."""
        table = kernels.queue_table()
        with self._lock:
            for number, (raw, (_, queue_id)) in enumerate(zip(self._raw, self._names, strict=True)):
                added = table.add(raw, queue_id)
                assert added == number
            self._table = table

    @property
    def table(self) -> QueueTable:
        return self._table

    @property
    def kinds(self) -> npt.NDArray[np.int8]:
        """The kind of each queue by number; may be longer than there are queues."""
        return self._kinds

    def add(self, topic: str, queue_id: int, kind: int = SIMPLE) -> int:
        """Return the number of this queue, a new one if it was not known."""
        known = self._numbers.get((topic, queue_id))
        return known if known is not None else self.add_raw(topic.encode(), queue_id, kind)

    def add_raw(self, topic: bytes, queue_id: int, kind: int = SIMPLE) -> int:
        """Do the same for a topic as a record spells it, which may be any bytes."""
        name, problem = _checked_name(topic)
        with self._lock:
            number = self._table.add(topic, queue_id)
            if number < len(self._names):
                return number
            if problem is not None:
                kind = NO_QUEUE
                log.error("queue %d of a topic: left out of the queues, %s", queue_id, problem)
            if number == len(self._kinds):
                self._kinds = np.concatenate([self._kinds, np.zeros_like(self._kinds)])
            self._kinds[number] = kind
            self.all_simple = self.all_simple and kind == SIMPLE
            self._raw.append(topic)
            self._names.append((name, queue_id))
            if problem is None:
                self._numbers[name, queue_id] = number
            return number

    def find(self, topic: str, queue_id: int) -> int:
        """Return the number of this queue, or -1."""
        return self._numbers.get((topic, queue_id), -1)

    def name(self, number: int) -> tuple[str, int]:
        """Return topic and queue id."""
        return self._names[number]

    def kind(self, number: int) -> int:
        return int(self._kinds[number])

    def of_topic(self, topic: str) -> list[int]:
        """Return the numbers of all queues of a topic."""
        return [number for number, (name, _) in enumerate(list(self._names)) if name == topic]

    def of_kind(self, kind: int) -> Iterator[int]:
        """Yield the numbers of all queues of a kind."""
        return iter(np.flatnonzero(self._kinds[: len(self)] == kind).tolist())

    def __len__(self) -> int:
        return len(self._names)


def _checked_name(topic: bytes) -> tuple[str, str | None]:
    try:
        name = topic.decode()
    except UnicodeDecodeError:
        return topic.decode("utf-8", "replace"), f"topic {topic[:40]!r} is not UTF-8"
    return name, topic_name_problem(name)
