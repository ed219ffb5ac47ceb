"""What clients ask brokers, as typed calls: pull, offsets, locks, heartbeats, giving back, looking up.

Every call takes the broker's address first (see `RouteCache`) and raises a WireError: UnreachableError
and RequestTimeoutError for the way, ResponseError for an answer that says no. Sending is not here: the
producer builds those requests itself, for speed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from orbitmq.client.core.calls import Calls, response_error
from orbitmq.client.core.message import ReceivedMessage, decode_messages
from orbitmq.message import Boundary
from orbitmq.wire.bodies.heartbeat import CheckClient, ConsumerIds, HeartbeatData, Subscription
from orbitmq.wire.bodies.locks import LockAnswer, LockRequest
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.clients import ConsumerGroupHeader, UnregisterClient
from orbitmq.wire.headers.offsets import (
    OffsetAnswer,
    QueryConsumerOffset,
    QueueHeader,
    SearchOffset,
    UpdateConsumerOffset,
)
from orbitmq.wire.headers.pull import PullAnswer, PullHeader
from orbitmq.wire.headers.query import QueryHeader, ViewHeader
from orbitmq.wire.headers.recall import RecallAnswer, RecallHeader
from orbitmq.wire.headers.send_back import SendBackHeader

_NOT_FOUND: Final = frozenset({ResponseCode.QUERY_NOT_FOUND.value})


class PullStatus(Enum):
    """How a pull ended."""

    FOUND = "FOUND"
    NO_NEW = "NO_NEW_MSG"
    NO_MATCH = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


_PULL_STATUS: Final = {
    ResponseCode.SUCCESS.value: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND.value: PullStatus.NO_NEW,
    ResponseCode.PULL_RETRY_IMMEDIATELY.value: PullStatus.NO_MATCH,
    ResponseCode.PULL_OFFSET_MOVED.value: PullStatus.OFFSET_ILLEGAL,
}


@dataclass(slots=True)
class PullResult:
    """What a pull brought. `body` holds the records as they are stored; `messages` decodes them."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    body: bytes
    broker_name: str = ""

    def messages(self) -> list[ReceivedMessage]:
        """Return the messages, unpacked; the tags are the broker's guess by hash: check them."""
        return decode_messages(self.body, self.broker_name)


class BrokerApi:
    """Typed calls of brokers. Belongs to its loop's thread."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    # --- pulling ---

    async def pull(
        self, address: str, header: PullHeader, *, timeout_ms: float = 30_000, lite: bool = False
    ) -> PullResult:
        """Ask for messages of one queue; with PullFlag.SUSPEND the answer may take its time.

        ResponseError for any code but 0, 19, 20 and 21. Never goes to the VIP port.
        """
        code = RequestCode.LITE_PULL_MESSAGE if lite else RequestCode.PULL_MESSAGE
        answer = await self._calls.request(address, code, header.write(), timeout_ms=timeout_ms)
        status = _PULL_STATUS.get(answer.code)
        if status is None:
            raise response_error(answer, address)
        found = PullAnswer.read(answer.fields)
        return PullResult(
            status,
            found.next_begin_offset,
            found.min_offset,
            found.max_offset,
            found.suggest_which_broker_id,
            answer.body,
            header.bname or "",
        )

    # --- offsets ---

    async def consumer_offset(
        self,
        address: str,
        group: str,
        queue: MessageQueue,
        *,
        zero_if_not_found: bool | None = None,
    ) -> int:
        """Return how far the group is; -1: it has no offset there."""
        header = QueryConsumerOffset(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=zero_if_not_found,
        )
        answer = await self._checked(
            address, RequestCode.QUERY_CONSUMER_OFFSET, header.write(), also=_NOT_FOUND
        )
        return -1 if answer.code else OffsetAnswer.read(answer.fields).offset

    async def update_consumer_offset(
        self, address: str, group: str, queue: MessageQueue, offset: int
    ) -> None:
        """Tell how far the group is, and hear that it came: a one-way request, as Java's, may be lost."""
        header = UpdateConsumerOffset(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        await self._checked(address, RequestCode.UPDATE_CONSUMER_OFFSET, header.write())

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """Return the offset that the next message will get."""
        fields = _queue_fields(queue)
        answer = await self._checked(address, RequestCode.GET_MAX_OFFSET, fields)
        return OffsetAnswer.read(answer.fields).offset

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """Return the offset of the first message that is still there."""
        fields = _queue_fields(queue)
        answer = await self._checked(address, RequestCode.GET_MIN_OFFSET, fields)
        # An empty queue of a BatchCQ topic begins at -1, say brokers; its first message will be at 0.
        return max(OffsetAnswer.read(answer.fields).offset, 0)

    async def search_offset(
        self, address: str, queue: MessageQueue, epoch_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """Return the offset of the first message stored at this time or later (LOWER)."""
        header = SearchOffset(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=epoch_ms,
            boundary_type=boundary.value,
        )
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        answer = await self._checked(address, code, header.write())
        return OffsetAnswer.read(answer.fields).offset

    # --- membership ---

    async def heartbeat(self, address: str, data: HeartbeatData) -> int:
        """Say that we are there; return the broker's version."""
        answer = await self._calls.checked(address, RequestCode.HEART_BEAT, {}, data.encode())
        return answer.version

    async def unregister(
        self,
        address: str,
        client_id: str,
        *,
        producer_group: str | None = None,
        consumer_group: str | None = None,
    ) -> None:
        """Leave a group."""
        header = UnregisterClient(
            client_id=client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        await self._calls.checked(address, RequestCode.UNREGISTER_CLIENT, header.write())

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """Return the client ids of a group; ResponseError(1): nobody is online, as far as it knows."""
        fields = ConsumerGroupHeader(consumer_group=group).write()
        answer = await self._checked(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
        return ConsumerIds.decode(answer.body).consumer_id_list

    async def check_subscription(
        self, address: str, client_id: str, group: str, subscription: Subscription
    ) -> None:
        """Have the broker compile a filter that is no tag expression; ResponseError says why it fails."""
        body = CheckClient(
            client_id=client_id, group=group, namespace="", subscription_data=subscription
        )
        await self._checked(address, RequestCode.CHECK_CLIENT_CONFIG, {}, body.encode())

    async def lock(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> set[MessageQueue]:
        """Lock queues for us, or renew the locks; return those that are ours now."""
        body = _lock_body(group, client_id, queues)
        answer = await self._checked(address, RequestCode.LOCK_BATCH_MQ, {}, body)
        return set(LockAnswer.decode(answer.body).locked)

    async def unlock(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> None:
        """Give locks back."""
        body = _lock_body(group, client_id, queues)
        await self._checked(address, RequestCode.UNLOCK_BATCH_MQ, {}, body)

    # --- single messages ---

    async def send_back(self, address: str, header: SendBackHeader) -> None:
        """Give back what could not be handled: it comes again later, or goes to the dead letters."""
        await self._checked(address, RequestCode.CONSUMER_SEND_MSG_BACK, header.write())

    async def recall(self, address: str, header: RecallHeader) -> str:
        """Have a message that waits for its time not be delivered; return its id."""
        answer = await self._checked(address, RequestCode.RECALL_MESSAGE, header.write())
        return RecallAnswer.read(answer.fields).msg_id

    async def view_message(
        self, address: str, log_offset: int, topic: str | None = None
    ) -> ReceivedMessage:
        """Return the message at this place of the broker's commit log."""
        header = ViewHeader(offset=log_offset, topic=topic)
        answer = await self._checked(address, RequestCode.VIEW_MESSAGE_BY_ID, header.write())
        messages = decode_messages(answer.body)
        if not messages:
            raise response_error(answer, address)
        return messages[0]

    async def query_messages(
        self, address: str, header: QueryHeader, *, timeout_ms: float = 0
    ) -> list[ReceivedMessage]:
        """Return messages by key; the broker looks by hash, so check the keys."""
        code = RequestCode.QUERY_MESSAGE
        answer = await self._calls.checked(
            address, code, header.write(), also=_NOT_FOUND, timeout_ms=timeout_ms
        )
        return [] if answer.code else decode_messages(answer.body)

    async def _checked(
        self,
        address: str,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        also: frozenset[int] = frozenset(),
    ) -> Command:
        return await self._calls.checked(self._calls.vip(address), code, fields, body, also=also)


def _lock_body(group: str, client_id: str, queues: Iterable[MessageQueue]) -> bytes:
    return LockRequest(consumer_group=group, client_id=client_id, mq_set=sorted(queues)).encode()


def _queue_fields(queue: MessageQueue) -> dict[str, str]:
    return QueueHeader(topic=queue.topic, queue_id=queue.queue_id).write()
