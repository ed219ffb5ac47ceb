"""The admin client's part for single messages: by id, by key, by place."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from orbitmq.client.admin.base import ADMIN_GROUP, AdminBase
from orbitmq.client.core.broker_api import PullStatus
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.errors import ClientError, FormatError, ResponseError
from orbitmq.format.message_id import decode_offset_id
from orbitmq.message import Property
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.headers.pull import PullHeader
from orbitmq.wire.headers.query import QueryHeader
from orbitmq.wire.pull_flags import PullFlag

END_OF_TIME: Final = (1 << 63) - 1
_KEYS_MAX: Final = 64
_PULL_TIMEOUT_MS: Final = 10_000


class MessageAdmin(AdminBase):
    """Messages: look them up."""

    async def message(self, message_id: str, topic: str | None = None) -> ReceivedMessage | None:
        """Return the message with this id: the producer's (then give the topic) or the broker's.

        Nothing but its content tells the two apart, so both are tried.
        """
        if topic is not None:
            found = await self.messages_by_unique_id(topic, message_id)
            if found:
                return found[-1]
        return await self._message_at_offset_id(message_id, topic)

    async def _message_at_offset_id(
        self, message_id: str, topic: str | None
    ) -> ReceivedMessage | None:
        try:
            host, log_offset = decode_offset_id(message_id)
        except FormatError:
            return None
        info = await self._namesrv.cluster_info()
        names = {
            address: broker.broker_name
            for broker in info.broker_addr_table.values()
            for address in broker.broker_addrs.values()
        }
        address = host.text()
        if address not in names:
            if topic is None:
                raise ClientError(
                    f"id {message_id} is not of a broker that is there."
                    " If it is a producer's id, give the topic too."
                )
            return None
        try:
            message = await self._brokers.view_message(address, log_offset, topic)
        except ResponseError:
            return None
        message.broker_name = names[address]
        return message

    async def messages_by_unique_id(
        self, topic: str, message_id: str, *, begin_ms: int = 0, end_ms: int = END_OF_TIME
    ) -> list[ReceivedMessage]:
        """Return the messages that a producer sent with this id, by store time; a retry may leave two."""
        header = QueryHeader(
            topic=topic,
            key=message_id,
            max_num=32,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            unique_key=True,
        )
        found = await self._query(header)
        return [m for m in found if m.properties.get(Property.UNIQ_KEY) == message_id]

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME,
        count_max: int = _KEYS_MAX,
    ) -> list[ReceivedMessage]:
        """Return messages with this key, by store time; each broker gives at most 64."""
        header = QueryHeader(
            topic=topic,
            key=key,
            max_num=count_max,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
        )
        return [m for m in await self._query(header) if key in m.keys]

    async def _query(self, header: QueryHeader) -> list[ReceivedMessage]:

        async def ask(name: str, address: str) -> list[ReceivedMessage]:
            found = await self._brokers.query_messages(
                address, header, timeout_ms=self._config.admin_timeout_ms
            )
            for message in found:
                message.broker_name = name
            return found

        primaries = await self._topic_primaries(header.topic)
        answers = await asyncio.gather(*(ask(n, a) for n, a in primaries.items()))
        # Two topics may have the same hash as well as two keys.
        matching = [m for found in answers for m in found if m.topic == header.topic]
        return sorted(matching, key=lambda message: (message.store_ms, message.log_offset))

    async def message_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage | None:
        """Return the message at this place of a queue; None: it is not there (any more)."""
        async for message in self.browse(queue, queue_offset, queue_offset + 1):
            return message
        return None

    async def browse(
        self, queue: MessageQueue, start: int, end: int, *, expression: str = "*"
    ) -> AsyncIterator[ReceivedMessage]:
        """Yield the messages of a queue from offset `start` up to, not including, `end`."""
        address, offset = await self._queue_address(queue), start
        while offset < end:
            header = self._pull_header(queue, offset, min(end - offset, 32), expression)
            result = await self._brokers.pull(address, header, timeout_ms=_PULL_TIMEOUT_MS)
            if result.status is PullStatus.NO_NEW or result.next_offset <= offset:
                return
            if result.status is PullStatus.FOUND:
                for message in result.messages():
                    if message.queue_offset < end:
                        yield message
            offset = result.next_offset

    def _pull_header(
        self, queue: MessageQueue, offset: int, count_max: int, expression: str
    ) -> PullHeader:
        return PullHeader(
            consumer_group=ADMIN_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count_max,
            sys_flag=PullFlag.SUBSCRIPTION.value,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription=expression,
            expression_type="TAG",
            bname=queue.broker_name,
        )

    async def queue_range(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the first offset of a queue and the one behind its last."""
        address = await self._queue_address(queue)
        first, end = await asyncio.gather(
            self._brokers.min_offset(address, queue), self._brokers.max_offset(address, queue)
        )
        return max(first, 0), end
