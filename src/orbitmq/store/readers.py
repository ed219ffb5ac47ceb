"""Who still needs old records: segments can wait for their readers (waitForReaders; off by default).

waitForReaders | a segment stays while
off            | never, as in RocketMQ: time and space alone decide
queues         | a queue file that was written within the retention has a unit that leads into it
groups         | a consumer group has committed an offset of a queue and not read past it; who serves the
               | groups tells that (`MessageStore.wait_for_readers`): the store knows none

A group that never committed an offset of a queue, or that was deleted, holds nothing.
"""

import os
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from orbitmq.format import batch_unit, cq_unit
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.queues.batch_queue import BatchQueues
from orbitmq.store.queues.consume_queue import ConsumeQueues

_LOOK_UNITS: Final = 512


class Unread(NamedTuple):
    """The first record that somebody still needs."""

    log_offset: int
    reader: str  # for people: who needs it


Readers = Callable[[], Unread | None]
"""Returns the smallest log offset that is still needed, None: none is. Called by the cleaning thread."""


def first_referred(dispatcher: Dispatcher, now_ms: int, retention_ms: int) -> Unread | None:
    """Return the first record that a queue file within the retention leads to."""
    expired_ms = now_ms - retention_ms
    found = [*_simple(dispatcher.queues, expired_ms), *_batch(dispatcher.batch_queues, expired_ms)]
    return min(found, default=None)


def _simple(queues: ConsumeQueues, expired_ms: int) -> Iterator[Unread]:
    for number in queues.numbers():
        low = queues.min_offset(number)
        # Units that are in no file yet are new.
        bases = queues.bases(number) or [low * cq_unit.UNIT_BYTES]
        for base in bases:
            if _is_expired(queues.path(number, base), expired_ms):
                continue
            first = max(base // cq_unit.UNIT_BYTES, low)
            data = queues.read_raw(number, first, _LOOK_UNITS)
            units = np.frombuffer(data, cq_unit.UNIT_DTYPE, len(data) // cq_unit.UNIT_BYTES)
            real = units[units["size"] != cq_unit.PADDING_SIZE]
            if len(real):
                yield Unread(int(real["log_offset"][0]), _name(queues, number))
                break


def _batch(queues: BatchQueues, expired_ms: int) -> Iterator[Unread]:
    for number in queues.numbers():
        first, _ = queues.unit_range(number)
        for base in queues.bases(number) or [first * batch_unit.UNIT_BYTES]:
            if _is_expired(queues.path(number, base), expired_ms):
                continue
            units = queues.read_raw(number, max(base // batch_unit.UNIT_BYTES, first), 1)
            if len(units):
                yield Unread(int(units["log_offset"][0]), _name(queues, number))
                break


def _name(queues: ConsumeQueues | BatchQueues, number: int) -> str:
    topic, queue_id = queues.names.name(number)
    return f"queue {queue_id} of topic {topic}"


def _is_expired(path: str, expired_ms: int) -> bool:
    try:
        modified_ns = os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return False  # not written yet
    return modified_ns // 1_000_000 <= expired_ms
