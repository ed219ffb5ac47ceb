"""PopEngine: messages for a limited time. `receive`, `ack` and `renew` are all that a way to clients needs.

A received message is its receiver's until its invisible time is over. Until then it can be acknowledged,
or the time can be changed; afterwards somebody gets it again. All three return at once; `end_offset` says
how far the log must be flushed before an answer is safe where flushing is synchronous.
"""

from collections.abc import Callable

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.pop.buffer import PopBuffer
from orbitmq.broker.pop.check_point import Ack, CheckPoint
from orbitmq.broker.pop.inflight import InFlight
from orbitmq.broker.pop.order import ILLEGAL, NOT_OURS, OrderTable
from orbitmq.broker.pop.progress import PopProgress, QueueKey
from orbitmq.broker.pop.receive import Receiver
from orbitmq.broker.pop.revive_log import ReviveLog
from orbitmq.broker.pop.words import Ask, Popped, Received, Renewed, require_plain
from orbitmq.broker.refusal import Refusal
from orbitmq.errors import FieldError
from orbitmq.message import AppendRequest
from orbitmq.store.reads.get_result import GetResult
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.receipt import ORDER_QUEUE


class PopEngine:
    """Pop consumption of one broker. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        self._config, self._store, self._clock = context.config, context.store, context.clock
        self._offsets, self._topics = context.offsets, context.topics
        self.log = ReviveLog(context)
        self.progress = PopProgress(context)
        self.order = OrderTable(context)
        self.in_flight = InFlight(context.boot_ms)
        self.buffer = PopBuffer(context, self.log, self.progress)
        self._receiver = Receiver(
            context, self.log, self.progress, self.buffer, self.order, self.in_flight
        )
        self.on_order_change: list[Callable[[QueueKey], None]] = []
        """Called with each queue of an ordered pop whose time to be free has changed."""

    # --- the three ---

    def receive(self, ask: Ask) -> Received:
        """Take messages; none: there are none. Refusal: the store takes no check points."""
        received = self._receiver.receive(ask)
        if ask.ordered:
            for batch in received.batches:
                self._tell_order((ask.group, batch.topic, batch.queue_id))
        return received

    def ack(self, popped: Popped) -> int:
        """Count messages as done; return `end_offset`. Acks that come too late change nothing.

        Refusal: the message was not popped there, or the store takes no acks.
        """
        require_plain(popped)
        if popped.revive_queue == ORDER_QUEUE:
            for offset in popped.offsets:
                self._ack_ordered(popped, offset)
            return 0
        return self._append_acks(popped, [])

    def renew(self, popped: Popped, invisible_ms: int) -> Renewed | None:
        """Let one message come again `invisible_ms` from now; None: it is done with already."""
        require_plain(popped)
        (offset,) = popped.offsets
        now = self._clock.now_ms()
        if popped.revive_queue == ORDER_QUEUE:
            return self._renew_ordered(popped, offset, now + invisible_ms)
        stored_ms = self._store.store_time(popped.topic, popped.queue_id, offset)
        point = CheckPoint(
            broker=popped.broker,
            group=popped.group,
            gaps=[0],
            invisible_ms=invisible_ms,
            count=1,
            pop_ms=max(now, stored_ms),
            queue_id=popped.queue_id,
            start_offset=offset,
            topic=popped.topic,
        )
        # First the new check point, then the ack of the old one: in between it is told twice, never not.
        end_offset = self._append_acks(popped, [self.log.check_point(point, popped.revive_queue)])
        self.in_flight.add((popped.group, popped.topic, popped.queue_id), 1)
        return Renewed(point.pop_ms, invisible_ms, popped.revive_queue, end_offset)

    # --- asking ---

    def peek(self, ask: Ask) -> tuple[list[GetResult], int]:
        """Return what a pop would read of the topic's queues, and how many messages there are for it."""
        found, left, total = [], ask.count, 0
        for queue_id in self._queues(ask):
            offset = self._receiver.position((ask.group, ask.topic, queue_id))
            count = max(self._store.max_offset(ask.topic, queue_id) - offset, 0)
            total += count
            if left > 0 and count:
                result = self._store.get(ask.topic, queue_id, offset, left)
                found.append(result)
                left -= len(result.records)
        return found, total

    def has_messages(self, ask: Ask) -> bool:
        """Tell whether a pop would find something, whatever its filter."""
        if any(self._has_messages(ask, ask.topic, queue_id) for queue_id in self._queues(ask)):
            return True
        for topic in () if ask.ordered else self.retry_topics(ask.topic, ask.group):
            config = self._topics.get(topic)
            queues = config.read_queue_nums if config is not None else 0
            if any(self._has_messages(ask, topic, queue_id) for queue_id in range(queues)):
                return True
        return False

    def retry_topics(self, topic: str, group: str) -> list[str]:
        """Return the retry topics that pops of the group look at."""
        return self._receiver.retry_topics(topic, group)

    def forget_topic(self, topic: str) -> None:
        """Forget everything of a topic that is deleted."""
        for key in {*self.progress.queues(), *self.order.queues()}:
            if key[1] == topic:
                self._receiver.forget(key)

    def _queues(self, ask: Ask) -> range:
        if ask.queue_id >= 0:
            return range(ask.queue_id, ask.queue_id + 1)
        config = self._topics.get(ask.topic)
        return range(config.read_queue_nums if config is not None else 0)

    def _has_messages(self, ask: Ask, topic: str, queue_id: int) -> bool:
        key = ask.group, topic, queue_id
        if ask.ordered and self.order.is_blocked(key, ask.attempt_id):
            return False
        return self._store.max_offset(topic, queue_id) > self._receiver.position(key)

    # --- acks ---

    def _append_acks(self, popped: Popped, before: list[AppendRequest]) -> int:
        """Append what comes before, then the acks, unless the buffer takes those."""
        if not 0 <= popped.revive_queue < self.log.queue_count:
            raise FieldError(
                "extraInfo", f"names revive queue {popped.revive_queue}; there is none"
            )
        key = popped.group, popped.topic, popped.queue_id
        end_offset = self._append(before)
        ack = _ack_of(popped)
        if not self.buffer.ack(ack.check_point_id, popped.offsets):
            due_ms = popped.pop_ms + popped.invisible_ms
            end_offset = self._append([self.log.ack(ack, popped.revive_queue, due_ms)])
        self.in_flight.remove(key, len(popped.offsets), popped.pop_ms)
        return end_offset

    def _append(self, requests: list[AppendRequest]) -> int:
        end_offset = 0
        for result in self.log.append(requests):
            if not result.status.stored:
                remark = f"not stored: {result.status.name} {result.reason}".rstrip()
                raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
            end_offset = result.log_offset + result.size
        return end_offset

    # --- ordered ---

    def _ack_ordered(self, popped: Popped, offset: int) -> None:
        key = popped.group, popped.topic, popped.queue_id
        committed = self._offsets.get(*key)
        if offset < committed:
            return
        next_offset = self.order.ack(key, offset, popped.pop_ms)
        if next_offset == ILLEGAL:
            place = f"{popped.topic}@{popped.group}@{popped.queue_id}"
            remark = (
                f"offset is illegal, key:{place}, old:{committed}, commit:{offset}, next:-1: "
                "the message does not belong to the batch that was popped last"
            )
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        if next_offset == NOT_OURS:
            return
        self._offsets.commit(*key, next_offset)  # not while a reset is pending
        self.in_flight.remove(key, 1, popped.pop_ms)
        self._tell_order(key)

    def _renew_ordered(self, popped: Popped, offset: int, visible_ms: int) -> Renewed | None:
        key = popped.group, popped.topic, popped.queue_id
        if offset < self._offsets.get(*key):
            return None
        self.order.renew(key, offset, popped.pop_ms, visible_ms)
        self._tell_order(key)
        return Renewed(popped.pop_ms, visible_ms - popped.pop_ms, ORDER_QUEUE)

    def _tell_order(self, key: QueueKey) -> None:
        for listener in self.on_order_change:
            listener(key)


def _ack_of(popped: Popped) -> Ack:
    ack = Ack(
        broker=popped.broker,
        group=popped.group,
        pop_ms=popped.pop_ms,
        queue_id=popped.queue_id,
        start_offset=popped.start_offset,
        topic=popped.topic,
    )
    if len(popped.offsets) == 1:
        ack.offset = popped.offsets[0]
    else:
        ack.offset_list = list(popped.offsets)
    return ack
