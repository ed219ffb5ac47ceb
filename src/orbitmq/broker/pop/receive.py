"""Receiver: takes messages of a topic's queues, and of the group's retry topic, for one pop.

Every queue is read where the group's last pop ended. What is taken gets a check point before anybody sees it;
of an ordered pop the order table remembers it instead. The time of the pop is never before the store
time of a message that it took, whatever was done to the clock: so the revive service can tell a message from
another one that got its offset later.
"""

import itertools
import logging
import random
from dataclasses import dataclass, field
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.pop.buffer import PopBuffer
from orbitmq.broker.pop.check_point import CheckPoint
from orbitmq.broker.pop.inflight import InFlight
from orbitmq.broker.pop.order import OrderTable
from orbitmq.broker.pop.progress import PopProgress, QueueKey
from orbitmq.broker.pop.retry_record import as_of_topic
from orbitmq.broker.pop.revive_log import ReviveLog
from orbitmq.broker.pop.words import Ask, Batch, Received
from orbitmq.broker.refusal import Refusal
from orbitmq.format.record import store_ms_at
from orbitmq.message import RETRY_PREFIX, GetStatus
from orbitmq.store.reads.get_result import GetResult
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.receipt import ORDER_QUEUE, Receipt, retry_topic_v1, retry_topic_v2, topic_kind

logger = logging.getLogger(__name__)

LOOKS_MAX: Final = 16
"""So often one pop goes on in a queue of which the store found nothing that its filter wants."""

_ELSEWHERE: Final = (
    GetStatus.OFFSET_TOO_SMALL,
    GetStatus.OFFSET_OVERFLOW_BADLY,
    GetStatus.OFFSET_FOUND_NULL,
)
_PASSED: Final = (
    GetStatus.NO_MATCHED_MESSAGE,
    GetStatus.OFFSET_FOUND_NULL,
    GetStatus.MESSAGE_WAS_REMOVING,
)


@dataclass(slots=True)
class _Pop:
    """One pop at work."""

    ask: Ask
    draw: int  # 0 to 99: at which queue it begins, and whether with the retry topic
    rest: int = 0
    batches: list[Batch] = field(default_factory=list)

    @property
    def left(self) -> int:
        return self.ask.count - sum(len(batch.offsets) for batch in self.batches)


class Receiver:
    """Does pops. Belongs to the event loop's thread."""

    def __init__(
        self,
        context: BrokerContext,
        log: ReviveLog,
        progress: PopProgress,
        buffer: PopBuffer,
        order: OrderTable,
        in_flight: InFlight,
    ) -> None:
        self._context, self._config, self._store = context, context.config, context.store
        self._clock, self._offsets = context.clock, context.offsets
        self._log, self._progress, self._buffer = log, progress, buffer
        self._order, self._in_flight = order, in_flight
        self._numbers = itertools.count()

    def receive(self, ask: Ask) -> Received:
        """Take messages; none: there are none. Refusal: a check point cannot be written."""
        pop = _Pop(ask, random.randrange(100))
        retry_topic = None if ask.ordered else self._retry_topic(pop)
        retries_first = pop.draw < self._config.pop_retry_percent
        if retry_topic is not None and retries_first:
            self._read_topic(pop, retry_topic)
        if ask.queue_id < 0:
            self._read_topic(pop, ask.topic)
        else:
            self._read_queue(pop, ask.topic, ask.queue_id)
        if retry_topic is not None and not retries_first and pop.left > 0:
            self._read_topic(pop, retry_topic)
        return self._taken(pop)

    def position(self, key: QueueKey, *, from_end: bool = False, commit: bool = False) -> int:
        """Return where the group's next pop of a queue reads."""
        group, topic, queue_id = key
        offset = self._offsets.get(group, topic, queue_id)
        if offset < 0:
            offset = self._first_offset(topic, queue_id, from_end=from_end)
            if commit:
                self._offsets.commit(group, topic, queue_id, offset)
        return max(offset, self._progress.position(key))

    def retry_topics(self, topic: str, group: str) -> list[str]:
        """Return the retry topics that pops of the group look at."""
        if not self._config.retry_topic_v2:
            return [retry_topic_v1(topic, group)]
        newer = [retry_topic_v2(topic, group)]
        return [*newer, retry_topic_v1(topic, group)] if self._config.retry_topic_both else newer

    # --- reading ---

    def _retry_topic(self, pop: _Pop) -> str:
        topics = self.retry_topics(pop.ask.topic, pop.ask.group)
        # One of both in each pop: receipts of a pop have one kind of retry topic.
        return topics[-1] if pop.draw % 2 == 0 else topics[0]

    def _read_topic(self, pop: _Pop, topic: str) -> None:
        config = self._context.topics.get(topic)
        queues = config.read_queue_nums if config is not None else 0
        for number in range(queues):
            self._read_queue(pop, topic, (pop.draw + number) % queues)

    def _read_queue(self, pop: _Pop, topic: str, queue_id: int) -> None:
        ask = pop.ask
        key = ask.group, topic, queue_id
        self._follow_reset(key)
        offset = self.position(key, from_end=ask.from_end, commit=True)
        if ask.ordered:
            if self._order.is_blocked(key, ask.attempt_id):
                return  # those who wait are told when it is free; what is behind it is no rest
            self._in_flight.clear(key)
        end = self._store.max_offset(topic, queue_id)
        if self._is_too_much(key) or pop.left <= 0:
            pop.rest += max(end - offset, 0)
        elif end != offset:
            self._read_messages(pop, key, offset)

    def _read_messages(self, pop: _Pop, key: QueueKey, offset: int) -> None:
        for _ in range(LOOKS_MAX):
            found = self._get(pop, key, offset)
            if found.status in _ELSEWHERE and found.next_offset != offset:
                said = "group %s of topic %s, queue %d: offset %d is not there, goes on at %d"
                logger.warning(said, *key, offset, found.next_offset)
                offset = found.next_offset
                self._progress.forget(key)
                self._offsets.commit(*key, offset)
                found = self._get(pop, key, offset)
            if found.records:
                self._add_batch(pop, key, offset, found)
                break
            if found.status not in _PASSED or found.next_offset <= offset:
                break
            self._pass_over(pop.ask, key, found.next_offset)
            offset = found.next_offset
        pop.rest += max(found.max_offset - found.next_offset, 0)

    def _get(self, pop: _Pop, key: QueueKey, offset: int) -> GetResult:
        _, topic, queue_id = key
        return self._store.get(topic, queue_id, offset, pop.left, message_filter=pop.ask.wanted)

    def _add_batch(self, pop: _Pop, key: QueueKey, offset: int, found: GetResult) -> None:
        batch = Batch(
            key[1],
            key[2],
            offset,
            found.next_offset,
            list(found.queue_offsets),
            list(found.records),
            found.message_count,
            found.total_bytes,
        )
        pop.batches.append(batch)

    def _pass_over(self, ask: Ask, key: QueueKey, next_offset: int) -> None:
        """Go on behind messages that the filter does not want."""
        if ask.ordered:
            self._offsets.commit(*key, next_offset)
        else:
            self._progress.add(key, next_offset, 0)

    def _is_too_much(self, key: QueueKey) -> bool:
        limit = self._config.pop_in_flight_max
        return self._config.pop_in_flight_limit and self._in_flight.count(key) > limit

    # --- where ---

    def _follow_reset(self, key: QueueKey) -> None:
        group, topic, queue_id = key
        offset = self._offsets.take_reset(group, topic, queue_id)
        if offset is not None:
            self.forget(key)
            self._offsets.commit(group, topic, queue_id, offset)

    def forget(self, key: QueueKey) -> None:
        """Forget what pops of a queue have taken; what is written already stays written."""
        self._order.clear(key)
        self._buffer.forget(key)
        self._progress.forget(key)
        self._in_flight.clear(key)

    def _first_offset(self, topic: str, queue_id: int, *, from_end: bool) -> int:
        store = self._store
        first = store.min_offset(topic, queue_id)
        if not from_end or topic.startswith(RETRY_PREFIX):
            return first
        if self._config.pop_init_in_memory and first <= 0:
            found = store.get(topic, queue_id, 0, 1)
            if found.status is GetStatus.FOUND and store.is_in_memory(found.log_offsets[0]):
                return 0
        return max(store.max_offset(topic, queue_id) - 1, 0)

    # --- keeping ---

    def _taken(self, pop: _Pop) -> Received:
        ask = pop.ask
        stored_ms = (store_ms_at(raw) for batch in pop.batches for raw in batch.records)
        pop_ms = max(self._clock.now_ms(), max(stored_ms, default=0))
        if ask.ordered:
            keys = ((ask.group, batch.topic, batch.queue_id) for batch in pop.batches)
            revive_queue = ORDER_QUEUE
            pop_ms = max(pop_ms, *(self._order.last_pop_ms(key) + 1 for key in keys), 0)
        else:
            revive_queue = next(self._numbers) % self._config.revive_queues
        received = Received(pop_ms, ask.invisible_ms, revive_queue, pop.rest)
        for batch in pop.batches:
            key = ask.group, batch.topic, batch.queue_id
            if ask.ordered:
                self._take_ordered(ask, key, batch, received)
            else:
                self._take(ask, key, batch, received)
            self._in_flight.add(key, batch.message_count)
            self._context.statistics.on_get(
                batch.topic, ask.group, batch.message_count, batch.total_bytes
            )
        return received

    def _take_ordered(self, ask: Ask, key: QueueKey, batch: Batch, received: Received) -> None:
        received.order_counts += self._order.take(
            key, ask.attempt_id, received.pop_ms, ask.invisible_ms, batch.offsets
        )
        self._offsets.commit(*key, batch.start_offset)
        received.batches.append(batch)

    def _take(self, ask: Ask, key: QueueKey, batch: Batch, received: Received) -> None:
        point = CheckPoint(
            broker=self._config.name,
            group=ask.group,
            gaps=[offset - batch.start_offset for offset in batch.offsets],
            invisible_ms=ask.invisible_ms,
            count=len(batch.offsets),
            pop_ms=received.pop_ms,
            queue_id=batch.queue_id,
            start_offset=batch.start_offset,
            topic=batch.topic,
        )
        if not self._buffer.add(point, received.revive_queue, key, batch.next_offset):
            (result,) = self._log.append([self._log.check_point(point, received.revive_queue)])
            if not result.status.stored:
                if received.batches:  # what was taken before has to reach its consumer
                    received.rest += len(batch.offsets)
                    return
                remark = f"the messages cannot be popped: {result.status.name} {result.reason}"
                raise Refusal(ResponseCode.SYSTEM_ERROR, remark.rstrip())
            self._progress.add(key, batch.next_offset, result.log_offset + result.size)
        if batch.topic != ask.topic and not self._config.pop_actual_retry_topic:
            self._rename(ask, batch, received)
        received.batches.append(batch)

    def _rename(self, ask: Ask, batch: Batch, received: Received) -> None:
        """Have messages of the retry topic look as of the topic asked for; their receipts know better."""
        receipt = Receipt(
            batch.start_offset,
            received.pop_ms,
            ask.invisible_ms,
            received.revive_queue,
            topic_kind(batch.topic),
            self._config.name,
            batch.queue_id,
        )
        batch.records = [
            as_of_topic(raw, ask.topic, receipt._replace(offset=offset))
            for raw, offset in zip(batch.records, batch.offsets, strict=True)
        ]
