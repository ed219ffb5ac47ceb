"""ReviveService: messages whose invisible time is over without an ack go to their group's retry topic.

It reads the revive topic in order. Check points wait in memory for acks behind them; one is worked through
when everything that was due until its end has been read: no ack of it can come any more that came in time.
The group's offset in the revive topic is that of the last check point which is worked through, and never
ahead of the disk: after a kill some are worked through again, and messages come twice rather than never.

what is found of a message                                  | what becomes of it
it                                                          | appended to the retry topic
nothing there: deleted, expired, or the topic is gone       | nothing
another one: stored after the pop, or at another offset     | nothing
it cannot be read or stored now                             | a new check point for it alone, later
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.pop.check_point import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    CheckPoint,
    CheckPointId,
    decode_ack,
    decode_check_point,
)
from orbitmq.broker.pop.engine import PopEngine
from orbitmq.broker.pop.retry_record import retry_of
from orbitmq.broker.pop.revive_log import REVIVE_GROUP
from orbitmq.errors import FormatError, StoreError
from orbitmq.format.record import Record, decode_record
from orbitmq.message import RETRY_PREFIX, TIMER_TOPIC, GetStatus
from orbitmq.units import MINUTE_MS, SECOND_MS
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.receipt import normal_topic, retry_topic_v1, retry_topic_v2

logger = logging.getLogger(__name__)

READ_COUNT: Final = 32
TURN_COUNT: Final = 1_024  # records of one queue that are read before others get their turn
STRANGER_MS: Final = 1 * MINUTE_MS
"""A message stored so much later than its check point's pop is another one: the topic was made anew."""
AGAIN_SECONDS: Final = (
    *(10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200),
)
"""How much later a message is tried that could not be put into its retry topic, by the number of tries."""

_ELSEWHERE: Final = (
    GetStatus.OFFSET_TOO_SMALL,
    GetStatus.OFFSET_OVERFLOW_BADLY,
    GetStatus.OFFSET_FOUND_NULL,
    GetStatus.MESSAGE_WAS_REMOVING,
    GetStatus.NO_MATCHED_MESSAGE,
)


@dataclass(slots=True, eq=False)
class _Waiting:
    """A check point that was read."""

    point: CheckPoint
    acked: set[int] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Queue:
    """One queue of the revive topic. `waiting` is in the order of the queue."""

    queue_id: int
    next_offset: int
    waiting: dict[CheckPointId, _Waiting] = field(default_factory=dict)
    read_ms: int = 0  # everything that was due until then has been read


class ReviveService:
    """Works through the revive topic. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext, engine: PopEngine) -> None:
        self._context, self._config, self._store = context, context.config, context.store
        self._clock, self._offsets = context.clock, context.offsets
        self._engine, self._topic = engine, engine.log.topic
        self._queues: list[_Queue] = []
        self._readable_ms = 0  # everything that was due until then can be read
        self._following = self._follow()

    @property
    def waiting(self) -> int:
        """How many check points were read and are not worked through."""
        return sum(len(queue.waiting) for queue in self._queues)

    def tick(self) -> bool:
        """Read what is new and work through what is over; True: there is more to do at once."""
        if not self._queues:
            self._queues = [
                _Queue(queue_id, self._offsets.get(REVIVE_GROUP, self._topic, queue_id) + 1)
                for queue_id in range(self._engine.log.queue_count)
            ]
        more, readable_ms = False, self._readable_ms
        for queue in self._queues:
            try:
                if self._read(queue):
                    more = True
                else:
                    queue.read_ms = readable_ms
                self._work(queue)
            except Exception:
                logger.exception("revive queue %d failed; it is tried again", queue.queue_id)
        return more

    def look(self) -> None:
        """Find out until when everything that was due can be read by now. To be called now and then."""
        next(self._following)

    def _follow(self) -> Iterator[None]:
        store = self._store
        while True:
            timers = self._context.timers
            if timers is None:
                yield
                continue
            now_ms, end_offset = self._clock.now_ms(), store.max_log_offset
            while store.dispatched_offset < end_offset:
                yield
            queued = store.max_offset(TIMER_TOPIC, 0)
            while timers.store.queue_offset < queued:
                yield
            due_ms, end_offset = min(now_ms, timers.store.checkpoint.read_ms), store.max_log_offset
            while store.dispatched_offset < end_offset:
                yield
            self._readable_ms = due_ms
            yield

    # --- reading ---

    def _read(self, queue: _Queue) -> bool:
        """Read what is new; True: there is more."""
        for _ in range(TURN_COUNT // READ_COUNT):
            offset = queue.next_offset
            if self._store.max_offset(self._topic, queue.queue_id) == offset:
                break
            found = self._store.get(self._topic, queue.queue_id, offset, READ_COUNT)
            if found.status in _ELSEWHERE and found.next_offset != offset:
                queue.next_offset = found.next_offset
                continue
            if found.status is not GetStatus.FOUND:
                break
            for raw, queue_offset in zip(found.records, found.queue_offsets, strict=True):
                self._note(queue, raw, queue_offset)
            queue.next_offset = found.next_offset
        else:
            return True
        return False

    def _note(self, queue: _Queue, raw: memoryview, queue_offset: int) -> None:
        try:
            record = decode_record(raw)
            tag = record.tags
            if tag == CHECK_POINT_TAG:
                point = decode_check_point(record.body)
                point.revive_offset = queue_offset
                # At the end, also if it is there already: the order is that of the queue.
                queue.waiting.pop(point.id, None)
                queue.waiting[point.id] = _Waiting(point)
            elif tag in (ACK_TAG, BATCH_ACK_TAG):
                ack = decode_ack(record.body)
                waiting = queue.waiting.get(ack.check_point_id)
                if waiting is not None:
                    waiting.acked.update(ack.offsets)
        except FormatError as error:
            said = "revive queue %d, message %d: cannot be read, passed over: %s"
            logger.error(said, queue.queue_id, queue_offset, error)  # noqa: TRY400  (not this code)

    # --- working through ---

    def _work(self, queue: _Queue) -> None:
        for point_id, waiting in list(queue.waiting.items()):
            point = waiting.point
            if queue.read_ms < point.revive_ms:
                break
            if not self._is_done(queue, waiting):
                break  # the store takes nothing: it stays, and everything behind it
            del queue.waiting[point_id]
            key = REVIVE_GROUP, self._topic, queue.queue_id
            self._engine.progress.add(key, point.revive_offset, self._store.max_log_offset)

    def _is_done(self, queue: _Queue, waiting: _Waiting) -> bool:
        point = waiting.point
        if not self._is_wanted(point):
            return True
        for offset in point.offsets:
            if offset in waiting.acked:
                continue
            if not (self._revive(point, offset) or self._put_again(queue, point, offset)):
                return False
            waiting.acked.add(offset)
        return True

    def _is_wanted(self, point: CheckPoint) -> bool:
        topic = normal_topic(point.topic, point.group)
        return topic in self._context.topics and point.group in self._context.groups

    def _revive(self, point: CheckPoint, offset: int) -> bool:
        """Put a message into its retry topic; True also if there is nothing to put there any more."""
        try:
            record = self._message(point, offset)
        except (FormatError, StoreError) as error:
            said = "topic %s, queue %d, message %d: cannot be read now: %s"
            logger.warning(said, point.topic, point.queue_id, offset, error)
            return False
        if record is None:
            return True
        config = self._retry_topic(point)
        append = retry_of(record, config.topic_name, point.pop_ms, self._context.store_host)
        result = self._store.append_nowait(append)
        if not result.status.stored:
            said = "topic %s, queue %d, message %d: not put into %s: %s"
            name = config.topic_name
            logger.warning(said, point.topic, point.queue_id, offset, name, result.reason)
            return False
        key = point.group, point.topic, point.queue_id
        self._engine.in_flight.remove(key, 1, point.pop_ms)
        return True

    def _message(self, point: CheckPoint, offset: int) -> Record | None:
        """Return the message that was popped; None: it is not there any more."""
        found = self._store.get(point.topic, point.queue_id, offset, 1)
        if found.status is not GetStatus.FOUND or found.queue_offsets[0] != offset:
            return None
        record = decode_record(found.records[0])
        if record.store_ms > point.pop_ms + STRANGER_MS:
            return None
        return record

    def _retry_topic(self, point: CheckPoint) -> TopicConfig:
        topics, topic = self._context.topics, point.topic
        if not topic.startswith(RETRY_PREFIX):
            name = retry_topic_v2 if self._config.retry_topic_v2 else retry_topic_v1
            topic = name(topic, point.group)
        config = topics.get(topic)
        if config is None:
            config = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)
            topics.put(config)
        if self._offsets.get(point.group, topic, 0) < 0:
            self._offsets.commit(point.group, topic, 0, 0)
        return config

    def _put_again(self, queue: _Queue, point: CheckPoint, offset: int) -> bool:
        """Write a check point for one message that is tried later; False: not even that can be done."""
        tries = point.times_put
        if tries >= len(AGAIN_SECONDS) and self._config.pop_give_up:
            said = "topic %s, queue %d, message %d of group %s: given up after %d tries"
            logger.error(said, point.topic, point.queue_id, offset, point.group, tries)
            return True
        later_ms = AGAIN_SECONDS[min(tries, len(AGAIN_SECONDS) - 1)] * SECOND_MS
        again = CheckPoint(
            broker=point.broker,
            group=point.group,
            gaps=[0],
            invisible_ms=point.invisible_ms + later_ms,
            count=1,
            pop_ms=point.pop_ms,
            puts=str(tries + 1),
            queue_id=point.queue_id,
            start_offset=offset,
            topic=point.topic,
        )
        (result,) = self._engine.log.append([self._engine.log.check_point(again, queue.queue_id)])
        return result.status.stored
