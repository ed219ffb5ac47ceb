"""AsyncSimpleConsumer: take messages when you want them, and say when each is done with.

async with AsyncSimpleConsumer("127.0.0.1:9876", "workers", {"Jobs": "TagA"}) as consumer:
    for message in await consumer.receive(16, invisible_ms=60_000, wait_ms=5_000):
        ...
        await consumer.ack(message)              # otherwise it comes again after 60 s

The broker keeps what was received from the other members of the group for the invisible time. No queue
belongs to anybody, nothing is assigned or rebalanced: any number of members share even a single queue,
and a slow message holds nobody up. Messages are not in order, unless all members say `ordered=True`: then
a queue gives nothing more until all that was received of it is acknowledged.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from orbitmq import __version__
from orbitmq.client.consumer.config import StartFrom, StartWish, Topics, parse_start, parse_topics
from orbitmq.client.consumer.popping import PAUSE_S_MAX, POLL_MS_MAX, POP_COUNT_MAX, Popping
from orbitmq.client.consumer.subscription import Expression, subscription
from orbitmq.client.core.config import ClientConfig, config_of
from orbitmq.client.core.core import ClientCore
from orbitmq.client.core.life import AsyncClient
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.client.core.name_rules import require_group
from orbitmq.client.core.roles import ConsumerRole
from orbitmq.clock import Clock
from orbitmq.errors import ConfigError, InvalidMessageError, OrbitError
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.heartbeat import ConsumerData, Subscription
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo, DirectConsumeResult

INVISIBLE_MS: Final = 60 * SECOND_MS
WAIT_MS: Final = 5 * SECOND_MS
_CONSUME_TYPE: Final = "CONSUME_POP"
_PAUSE_S_MIN: Final = 0.05


class AsyncSimpleConsumer(AsyncClient, ConsumerRole):
    """A member of a group that takes messages one by one. Belongs to the loop in which it was opened.

    Several `receive` at once are fine. `topics` is a name, names, or names with tag or sql() expressions.
    """

    noun = "consumer"
    _popping: Popping  # of the last `open`

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        group: str = "",
        topics: Topics = (),
        *,
        start_from: StartWish = "last",
        ordered: bool = False,
        config: ClientConfig | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        require_group(group)
        self._filters: Mapping[str, Expression] = parse_topics(topics)
        if not self._filters:
            raise ConfigError("topics", topics, "name at least one topic")
        self._start_from, _ = parse_start(start_from)
        if self._start_from is StartFrom.TIMESTAMP:
            raise ConfigError("start_from", start_from, 'is "first" or "last" for this consumer')
        super().__init__(config_of(namesrv, config, settings), clock)
        self._group, self._ordered = group, ordered
        self._subscriptions: dict[str, Subscription] = {}
        self._started_ms = 0

    # --- life ---

    async def _start(self, core: ClientCore) -> None:
        """Join the group. WireError, ClientError: that was not possible; nothing is left behind."""
        self._started_ms = now_ms = core.clock.now_ms()
        self._subscriptions = {
            topic: subscription(topic, expression, now_ms)
            for topic, expression in self._filters.items()
        }
        self._popping = Popping(
            core, self._group, self._subscriptions, self._start_from, ordered=self._ordered
        )
        core.add_consumer(self)
        for topic in self._subscriptions:
            core.routes.watch(topic)
        try:
            for topic in self._subscriptions:
                await core.routes.refresh(topic)
            await core.heartbeat()
        except BaseException:
            await self._stop(core)
            raise

    async def _stop(self, core: ClientCore) -> None:
        """Leave the group; what was received and not acknowledged comes again to others."""
        await self._popping.stop()
        for topic in self._subscriptions:
            core.routes.unwatch(topic)
        await core.remove_consumer(self)

    # --- messages ---

    async def receive(
        self,
        max_messages: int = POP_COUNT_MAX,
        invisible_ms: int = INVISIBLE_MS,
        wait_ms: int = WAIT_MS,
    ) -> list[ReceivedMessage]:
        """Return messages, at most so many; empty: none came within `wait_ms`.

        Each comes again after `invisible_ms`, unless `ack` or `change_invisible` is called before.
        NoRouteError: no name server knows a topic. WireError: no broker could be asked.
        """
        self.require_open()
        _require("max_messages", max_messages, 1)
        _require("invisible_ms", invisible_ms, 1)
        _require("wait_ms", wait_ms, 0)
        try:
            return await self._receive(max_messages, invisible_ms, wait_ms)
        except OrbitError:
            self.require_open()  # ClientClosedError: that is why
            raise

    async def _receive(
        self, max_messages: int, invisible_ms: int, wait_ms: int
    ) -> list[ReceivedMessage]:
        clock, popping = self.require_open().clock, self._popping
        until_ms, pause_s = clock.monotonic_ms() + wait_ms, _PAUSE_S_MIN
        while True:
            self.require_open()
            places = await popping.places()
            # One place is asked and waited at in one request; several are asked what they have.
            poll_ms = _poll_ms(until_ms - clock.monotonic_ms()) if len(places) == 1 else 0
            messages = await popping.take(places, max_messages, invisible_ms, poll_ms)
            poll_ms = _poll_ms(until_ms - clock.monotonic_ms())
            if messages or not poll_ms:
                return messages
            if len(places) > 1 and not await popping.notified(places, poll_ms):
                continue
            # Perhaps another member was faster, or the broker cannot wait: do not ask like mad.
            await asyncio.sleep(min(pause_s, poll_ms / 1000))
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def ack(self, messages: ReceivedMessage | Iterable[ReceivedMessage]) -> None:
        """Say that a message, or several, are done with: they do not come again.

        WireError: a broker did not hear it; say it again, or they come again.
        """
        self.require_open()
        given = [messages] if isinstance(messages, ReceivedMessage) else messages
        await self._popping.ack(given)

    async def change_invisible(self, message: ReceivedMessage, invisible_ms: int) -> None:
        """Have a message that was received come again so long from now: later, or sooner.

        It stays the same message for `ack`. ResponseError: it came again already, or is gone.
        """
        self.require_open()
        _require("invisible_ms", invisible_ms, 1)
        await self._popping.change_invisible(message, invisible_ms)

    # --- what brokers ask: see ConsumerRole ---

    @property
    def group(self) -> str:
        return self._group

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._group,
            consume_type=_CONSUME_TYPE,
            message_model="CLUSTERING",
            consume_from_where=self._start_from.value,
            subscription_data_set=list(self._subscriptions.values()),
        )

    def on_members_changed(self) -> None:
        """Nothing to do: no queue belongs to a member."""

    def on_reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Nothing to do: the broker knows how far the group is."""

    def offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        return {}

    def running_info(self) -> ConsumerRunningInfo:
        properties = {
            "PROP_NAMESERVER_ADDR": ";".join(self._config.namesrv),
            "PROP_CONSUME_TYPE": _CONSUME_TYPE,
            "PROP_CLIENT_VERSION": f"OrbitMQ {__version__}",
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "consumerGroup": self._group,
        }
        subscriptions = list(self._subscriptions.values())
        return ConsumerRunningInfo(properties=properties, subscription_set=subscriptions)

    async def consume_directly(
        self, message: ReceivedMessage, broker_name: str
    ) -> DirectConsumeResult:
        remark = "a simple consumer has no handler"
        return DirectConsumeResult(consume_result="CR_THROW_EXCEPTION", remark=remark)


def _require(name: str, given: int, least: int) -> None:
    if given < least:
        raise InvalidMessageError(f"{name} is {given}: it must be at least {least}")


def _poll_ms(left_ms: float) -> int:
    return max(0, min(int(left_ms), POLL_MS_MAX))
