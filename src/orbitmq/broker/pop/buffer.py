"""PopBuffer: check points that wait in memory for their acks (enablePopBufferMerge).

When all messages of a pop are acknowledged soon, neither its check point nor its acks are ever written. What
waits too long, or would come again soon, is written as if there were no buffer. The consumer offset stays
before what is only here, so a kill loses acks, never messages.
"""

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.pop.check_point import Ack, CheckPoint, CheckPointId
from orbitmq.broker.pop.progress import PopProgress, QueueKey, Step
from orbitmq.broker.pop.revive_log import ReviveLog
from orbitmq.message import AppendRequest

MARGIN_MS = 1_500
"""So long before a check point is written nothing is added to it any more."""


@dataclass(slots=True, eq=False)
class _Kept:
    point: CheckPoint
    revive_queue: int
    key: QueueKey
    step: Step
    pending: set[int]  # offsets that are not acknowledged


class PopBuffer:
    """The check points in memory. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext, log: ReviveLog, progress: PopProgress) -> None:
        self._config, self._clock, self._store = context.config, context.clock, context.store
        self._log, self._progress = log, progress
        self._kept: dict[CheckPointId, _Kept] = {}
        self._due: list[tuple[int, int, CheckPointId]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, point: CheckPoint, revive_queue: int, key: QueueKey, next_offset: int) -> bool:
        """Keep a check point; False: it has to be written."""
        config, now = self._config, self._clock.now_ms()
        if not config.pop_buffer or point.id in self._kept:
            return False
        if point.revive_ms - now < config.pop_buffer_timeout_ms + MARGIN_MS:
            return False
        if len(self._kept) > config.pop_buffer_size:
            return False
        if self._progress.step_count(key) >= config.pop_buffer_steps:
            return False
        step = self._progress.add(key, next_offset, None)
        self._kept[point.id] = _Kept(point, revive_queue, key, step, set(point.offsets))
        due_ms = min(
            point.pop_ms + config.pop_buffer_stay_ms, point.revive_ms - config.pop_buffer_timeout_ms
        )
        heapq.heappush(self._due, (due_ms, next(self._order), point.id))
        return True

    def ack(self, point_id: CheckPointId, offsets: Sequence[int]) -> bool:
        """Note acks; False: they have to be written."""
        kept = self._kept.get(point_id)
        if kept is None or not self._config.pop_buffer:
            return False
        point, now = kept.point, self._clock.now_ms()
        if point.revive_ms - now < self._config.pop_buffer_timeout_ms + MARGIN_MS:
            return False
        if now - point.pop_ms > self._config.pop_buffer_stay_ms - MARGIN_MS:
            return False
        kept.pending.difference_update(offsets)
        if not kept.pending:
            del self._kept[point_id]
            self._done(kept, 0)
        return True

    def write_due(self, *, everything: bool = False) -> None:
        """Write check points that waited long enough, with the acks that they have."""
        now = self._clock.now_ms()
        everything = everything or not self._config.pop_buffer
        while self._due and (everything or self._due[0][0] <= now):
            point_id = self._due[0][2]
            kept = self._kept.get(point_id)
            if kept is not None:
                if not self._write(kept):
                    return  # the store takes nothing now; it stays, and so does the consumer offset
                del self._kept[point_id]
            heapq.heappop(self._due)

    def forget(self, key: QueueKey) -> None:
        """Drop the check points of a queue: somebody has set the group's offset."""
        for point_id in [one for one, kept in self._kept.items() if kept.key == key]:
            del self._kept[point_id]

    def _write(self, kept: _Kept) -> bool:
        point = kept.point
        requests = [self._log.check_point(point, kept.revive_queue), *self._acks(kept)]
        results = self._log.append(requests)
        if not all(result.status.stored for result in results):
            return False  # a check point twice is one check point to its readers
        self._done(kept, results[-1].log_offset + results[-1].size)
        return True

    def _acks(self, kept: _Kept) -> list[AppendRequest]:
        point = kept.point
        acked = [offset for offset in point.offsets if offset not in kept.pending]
        if not acked:
            return []
        if self._config.pop_batch_ack:
            acks = [ack_of(point, offset_list=acked)]
        else:
            acks = [ack_of(point, offset=offset) for offset in acked]
        return [self._log.ack(ack, kept.revive_queue, point.revive_ms) for ack in acks]

    def _done(self, kept: _Kept, end_offset: int) -> None:
        kept.step.end_offset = end_offset
        self._progress.settle(kept.key)


def ack_of(point: CheckPoint, *, offset: int = -1, offset_list: list[int] | None = None) -> Ack:
    """Return an ack of messages of a check point."""
    ack = Ack(
        offset=offset,
        broker=point.broker,
        group=point.group,
        pop_ms=point.pop_ms,
        queue_id=point.queue_id,
        start_offset=point.start_offset,
        topic=point.topic,
    )
    if offset_list is not None:
        ack.offset_list = offset_list
    return ack
