"""Where a stream over topics is: offsets of queues as JSON, and how limits are shared. No Spark, no I/O.

An offset of the stream, as it lies in Spark's checkpoint:

    {"queues": {"Orders": {"broker-a": {"0": 120, "1": 80}}},
     "from":   {"Orders": {"broker-a": {"1": 75}}}}

`queues` says of each queue what is read next: exclusive ends. `from` names the queues of the batch that
ends here which do not begin where the batch before it ended: those that are new to the stream, and those
whose oldest messages were deleted. So a batch can always be planned from its two offsets alone. That
matters most for the first one: Spark asks for the initial offset again when that batch is repeated after
a crash, when "latest" is somewhere else. The initial offset of all streams is therefore {}, and the first
batch is made even if it is empty: what turns up after it is new, and read from its start.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from orbitmq.errors import PipelineError
from orbitmq.wire.bodies.message_queue import MessageQueue

Offsets = dict[MessageQueue, int]

OFFSET_MAX: Final = 2**63 - 1
ROWS_PER_TASK_MIN: Final = 2_000
ROWS_PER_TASK_MAX: Final = 50_000
TASKS_WANTED: Final = 16


class QueueRange(NamedTuple):
    """Messages `start` to `end` of one queue. Travels to a task."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int

    @classmethod
    def of(cls, queue: MessageQueue, start: int, end: int) -> "QueueRange":
        return cls(queue.topic, queue.broker_name, queue.queue_id, start, end)

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(*self[:3])


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """One offset of the stream: see the module."""

    ends: Mapping[MessageQueue, int] = field(default_factory=dict)
    begins: Mapping[MessageQueue, int] = field(default_factory=dict)
    started: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return what Spark writes into its checkpoint; equal offsets give equal text."""
        if not self.started:
            return {}
        return {"queues": nested(self.ends), "from": nested(self.begins)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "StreamOffset":
        """Return the offset. PipelineError: the checkpoint is of another kind of stream."""
        if not value:
            return INITIAL
        try:
            return cls(flat(value["queues"]), flat(value["from"]))
        except (KeyError, TypeError, ValueError, AttributeError) as cause:
            raise foreign_checkpoint(value) from cause


INITIAL: Final = StreamOffset(started=False)


def foreign_checkpoint(value: object) -> PipelineError:
    """Return the error for an offset that this stream has not written."""
    return PipelineError(
        f"the checkpoint holds the offset {value!r}, which is not of this kind of stream",
        "Give the query the checkpointLocation that it had, or a new one.",
    )


def nested(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """Return {topic: {broker: {queue: offset}}}, sorted."""
    tree: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        brokers = tree.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return tree


def flat(tree: Mapping[str, Any]) -> Offsets:
    """Return the offsets of {topic: {broker: {queue: offset}}}. ValueError, TypeError: it is not that."""
    offsets: Offsets = {}
    for topic, brokers in tree.items():
        for broker_name, queues in brokers.items():
            for queue_id, offset in queues.items():
                queue = MessageQueue(topic, broker_name, int(queue_id))
                offsets[queue] = _checked(queue, offset)
    return offsets


def _checked(queue: MessageQueue, offset: object) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= OFFSET_MAX:
        raise ValueError(f"{queue}: {offset!r} is no queue offset")
    if queue.queue_id < 0:
        raise ValueError(f"{queue}: no queue has this number")
    return offset


def moved(start: StreamOffset, begins: Mapping[MessageQueue, int], taken: Offsets) -> StreamOffset:
    """Return the offset that lies `taken` messages behind `start`; the same object if nothing is new."""
    froms = {**start.ends, **begins}
    ends = {queue: offset + taken.get(queue, 0) for queue, offset in froms.items()}
    if ends == start.ends and start.started:
        return start
    return StreamOffset(ends, dict(begins))


def ranges(start: StreamOffset, end: StreamOffset) -> list[QueueRange]:
    """Return what the batch between two offsets reads; queues without anything new are left out."""
    found = []
    for queue in sorted(end.ends):
        # The larger one: between an offset and itself there is nothing, wherever its own batch began.
        begin = max(start.ends.get(queue, -1), end.begins.get(queue, -1))
        if begin < 0:
            raise foreign_checkpoint(end.to_json())
        if begin < end.ends[queue]:
            found.append(QueueRange.of(queue, begin, end.ends[queue]))
    return found


def tasks(found: Sequence[QueueRange]) -> list[tuple[QueueRange, ...]]:
    """Return the ranges of a batch by task, not too few of them and none too long."""
    total = sum(one.end - one.start for one in found)
    rows_max = min(max(total // TASKS_WANTED, ROWS_PER_TASK_MIN), ROWS_PER_TASK_MAX)
    return cut_tasks(found, rows_max)


def cut_tasks(
    found: Iterable[QueueRange],
    limit: int,
    weights: Mapping[MessageQueue, int] | None = None,
    weight: int = 1,
) -> list[tuple[QueueRange, ...]]:
    """Cut long ranges and put short ones of the same broker together, up to a limit for each task.

    `weights` says how much each message of a queue counts, `weight` what it does elsewhere.
    """
    made: list[list[QueueRange]] = []
    room = 0
    for one in sorted(found, key=lambda one: (one.broker_name, one)):
        each = max((weights or {}).get(one.queue, weight), 1)
        for piece in _pieces(one, limit // each):
            size = (piece.end - piece.start) * each
            if not made or size > room or made[-1][-1].broker_name != piece.broker_name:
                made.append([])
                room = limit
            made[-1].append(piece)
            room -= size
    return [tuple(task) for task in made]


def _pieces(whole: QueueRange, count_max: int) -> Iterator[QueueRange]:
    length = whole.end - whole.start
    count = -(-length // max(count_max, 1))
    cuts = [whole.start + length * number // count for number in range(count + 1)]
    for start, end in itertools.pairwise(cuts):
        yield whole._replace(start=start, end=end)


# --- limits ---


def shares(available: Sequence[int], limit: int, turn: int) -> list[int]:
    """Share a limit: who wants little gets all of it, the others equally much.

    What cannot be divided goes to `turn` and those behind it. With a turn that grows by what was taken,
    all have their turn, also where the limit is smaller than the number of those who want something.
    """
    if sum(available) <= limit:
        return list(available)
    level, left = 0, limit
    for number, wanted in enumerate(sorted(available)):
        level = left // (len(available) - number)
        if wanted > level:
            break
        left -= wanted
    taken = [min(wanted, level) for wanted in available]
    hungry = [index for index, wanted in enumerate(available) if wanted > level]
    rest = limit - sum(taken)
    for number in range(rest):
        taken[hungry[(turn + number) % len(hungry)]] += 1
    return taken


def take_rows(available: Mapping[MessageQueue, int], rows_max: int, turn: int) -> Offsets:
    """Return how many messages of each queue a batch of `rows_max` takes."""
    queues = sorted(available)
    counts = shares([available[queue] for queue in queues], rows_max, turn)
    return dict(zip(queues, counts, strict=True))


def take_bytes(
    available: Mapping[MessageQueue, int],
    sizes: Mapping[MessageQueue, Sequence[int]],
    bytes_max: int,
    turn: int,
) -> Offsets:
    """Return how many messages of each queue a batch of `bytes_max` takes, at least one of all.

    `sizes` are those of each queue's next messages; the mean of them stands for those behind. The queue
    whose turn it is gets a message even if it is too large: it would wait for ever.
    """
    queues = [queue for queue in sorted(available) if available[queue] > 0]
    if not queues:
        return {}
    wanted = [_bytes(sizes[queue], available[queue]) for queue in queues]
    budgets = shares(wanted, bytes_max, turn)
    taken = {
        queue: _count(sizes[queue], available[queue], budget)
        for queue, budget in zip(queues, budgets, strict=True)
    }
    first = queues[turn % len(queues)]
    taken[first] = max(taken[first], 1)
    return taken


def _mean(sizes: Sequence[int]) -> int:
    return max(1, sum(sizes) // len(sizes)) if sizes else 1


def _bytes(sizes: Sequence[int], available: int) -> int:
    known = sizes[:available]
    return sum(known) + (available - len(known)) * _mean(known)


def _count(sizes: Sequence[int], available: int, budget: int) -> int:
    """Return how many messages fit into the budget."""
    known = sizes[:available]
    for count, total in enumerate(itertools.accumulate(known)):
        if total > budget:
            return count
    beyond = (budget - sum(known)) // _mean(known)
    return min(available, len(known) + beyond)
