"""Request and reply: a message whose producer waits for what its consumer says to it.

A request carries a correlation id and the client id of its producer. The reply goes to the reply topic of
the cluster, and the broker that gets it pushes it to that client (326), over the connection on which the
client's heartbeats come. So every broker of the topic has to know us before a request leaves.
"""

import asyncio
import logging
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from orbitmq.client.core.core import ClientCore
from orbitmq.client.core.message import Message, ReceivedMessage
from orbitmq.client.core.route_cache import PublishRoute
from orbitmq.client.producer.send_request import SendRequest
from orbitmq.client.producer.send_result import SendResult
from orbitmq.client.producer.sending import Outcome, QueueSelector
from orbitmq.errors import (
    ClientClosedError,
    InvalidMessageError,
    RequestTimeoutError,
    ResponseError,
    SendFailedError,
)
from orbitmq.message import Property
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from orbitmq.client.producer.producer import AsyncProducer

_log = logging.getLogger(__name__)

REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
_TIME_TO_LIVE: Final = "TTL"
_MESSAGE_TYPE: Final = "MSG_TYPE"
_REPLY_TYPE: Final = "reply"


# --- who replies ---


def is_request(message: ReceivedMessage) -> bool:
    """Tell whether somebody waits for a reply to this message."""
    properties = message.properties
    return Property.CORRELATION_ID in properties and Property.REPLY_TO in properties


def reply_message(
    request: ReceivedMessage,
    body: bytes,
    *,
    tag: str = "",
    keys: Sequence[str] | str = (),
    properties: Mapping[str, str] | None = None,
) -> Message:
    """Return the reply to a request, for `Producer.reply`. InvalidMessageError: nobody waits for one."""
    asked = request.properties
    if not is_request(request) or Property.CLUSTER not in asked:
        raise InvalidMessageError(
            f"message {request.message_id} of topic {request.topic} is no request: it has no"
            f" {Property.CORRELATION_ID}, {Property.REPLY_TO} or {Property.CLUSTER}."
            " Send it with producer.request()"
        )
    reserved = {
        _MESSAGE_TYPE: _REPLY_TYPE,
        Property.CORRELATION_ID: asked[Property.CORRELATION_ID],
        Property.REPLY_TO: asked[Property.REPLY_TO],
    }
    if ttl := asked.get(_TIME_TO_LIVE):
        reserved[_TIME_TO_LIVE] = ttl
    topic = asked[Property.CLUSTER] + REPLY_TOPIC_SUFFIX
    return Message(topic, body, tag, keys, dict(properties or {}), reserved=reserved)


def is_requester_gone(failure: Exception) -> bool:
    """Tell whether a reply failed because no broker could give it to who asked."""
    if isinstance(failure, SendFailedError):
        return all(is_requester_gone(cause) for _, cause in failure.attempts)
    return isinstance(failure, ResponseError) and failure.code == ResponseCode.SYSTEM_ERROR


async def send_reply(
    producer: "AsyncProducer", request: ReceivedMessage, reply: Message, timeout_ms: float | None
) -> SendResult:
    """Send a reply: by the broker that had the request, since it knows who asked; else by another."""
    engine = producer.engine
    sent = engine.requests.single(reply)
    sent.code = RequestCode.SEND_REPLY_MESSAGE_V2
    route = await engine.routes.publish_route(reply.topic)
    queues = route.by_broker.get(request.broker_name, ())
    if not queues:
        return await producer.send_request(sent, producer.rule, timeout_ms, None)
    try:
        first = _always(queues[0])
        return await producer.send_request(sent, producer.async_rule, timeout_ms, first)
    except (ResponseError, SendFailedError) as failure:
        if len(route.brokers) == 1:
            raise
        _log.info("topic %s: the reply goes to another broker after: %s", reply.topic, failure)
    others = [queue for queue in route.queues if queue.broker_name != request.broker_name]
    return await producer.send_request(
        sent, producer.async_rule, timeout_ms, _always(others[sent.born_ms % len(others)])
    )


def _always(queue: MessageQueue) -> QueueSelector:
    return lambda route: queue


# --- who asks ---


class Requests:
    """The requests of one producer that wait for replies. Belongs to the loop's thread."""

    def __init__(self, producer: "AsyncProducer", core: ClientCore) -> None:
        self.producer, self.core = producer, core
        self._waiting: dict[str, Requesting] = {}
        self._knows_us: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._try_again_ms: dict[str, float] = {}  # by address of a broker that did not hear us

    def __len__(self) -> int:
        return len(self._waiting)

    def prepare(
        self, message: Message, outcome: Outcome, timeout_ms: float, selector: QueueSelector | None
    ) -> "Requesting":
        """Return a request that is to be started. Of any thread. InvalidMessageError."""
        correlation_id = str(uuid.uuid4())
        reserved = {
            **message.reserved,
            Property.CORRELATION_ID: correlation_id,
            Property.REPLY_TO: self.core.client_id,
            _TIME_TO_LIVE: str(max(int(timeout_ms), 1)),
        }
        request = self.producer.engine.requests.single(replace(message, reserved=reserved))
        return Requesting(self, request, correlation_id, outcome, timeout_ms, selector)

    def add(self, correlation_id: str, requesting: "Requesting") -> None:
        self._waiting[correlation_id] = requesting

    def remove(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    def on_reply(self, message: ReceivedMessage) -> None:
        """Give a reply to who waits for it; a second one, or one that comes too late, is dropped."""
        correlation_id = message.properties.get(Property.CORRELATION_ID, "")
        requesting = self._waiting.get(correlation_id)
        if requesting is None:
            _log.info("reply to request %s: nobody waits for it any more", correlation_id)
        else:
            requesting.replied(message)

    def close(self) -> None:
        """End all: no reply can come any more."""
        for requesting in list(self._waiting.values()):
            requesting.set_exception(
                ClientClosedError("the producer is closed: no reply to this request can come")
            )

    # --- who knows us ---

    def strangers(self, route: PublishRoute) -> list[str]:
        """Return the brokers of a topic that have not heard of this producer on their connection."""
        core, now_ms = self.core, self.core.clock.monotonic_ms()
        addresses = []
        for broker_name in route.brokers:
            address = core.routes.primary(broker_name)
            if address is None or self._try_again_ms.get(address, 0) > now_ms:
                continue
            connection = core.channels.get_nowait(address)
            if connection is None or connection not in self._knows_us:
                addresses.append(address)
        return addresses

    async def introduce(self, addresses: Iterable[str]) -> None:
        """Tell brokers of us; one that does not hear it is left to the periodic heartbeat."""
        await asyncio.gather(*map(self._introduce, addresses))

    async def _introduce(self, address: str) -> None:
        core = self.core
        heard = await core.greet(address)
        connection = core.channels.get_nowait(address)
        if heard and connection is not None:
            self._knows_us.add(connection)
            self._try_again_ms.pop(address, None)
        else:
            now_ms = core.clock.monotonic_ms()
            self._try_again_ms[address] = now_ms + core.config.heartbeat_interval_ms


class Requesting:
    """One request, from its send to its reply. Gets the outcome of the send itself: see `Outcome`."""

    __slots__ = (
        "_correlation_id",
        "_is_sent",
        "_outcome",
        "_request",
        "_requests",
        "_selector",
        "_timeout_ms",
        "_timer",
    )

    def __init__(
        self,
        requests: Requests,
        request: SendRequest,
        correlation_id: str,
        outcome: Outcome,
        timeout_ms: float,
        selector: QueueSelector | None,
    ) -> None:
        self._requests, self._request, self._correlation_id = requests, request, correlation_id
        self._outcome, self._timeout_ms, self._selector = outcome, timeout_ms, selector
        self._is_sent = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Send it, and wait. Of the loop's thread; raises nothing."""
        requests = self._requests
        requests.add(self._correlation_id, self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._timeout_ms / 1000, self._expire)
        route = requests.core.routes.publish_route_nowait(self._request.topic)
        if route is not None and not requests.strangers(route):
            self._send()
        else:
            requests.core.spawn(self._send_when_known())

    async def _send_when_known(self) -> None:
        requests = self._requests
        try:
            route = await requests.core.routes.publish_route(self._request.topic)
            await requests.introduce(requests.strangers(route))
        except Exception as failure:
            self.set_exception(failure)
        else:
            if not self._outcome.done():
                self._send()

    def _send(self) -> None:
        producer = self._requests.producer
        request, timeout_ms, selector = self._request, self._timeout_ms, self._selector
        producer.sending(request, self, producer.async_rule, timeout_ms, selector).start()

    def replied(self, message: ReceivedMessage) -> None:
        """The reply is here; that may be before the answer to the send."""
        self._end(lambda: self._outcome.set_result(message))

    def _expire(self) -> None:
        topic, timeout_ms = self._request.topic, self._timeout_ms
        if self._is_sent:
            what = f"the request is in topic {topic}, but no reply came within {timeout_ms:g} ms"
            failure = RequestTimeoutError("", what, "Is a consumer there that replies in time?")
        else:
            what = f"the request could not be sent to topic {topic} within {timeout_ms:g} ms"
            failure = RequestTimeoutError("", what)
        self.set_exception(failure)

    def _end(self, tell: Callable[[], None]) -> None:
        self._requests.remove(self._correlation_id)
        if self._timer is not None:
            self._timer.cancel()
        if not self._outcome.done():
            tell()

    # --- the outcome of the send ---

    def done(self) -> bool:
        return self._outcome.done()

    def set_result(self, _: SendResult) -> None:
        self._is_sent = True

    def set_exception(self, failure: Exception) -> None:
        self._end(lambda: self._outcome.set_exception(failure))
