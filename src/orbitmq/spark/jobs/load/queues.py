"""Which queue each row of a partition goes to, and its number there among the rows of this partition."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orbitmq.client.core.name_rules import require_topic as require_name
from orbitmq.errors import InvalidMessageError
from orbitmq.format.columns import Ints
from orbitmq.spark.jobs.load.facts import PartQueue

QUEUES_MAX: Final = 65536
"""Queue ids are below this: a topic has as many queues as its highest id says, used or not."""
NO_KEY: Final = 2**32
"""Stands for a hash where there is no key; hashes have 32 bits."""
_SYSTEM_PREFIX: Final = "rmq_sys_"

Mask = npt.NDArray[np.bool_]


class Counts:
    """How many there are of each group so far. Groups are small numbers. Not thread-safe."""

    def __init__(self) -> None:
        self.totals = np.zeros(0, dtype=np.int64)

    def ranks(self, groups: Ints) -> Ints:
        """Return the number of each element in its group, in order, and count it."""
        most = int(groups.max()) + 1 if len(groups) else 0
        if most > len(self.totals):
            self.totals = np.concatenate([self.totals, np.zeros(most - len(self.totals), np.int64)])
        order = np.argsort(groups, kind="stable")
        ordered = groups[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        lengths = np.diff(starts, append=len(ordered))
        inside = np.arange(len(ordered)) - np.repeat(starts, lengths)
        ranks = np.empty(len(groups), dtype=np.int64)
        ranks[order] = inside + self.totals[ordered]
        self.totals[ordered[starts]] += lengths
        return ranks


class Placed(NamedTuple):
    """Where rows go: number of the queue in this partition, its id, and the offset in it."""

    queues: Ints
    queue_ids: Ints
    offsets: Ints


class QueueChoice:
    """Chooses queues for the rows of one partition. Not thread-safe."""

    def __init__(self, partition: int, queue_count: Callable[[str], int]) -> None:
        """`queue_count` says how many queues of a topic there are to choose from."""
        self._partition, self._queue_count = partition, queue_count
        self._topics: dict[str, int] = {}
        self._counts: list[int] = []  # of queues, by the number of the topic
        self._queues: dict[tuple[int, int], int] = {}
        self._chosen: set[int] = set()
        self._turns, self._offsets = Counts(), Counts()

    def place(self, topics: pa.Array, given: pa.Array | None, hashes: Ints | None) -> Placed:
        """Place the next rows. `hashes` are those of sharding keys, NO_KEY where a row has none."""
        codes = self._topic_codes(topics)
        queue_ids, open_rows = self._given(given, len(codes))
        self._choose(codes, queue_ids, open_rows, hashes)
        numbers = self._queue_numbers(codes, queue_ids)
        self._chosen.update(np.unique(numbers[open_rows]).tolist())
        return Placed(numbers, queue_ids, self._offsets.ranks(numbers))

    def found(self) -> list[PartQueue]:
        """Return all queues so far, by their numbers."""
        names = list(self._topics)
        return [
            PartQueue(
                names[topic], queue_id, int(self._offsets.totals[number]), number in self._chosen
            )
            for (topic, queue_id), number in self._queues.items()
        ]

    def _topic_codes(self, topics: pa.Array) -> Ints:
        if topics.null_count:
            raise InvalidMessageError("a row has no topic")
        encoded = topics.dictionary_encode()
        numbers = [self._topic_number(topic) for topic in encoded.dictionary.to_pylist()]
        codes: Ints = np.array(numbers, dtype=np.int64)[encoded.indices.to_numpy()]
        return codes

    def _topic_number(self, topic: str) -> int:
        number = self._topics.get(topic)
        if number is None:
            require_topic(topic)
            self._counts.append(self._queue_count(topic))
            number = self._topics[topic] = len(self._topics)
        return number

    def _given(self, given: pa.Array | None, count: int) -> tuple[Ints, Mask]:
        """Return the queue ids that rows name, and which rows name none."""
        if given is None:
            return np.zeros(count, dtype=np.int64), np.ones(count, dtype=bool)
        queue_ids = given.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        outside = (queue_ids < 0) | (queue_ids >= QUEUES_MAX)
        if outside.any():
            found = int(queue_ids[outside][0])
            raise InvalidMessageError(f"queue_id is {found}; it must be 0 to {QUEUES_MAX - 1}")
        return queue_ids, np.array(given.is_null().to_numpy(zero_copy_only=False))

    def _choose(self, codes: Ints, queue_ids: Ints, rows: Mask, hashes: Ints | None) -> None:
        """Fill in the queue of each of these rows: by its key, else the next one of its topic."""
        counts = np.array(self._counts, dtype=np.int64)[codes]
        if hashes is not None:
            keyed = rows & (hashes != NO_KEY)
            queue_ids[keyed] = np.abs(hashes[keyed]) % counts[keyed]
            rows = rows & ~keyed
        if rows.any():
            turns = self._turns.ranks(codes[rows]) + self._partition
            queue_ids[rows] = turns % counts[rows]

    def _queue_numbers(self, codes: Ints, queue_ids: Ints) -> Ints:
        pairs, inverse = np.unique(codes * QUEUES_MAX + queue_ids, return_inverse=True)
        numbers = [
            self._queues.setdefault(divmod(pair, QUEUES_MAX), len(self._queues))
            for pair in pairs.tolist()
        ]
        return np.array(numbers, dtype=np.int64)[inverse]


def require_topic(topic: str) -> None:
    """Raise InvalidMessageError for a topic that no producer could send to."""
    require_name(topic)
    if topic.startswith(_SYSTEM_PREFIX):
        raise InvalidMessageError(f"topic {topic} is the broker's own: leave its rows out")
