"""Offsets: how far groups have read, where queues begin and end, which offset a time stands for.

14, 15, 29 to 32, and for replicas 43, 45.
"""

from typing import Final

from orbitmq.broker.processors.processor import Processor, answers
from orbitmq.broker.refusal import Refusal
from orbitmq.message import Boundary, GetStatus
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies.dialect import dumps
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.offsets import (
    OffsetAnswer,
    QueryConsumerOffset,
    QueueHeader,
    SearchOffset,
    TimestampAnswer,
    UpdateConsumerOffset,
)

QUEUE_ID_MAX: Final = 2**31 - 1


class OffsetsProcessor(Processor):
    """Answers questions about offsets, and keeps those that consumers report."""

    # Consumers

    @answers(RequestCode.QUERY_CONSUMER_OFFSET, of_queues=True)
    def query(self, connection: Connection, request: Command) -> Command:
        """Tell how far a group has read a queue (14)."""
        header = QueryConsumerOffset.read(request.fields)
        topic, queue_id = header.topic, header.queue_id
        offset = self._context.offsets.get(header.consumer_group, topic, queue_id)
        if offset < 0:
            if header.set_zero_if_not_found is False:
                remark = "Not found, do not set to zero, maybe this group boot first"
                raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark, fields={})
            if not (self._is_unused(topic, queue_id) or self._is_young(topic, queue_id)):
                remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark, fields={})
            offset = 0
        return request.answer(fields=OffsetAnswer(offset=offset).write())

    def _is_unused(self, topic: str, queue_id: int) -> bool:
        """Tell whether the queue never held a message.

        RocketMQ says "not found" here. Then a message may arrive before the consumer asks for the
        queue's end, and the consumer, which was there first, begins behind it. All ways to begin mean 0
        in such a queue, so nobody loses by being told.
        """
        config = self._context.topics.get(topic)
        if config is None:
            return False
        queues = max(config.read_queue_nums, config.write_queue_nums)
        return 0 <= queue_id < queues and self._store.max_offset(topic, queue_id) == 0

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Tell whether the queue's first message is still there, and in memory.

        A new group then reads all of it: a consumer that is started a moment after its producer must
        not miss the first messages, whatever its start offset.
        """
        store = self._store
        if not self._config.zero_if_in_memory or store.min_offset(topic, queue_id) > 0:
            return False
        found = store.get(topic, queue_id, 0, 1)
        return found.status is GetStatus.FOUND and store.is_in_memory(found.log_offsets[0])

    @answers(RequestCode.UPDATE_CONSUMER_OFFSET)
    def update(self, connection: Connection, request: Command) -> Command:
        """Keep how far a consumer says that its group has read (15)."""
        header = UpdateConsumerOffset.read(request.fields)
        context, topic = self._context, header.topic
        if header.consumer_group not in context.groups:
            remark = f"Group {header.consumer_group} not exist!"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark, fields={})
        if topic not in context.topics:
            remark = f"Topic {topic} not exist!"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark, fields={})
        if header.queue_id is None:
            remark = f"QueueId is null, topic is {topic}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark, fields={})
        if not 0 <= header.queue_id <= QUEUE_ID_MAX:
            remark = f"QueueId {header.queue_id} is out of range, topic is {topic}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark, fields={})
        if header.commit_offset is None:
            remark = f"Offset is null, topic is {topic}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark, fields={})
        group, queue_id = header.consumer_group, header.queue_id
        if context.offsets.commit(group, topic, queue_id, header.commit_offset):
            return request.answer(fields={})
        return request.answer(remark="Offset has been previously reset", fields={})

    # Queues

    @answers(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, of_queues=True)
    def search(self, connection: Connection, request: Command) -> Command:
        """Tell which offset a time stands for (29)."""
        header = SearchOffset.read(request.fields)
        is_upper = (header.boundary_type or "").upper() == Boundary.UPPER.value
        boundary = Boundary.UPPER if is_upper else Boundary.LOWER
        store = self._store
        offset = store.offset_by_time(header.topic, header.queue_id, header.timestamp, boundary)
        return request.answer(fields=OffsetAnswer(offset=offset).write())

    @answers(RequestCode.GET_MAX_OFFSET, of_queues=True)
    def max_offset(self, connection: Connection, request: Command) -> Command:
        """Tell the offset that a queue's next message gets (30)."""
        header = QueueHeader.read(request.fields)
        offset = self._store.max_offset(header.topic, header.queue_id)
        return request.answer(fields=OffsetAnswer(offset=offset).write())

    @answers(RequestCode.GET_MIN_OFFSET)
    def min_offset(self, connection: Connection, request: Command) -> Command:
        """Tell the first offset of a queue that is still kept (31)."""
        header = QueueHeader.read(request.fields)
        topic, queue_id, store = header.topic, header.queue_id, self._store
        offset = store.min_offset(topic, queue_id)
        if not store.max_offset(topic, queue_id):
            offset = self._context.topics.empty_min_offset(topic)
        return request.answer(remark="", fields=OffsetAnswer(offset=offset).write())

    @answers(RequestCode.GET_EARLIEST_MSG_STORETIME)
    def earliest_time(self, connection: Connection, request: Command) -> Command:
        """Tell when the first message of a queue was stored (32)."""
        header = QueueHeader.read(request.fields)
        topic, queue_id, store = header.topic, header.queue_id, self._store
        time_ms = store.store_time(topic, queue_id, store.min_offset(topic, queue_id))
        return request.answer(fields=TimestampAnswer(timestamp=time_ms).write())

    # Replicas

    @answers(RequestCode.GET_ALL_CONSUMER_OFFSET)
    def all_consumer_offsets(self, connection: Connection, request: Command) -> Command:
        """Give all consumer offsets (43)."""
        return request.answer(body=self._context.offsets.body().encode())

    @answers(RequestCode.GET_ALL_DELAY_OFFSET)
    def all_delay_offsets(self, connection: Connection, request: Command) -> Command:
        """Give the progress of all delay levels (45)."""
        return request.answer(body=dumps(self._context.schedule.snapshot()))
