"""What consumers say of popped messages: 200051 (ack), 200053 (another invisible time), 200151 (many acks).

Acks that come together share what they can: those of messages of one pop have one record in the revive
topic, as if its client had sent them as one request.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.pop.rules import PopRules, require_offset
from orbitmq.broker.pop.words import Popped
from orbitmq.broker.processors.processor import HandleMany, Processor, answers, failure_answer
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sends.flush_wait import FlushWait
from orbitmq.message import AppendStatus
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies.pop import BatchAckBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pop import AckHeader, ChangeInvisibleAnswer, ChangeInvisibleHeader
from orbitmq.wire.receipt import ORDER_QUEUE, Receipt, real_topic, without_offset

NOT_SET: Final = "not set any response code"  # what RocketMQ says where it has nothing to say

_PopKey = tuple[str, str, int, str]
"""Group, topic, queue id, and a receipt without its offset."""


@dataclass(slots=True)
class _PopAcks:
    """Acks of messages of one pop."""

    popped: Popped
    low: int  # offsets that the queue has
    high: int
    requests: list[Command] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)


class AckProcessor(Processor):
    """Answers what is said of popped messages. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self._engine = context.pop.engine
        self._rules = PopRules(context)
        self.flush_wait = FlushWait(context)
        self._sync = self.flush_wait.waits

    @answers(RequestCode.ACK_MESSAGE)
    def handle(self, connection: Connection, request: Command) -> None:
        """Take one ack; it is answered by itself."""
        self.handle_many(connection, [request])

    def together(self) -> dict[int, HandleMany]:
        return {RequestCode.ACK_MESSAGE: self.handle_many}

    def handle_many(self, connection: Connection, requests: Sequence[Command]) -> None:
        """Take acks that came together, and answer each, now or when it is on disk."""
        pops: dict[_PopKey, _PopAcks] = {}
        for request in requests:
            try:
                self._add(pops, connection, request)
            except Exception as error:
                self._send(connection, request, failure_answer(connection, request, error))
        for acks in pops.values():
            self._ack_pop(connection, acks)

    def _add(self, pops: dict[_PopKey, _PopAcks], connection: Connection, request: Command) -> None:
        """Note an ack with the others of its pop. Refusal: it may not be."""
        header = AckHeader.read(request.fields)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        key = group, topic, queue_id, without_offset(header.extra_info)
        acks = pops.get(key)
        if acks is None:
            low, high = self._rules.ack_range(connection, topic, queue_id)
            require_offset(header, low, high)
            acks = _PopAcks(_popped(header), low, high)
            if acks.popped.revive_queue == ORDER_QUEUE:  # each one is refused, or not, by itself
                key = group, topic, queue_id, f"{header.extra_info} {request.opaque} {len(pops)}"
            pops[key] = acks
        else:
            require_offset(header, acks.low, acks.high)
        acks.requests.append(request)
        acks.offsets.append(header.offset)

    def _ack_pop(self, connection: Connection, acks: _PopAcks) -> None:
        popped = acks.popped._replace(offsets=list(dict.fromkeys(acks.offsets)))
        try:
            end_offset = self._engine.ack(popped)
        except Exception as error:
            for request in acks.requests:
                self._send(connection, request, failure_answer(connection, request, error))
            return
        for request in acks.requests:
            answer = self._when_safe(connection, request, request.answer(), end_offset)
            if answer is not None:
                self._send(connection, request, answer)

    @answers(RequestCode.BATCH_ACK_MESSAGE)
    def batch_ack(self, connection: Connection, request: Command) -> Command | None:
        body = BatchAckBody.decode(request.body) if request.body else BatchAckBody()
        if not body.acks:
            raise Refusal(ResponseCode.NO_MESSAGE, "the request names no messages")
        end_offset = 0
        for one in body.acks:
            topic = real_topic(one.topic, one.consumer_group, one.retry)
            low = self._store.min_offset(topic, one.queue_id)
            high = self._store.max_offset(topic, one.queue_id)
            offsets = [offset for offset in one.offsets() if low <= offset <= high]
            if offsets:
                popped = Popped(
                    one.consumer_group,
                    topic,
                    one.queue_id,
                    one.start_offset,
                    one.pop_time,
                    one.invisible_time,
                    one.revive_queue_id,
                    body.broker_name,
                    offsets,
                )
                end_offset = max(end_offset, self._engine.ack(popped))
        return self._when_safe(connection, request, request.answer(), end_offset)

    @answers(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
    def change_invisible_time(self, connection: Connection, request: Command) -> Command | None:
        header = ChangeInvisibleHeader.read(request.fields)
        try:
            self._rules.check_renewal(connection, header)
            renewed = self._engine.renew(_popped(header), header.invisible_time)
        except Refusal as refusal:
            refusal.fields = ChangeInvisibleAnswer().write()
            raise
        fields, end_offset = ChangeInvisibleAnswer(), 0
        if renewed is not None:
            pop_ms, invisible_ms, revive_queue, end_offset = renewed
            fields = ChangeInvisibleAnswer(
                pop_time=pop_ms, invisible_time=invisible_ms, revive_qid=revive_queue
            )
        answer = request.answer(remark=NOT_SET, fields=fields.write())
        return self._when_safe(connection, request, answer, end_offset)

    def _when_safe(
        self, connection: Connection, request: Command, answer: Command, end_offset: int
    ) -> Command | None:
        """Return the answer, or send it when the disk has what it speaks of."""
        if not self._sync or self.flush_wait.is_safe(end_offset):
            return answer

        def done(status: AppendStatus) -> None:
            if request.is_oneway:
                return
            if status is AppendStatus.PUT_OK:
                connection.send(answer)
            else:
                connection.send(request.answer(ResponseCode.SYSTEM_ERROR, status.name))

        self.flush_wait.add(end_offset, done)
        return None


def _popped(header: AckHeader | ChangeInvisibleHeader) -> Popped:
    receipt = Receipt.parse(header.extra_info)
    return Popped(
        header.consumer_group,
        header.topic,
        header.queue_id,
        receipt.start_offset,
        receipt.pop_ms,
        receipt.invisible_ms,
        receipt.revive_queue,
        receipt.broker,
        (header.offset,),
    )
