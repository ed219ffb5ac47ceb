"""Routes: which queues a topic has on all brokers, as the name servers tell it.

Only assignment by the broker needs it. What is this broker's own is known without asking.
"""

import asyncio
import logging
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.errors import WireError
from orbitmq.net.channels import Channels, SilentHandler
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.route import TopicRoute
from orbitmq.wire.bodies.topic_config import PERM_READ
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.route import GetRoute

logger = logging.getLogger(__name__)

ASK_MS: Final = 3 * SECOND_MS
FRESH_MS: Final = 10 * SECOND_MS
"""So long a route is believed. Clients ask every 20 s, each of them for each of its topics."""
KEPT_MAX: Final = 10_000


class Routes:
    """Queues to read, by topic. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        self._context, self._config, self._clock = context, context.config, context.clock
        self._channels = Channels(SilentHandler())
        self._known: dict[str, tuple[float, TopicRoute | None]] = {}
        self._closing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Nothing is asked before somebody needs it."""

    def stop(self) -> None:
        self._closing = self._context.loop.create_task(self._channels.close())
        self._context.pending.append(lambda: 0 if self._closing_done() else 1)

    def _closing_done(self) -> bool:
        return self._closing is None or self._closing.done()

    async def queues(self, topic: str) -> list[MessageQueue] | None:
        """Return the queues of a topic that can be read, sorted; None: nobody knows the topic."""
        route = await self._route(topic)
        found: set[MessageQueue] = set()
        for row in route.queue_datas if route is not None else ():
            if row.perm & PERM_READ and row.broker_name != self._config.name:
                ids = range(row.read_queue_nums)
                found.update(MessageQueue(topic, row.broker_name, queue_id) for queue_id in ids)
        own = self._context.topics.get(topic)
        if own is not None and own.is_readable:
            ids = range(own.read_queue_nums)
            found.update(MessageQueue(topic, self._config.name, queue_id) for queue_id in ids)
        return sorted(found) if found or route is not None or own is not None else None

    async def _route(self, topic: str) -> TopicRoute | None:
        known = self._known.get(topic)
        now = self._clock.monotonic_ms()
        if known is not None and now - known[0] < FRESH_MS:
            return known[1]
        if len(self._known) >= KEPT_MAX:
            self._known.clear()
        route = await self._ask(topic)
        self._known[topic] = now, route
        return route

    async def _ask(self, topic: str) -> TopicRoute | None:
        command_fields = GetRoute(topic=topic).write()
        for address in self._config.namesrv:
            command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, dict(command_fields))
            try:
                answer = await self._channels.request(address, command, ASK_MS)
                if answer.code == ResponseCode.SUCCESS and answer.body:
                    return TopicRoute.decode(answer.body)
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    return None
            except (WireError, OSError) as error:
                logger.info("name server %s: no route of %s: %s", address, topic, error)
        return None
