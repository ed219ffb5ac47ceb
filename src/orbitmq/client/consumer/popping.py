"""Popping: messages of a group from all brokers of its topics, and what brokers are told of them.

One broker of one topic is asked and waited at in a single request. Of several, each is asked what it has;
when none has anything, all are asked to say so when that changes (NOTIFICATION), because a pop that waits at
one broker does not hear of messages at the others, and pops that wait at all of them take too much.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import uuid4

from orbitmq.client.consumer.config import StartFrom
from orbitmq.client.consumer.subscription import wanted
from orbitmq.client.core.core import ClientCore
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.client.core.pop_api import PopApi, receipt_of
from orbitmq.errors import OrbitError, ResponseError, UnreachableError, WireError
from orbitmq.message import Property
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.heartbeat import Subscription
from orbitmq.wire.headers.pop import NotificationHeader, PopHeader

_log = logging.getLogger(__name__)

POP_COUNT_MAX: Final = 32
"""More messages no broker gives to one request."""
POLL_MS_MAX: Final = 20 * SECOND_MS
"""So long one request waits at a broker; a longer wait is several."""
PAUSE_S_MAX: Final = 0.8
_ANY_QUEUE: Final = -1
_FIRST, _LAST = 0, 1  # of a pop: where a new group begins


class Place(NamedTuple):
    """Where messages may come from."""

    topic: str
    broker_name: str


class Popping:
    """What one member of a group takes and acknowledges. Belongs to its loop's thread."""

    def __init__(
        self,
        core: ClientCore,
        group: str,
        subscriptions: Mapping[str, Subscription],
        start_from: StartFrom,
        *,
        ordered: bool = False,
    ) -> None:
        self._core, self._group, self._subscriptions = core, group, subscriptions
        self._ordered = ordered
        self._unanswered: dict[
            Place, list[str]
        ] = {}  # attempts whose messages a broker may hold for us
        self._init_mode = _LAST if start_from is StartFrom.LAST else _FIRST
        self._api = PopApi(core.calls)
        self._notifications: dict[Place, asyncio.Task[bool]] = {}
        self._turn = 0

    async def stop(self) -> None:
        """Wait for no broker any more."""
        notifications, self._notifications = list(self._notifications.values()), {}
        for notification in notifications:
            notification.cancel()
        await asyncio.gather(*notifications, return_exceptions=True)

    # --- taking ---

    async def places(self) -> list[Place]:
        """Return all brokers of all topics, another one first each time. NoRouteError: there is none."""
        places: dict[Place, None] = {}
        for topic in self._subscriptions:
            for queue in await self._core.routes.subscribe_queues(topic):
                if self._core.routes.primary(queue.broker_name) is not None:
                    places[Place(topic, queue.broker_name)] = None
        if not places:
            what = f"no primary broker has a topic of {', '.join(self._subscriptions)}"
            raise UnreachableError("", what, "Wait until one is back, or start it.")
        found = list(places)
        self._turn += 1
        first = self._turn % len(found)
        return found[first:] + found[:first]

    async def take(
        self, places: list[Place], count: int, invisible_ms: int, poll_ms: int
    ) -> list[ReceivedMessage]:
        """Pop from one place after the other, until there are enough; an error only if all failed."""
        taken: list[ReceivedMessage] = []
        failures: list[OrbitError] = []
        for place in places:
            try:
                while len(taken) < count:
                    asked = min(count - len(taken), POP_COUNT_MAX)
                    wait_ms = 0 if taken else poll_ms
                    popped = await self._pop(place, asked, invisible_ms, wait_ms)
                    taken += popped
                    if len(popped) < asked:
                        break
            except OrbitError as failure:
                failures.append(failure)
        if len(failures) == len(places) and not taken:
            raise failures[0]
        for reason in failures:
            _log.warning("group %s: a broker gives no messages: %s", self._group, reason)
        return taken

    async def _pop(
        self, place: Place, count: int, invisible_ms: int, poll_ms: int
    ) -> list[ReceivedMessage]:
        wish = self._subscriptions[place.topic]
        header = PopHeader(
            consumer_group=self._group,
            topic=place.topic,
            queue_id=_ANY_QUEUE,
            max_msg_nums=count,
            invisible_time=invisible_ms,
            poll_time=poll_ms,
            init_mode=self._init_mode,
            exp_type=wish.expression_type,
            exp=wish.sub_string,
            order=self._ordered,
            bname=place.broker_name,
        )
        popped = await (self._attempt if self._ordered else self._ask)(place, header)
        messages = wanted(popped, wish)
        if len(messages) < len(popped):
            kept = {id(message) for message in messages}
            self._core.spawn(self._drop([one for one in popped if id(one) not in kept]))
        return messages

    async def _ask(self, place: Place, header: PopHeader) -> list[ReceivedMessage]:
        return await self._api.pop(await self._address(place), header)

    async def _attempt(self, place: Place, header: PopHeader) -> list[ReceivedMessage]:
        """Pop in order. When the answer is lost, the queue stays locked for who took it: the next pop says
        that it is the same attempt, and gets the same messages at once.
        """
        unanswered = self._unanswered.setdefault(place, [])
        header.attempt_id = unanswered.pop() if unanswered else uuid4().hex
        try:
            return await self._ask(place, header)
        except ResponseError:
            raise  # it was answered
        except (WireError, asyncio.CancelledError):
            unanswered.append(header.attempt_id)
            raise

    async def _drop(self, messages: list[ReceivedMessage]) -> None:
        """Acknowledge what only looks like ours: a broker compares hashes of tags."""
        try:
            await self.ack(messages)
        except OrbitError as failure:
            _log.info("group %s: what it does not want comes again: %s", self._group, failure)

    async def _address(self, place: Place) -> str:
        return await self._core.routes.find_address(place.broker_name, place.topic)

    # --- settling ---

    async def ack(self, messages: Iterable[ReceivedMessage]) -> None:
        """Say that messages are done with; all are tried, then the first failure is raised."""
        by_place: dict[Place, list[ReceivedMessage]] = {}
        for message in messages:
            place = Place(message.topic, receipt_of(message).broker)
            by_place.setdefault(place, []).append(message)
        acks = [self._ack_at(place, some) for place, some in by_place.items()]
        for outcome in await asyncio.gather(*acks, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _ack_at(self, place: Place, messages: list[ReceivedMessage]) -> None:
        address = await self._address(place)
        if len(messages) == 1:
            await self._api.ack(address, self._group, messages[0])
        else:
            await self._api.ack_many(address, self._group, place.broker_name, messages)

    async def change_invisible(self, message: ReceivedMessage, invisible_ms: int) -> None:
        """Have a message come again so long from now; it gets its new receipt."""
        address = await self._address(Place(message.topic, receipt_of(message).broker))
        receipt = await self._api.change_invisible(address, self._group, message, invisible_ms)
        message.properties[Property.POP_CK] = receipt.text

    # --- waiting at several brokers ---

    async def notified(self, places: list[Place], poll_ms: int) -> bool:
        """Wait until a broker says that it has something, at most so long; return whether one did."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + poll_ms / 1000
        for place in places:
            notification = self._notifications.get(place)
            if notification is None or notification.done():
                self._notifications[place] = loop.create_task(self._notification(place, poll_ms))
        waiting = {self._notifications[place] for place in places}
        while waiting and (left_s := until_s - loop.time()) > 0:
            # One that was not waited for to its end serves the next wait.
            done, waiting = await asyncio.wait(
                waiting, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )
            if any(not notification.cancelled() and notification.result() for notification in done):
                return True
        if self._notifications and (left_s := until_s - loop.time()) > 0:
            await asyncio.sleep(min(left_s, PAUSE_S_MAX))  # no broker could wait for us
        return False

    async def _notification(self, place: Place, poll_ms: int) -> bool:
        header = NotificationHeader(
            consumer_group=self._group,
            topic=place.topic,
            queue_id=_ANY_QUEUE,
            poll_time=poll_ms,
            order=self._ordered,
            bname=place.broker_name,
        )
        try:
            return await self._api.notification(await self._address(place), header)
        except OrbitError as failure:
            _log.info("group %s: a broker tells nothing of messages: %s", self._group, failure)
            return False
