"""What clients that pop ask brokers, as typed calls: pop, ack, change of the invisible time, notification.

A popped message is invisible to its group for a while; its receipt, which we put together from the answer,
is the property POP_CK, as RocketMQ's clients have it.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Final

from orbitmq.client.core.calls import Calls, response_error
from orbitmq.client.core.message import ReceivedMessage, decode_messages
from orbitmq.errors import FieldError, InvalidMessageError
from orbitmq.message import Property
from orbitmq.wire.bodies.pop import BatchAck, BatchAckBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.headers.pop import (
    AckHeader,
    ChangeInvisibleAnswer,
    ChangeInvisibleHeader,
    NotificationAnswer,
    NotificationHeader,
    PopAnswer,
    PopHeader,
)
from orbitmq.wire.receipt import Receipt, real_topic, topic_kind

FIRST_POP_TIME: Final = "1ST_POP_TIME"
"""The property that says when a message was popped for the first time."""
_NOTHING: Final = frozenset(
    (
        ResponseCode.POLLING_FULL.value,
        ResponseCode.POLLING_TIMEOUT.value,
        ResponseCode.PULL_NOT_FOUND.value,
    )
)


def receipt_of(message: ReceivedMessage) -> Receipt:
    """Return the receipt of a popped message. InvalidMessageError: it was not popped."""
    text = message.properties.get(Property.POP_CK)
    if text is None:
        raise InvalidMessageError(
            f"message {message.message_id} of topic {message.topic} has no receipt:"
            " give what receive() returned"
        )
    return Receipt.parse(text)


class PopApi:
    """Typed calls of brokers, for consumers that pop. Belongs to its loop's thread."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def pop(self, address: str, header: PopHeader) -> list[ReceivedMessage]:
        """Return some messages, with receipts; none: there were none within the poll time.

        The tags of what comes are the broker's guess by hash: check them.
        """
        code, fields = RequestCode.POP_MESSAGE, header.write()
        timeout_ms = self._patience_ms(header.poll_time)
        answer = await self._calls.request(address, code, fields, timeout_ms=timeout_ms)
        if answer.code in _NOTHING:
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise response_error(answer, address)
        messages = decode_messages(answer.body, header.bname or "")
        add_receipts(messages, PopAnswer.read(answer.fields), header)
        return messages

    async def notification(self, address: str, header: NotificationHeader) -> bool:
        """Return whether there is something to pop, as soon as there is, or after the poll time."""
        code, fields = RequestCode.NOTIFICATION, header.write()
        timeout_ms = self._patience_ms(header.poll_time)
        answer = await self._calls.checked(address, code, fields, timeout_ms=timeout_ms)
        return NotificationAnswer.read(answer.fields).has_msg

    async def ack(self, address: str, group: str, message: ReceivedMessage) -> None:
        """Say that a message is done with."""
        receipt = receipt_of(message)
        header = AckHeader(
            consumer_group=group,
            topic=real_topic(message.topic, group, receipt.kind),
            queue_id=receipt.queue_id,
            extra_info=receipt.text,
            offset=receipt.offset,
            bname=receipt.broker,
        )
        await self._calls.checked(address, RequestCode.ACK_MESSAGE, header.write())

    async def ack_many(
        self, address: str, group: str, broker_name: str, messages: Iterable[ReceivedMessage]
    ) -> None:
        """Say that messages of one broker are done with."""
        acks = batch_acks(group, messages)
        body = BatchAckBody(broker_name=broker_name, acks=acks).encode()
        await self._calls.checked(address, RequestCode.BATCH_ACK_MESSAGE, {}, body)

    async def change_invisible(
        self, address: str, group: str, message: ReceivedMessage, invisible_ms: int
    ) -> Receipt:
        """Have a message come again so long from now; return its new receipt, the old one is void."""
        receipt = receipt_of(message)
        header = ChangeInvisibleHeader(
            consumer_group=group,
            topic=real_topic(message.topic, group, receipt.kind),
            queue_id=receipt.queue_id,
            extra_info=receipt.text,
            offset=receipt.offset,
            invisible_time=invisible_ms,
            bname=receipt.broker,
        )
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        answer = await self._calls.checked(address, code, header.write())
        new = ChangeInvisibleAnswer.read(answer.fields)
        return receipt._replace(
            start_offset=receipt.offset,
            pop_ms=new.pop_time,
            invisible_ms=new.invisible_time,
            revive_queue=new.revive_qid,
        )

    def _patience_ms(self, poll_ms: int) -> float:
        return poll_ms + self._calls.config.request_timeout_ms


def add_receipts(messages: list[ReceivedMessage], answer: PopAnswer, asked: PopHeader) -> None:
    """Put its receipt into each message; what comes from a retry topic has one from the broker."""
    starts = start_offsets(answer.start_offset_info)
    counts = order_counts(answer.order_count_info) if asked.order else {}
    for message in messages:
        properties = message.properties
        if counts:
            message.reconsume_times = _deliveries_before(message, counts)
        if Property.POP_CK not in properties:
            kind = topic_kind(message.topic)
            start = starts.get((kind, message.queue_id), message.queue_offset)
            properties[Property.POP_CK] = Receipt(
                start,
                answer.pop_time,
                answer.invisible_time,
                answer.revive_qid,
                kind,
                asked.bname or "",
                message.queue_id,
                message.queue_offset,
            ).text
        properties.setdefault(FIRST_POP_TIME, str(answer.pop_time))
        message.topic = asked.topic


def start_offsets(text: str | None) -> Mapping[tuple[str, int], int]:
    """Return the offset at which a pop began, by kind of topic and queue. FieldError: it is no such text."""
    found = {}
    for item in (text or "").split(";"):
        if not item:
            continue
        try:
            kind, queue_id, offset = item.split(" ")
            found[kind, int(queue_id)] = int(offset)
        except ValueError as cause:
            problem = f"{item[:64]!r} is not a kind, a queue and an offset"
            raise FieldError("startOffsetInfo", problem) from cause
    return found


def order_counts(text: str | None) -> Mapping[tuple[str, str], int]:
    """Return how often messages of an ordered pop came before, by kind of topic and by queue (`0`) or by
    queue and offset (`qo0%7`). FieldError: it is no such text.
    """
    found = {}
    for item in filter(None, (text or "").split(";")):
        try:
            kind, place, count = item.split(" ")
            found[kind, place] = int(count)
        except ValueError as cause:
            problem = f"{item[:64]!r} is not a kind, a place and a count"
            raise FieldError("orderCountInfo", problem) from cause
    return found


def _deliveries_before(message: ReceivedMessage, counts: Mapping[tuple[str, str], int]) -> int:
    kind, queue_id = topic_kind(message.topic), message.queue_id
    of_queue = counts.get((kind, str(queue_id)), 0)
    return counts.get((kind, f"qo{queue_id}%{message.queue_offset}"), of_queue)


def batch_acks(group: str, messages: Iterable[ReceivedMessage]) -> list[BatchAck]:
    """Return one entry for each pop that messages come from; a bit stands for each message."""
    by_pop: dict[tuple[str, Receipt], int] = {}
    for message in messages:
        receipt = receipt_of(message)
        pop = message.topic, receipt._replace(offset=-1)
        by_pop[pop] = by_pop.get(pop, 0) | 1 << receipt.offset - receipt.start_offset
    return [
        BatchAck(
            consumer_group=group,
            topic=topic,
            retry=pop.kind,
            start_offset=pop.start_offset,
            queue_id=pop.queue_id,
            revive_queue_id=pop.revive_queue,
            pop_time=pop.pop_ms,
            invisible_time=pop.invisible_ms,
            bits=_bits_text(bits),
        )
        for (topic, pop), bits in by_pop.items()
    ]


def _bits_text(bits: int) -> str:
    return base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
