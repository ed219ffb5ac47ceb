"""StateSync: what a replica gets from its primary beside the log: topics, groups, offsets, timers.

what                                   | asked for (code)                | how often
consumer offsets                       | GET_ALL_CONSUMER_OFFSET (43)    | stateSyncInterval, 3 s
how far delay levels are delivered     | GET_ALL_DELAY_OFFSET (45)       | stateSyncInterval
how far timer messages are delivered   | GET_TIMER_CHECK_POINT (60)      | stateSyncInterval
topics, with their version             | GET_ALL_TOPIC_CONFIG (21)       | stateSyncAllInterval, 60 s
groups, and what they may not read     | GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201) | stateSyncAllInterval
who pops what                          | GET_ALL_MESSAGE_REQUEST_MODE (402) | stateSyncAllInterval
how many timer messages wait           | GET_TIMER_METRICS (61)          | stateSyncAllInterval

RocketMQ asks for all but the timers every 60 s. Offsets that are a minute old are messages that come again
for a minute, so they are asked for with the timers. A primary of ours is also asked whether its tables have
changed (GET_EPOCHS), and they come at once then.

The primary is right about everything but consumer offsets: these are merged, the greater one stays, for
consumers go on at a replica when its primary is away. A primary that comes back takes them from its
replicas in the same way (`members.py`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.replication.members import body_of, members
from orbitmq.broker.replication.replica import Replica
from orbitmq.broker.replication.succession import ask_epochs
from orbitmq.errors import OrbitError, ResponseError
from orbitmq.files.state_file import parse_state
from orbitmq.format.timer_checkpoint import decode
from orbitmq.net.channels import Channels
from orbitmq.net.connection import Connection
from orbitmq.store.timer.of_primary import PrimaryTimers
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.assignment import RequestModes
from orbitmq.wire.bodies.group_config import GroupTable
from orbitmq.wire.bodies.offsets import DelayOffsets, OffsetTable
from orbitmq.wire.bodies.topic_config import TopicTable
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.registration import RegisterBrokerAnswer

logger = logging.getLogger(__name__)

ASK_MS: Final = 5 * SECOND_MS


class StateSync:
    """A replica's copy of its primary's tables. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext, timers: PrimaryTimers | None) -> None:
        self._context, self._timers = context, timers
        self._channels = Channels()
        decided = context.succession.decided
        self._fixed = context.config.primary_address
        self._primary = self._fixed or (decided.primary if decided is not None else "")
        self._connection: Connection | None = None  # over which `_told` came
        self._told = OffsetTable()
        self._all_at_ms = 0.0
        self._tables = self._tables_taken = ""  # which state of tables the primary has, and we
        self._failures: dict[str, str] = {}  # what could not be had, told once
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self.rounds = 0

    def use_primary(self, where: RegisterBrokerAnswer) -> None:
        """Ask the primary that a name server tells; primaryAddress is stronger."""
        if where.master_addr and where.master_addr != self._primary and not self._fixed:
            self._primary, self._all_at_ms = where.master_addr, 0.0
            self._wake.set()

    def start(self) -> None:
        self._task = self._context.loop.create_task(self._run(), name="state of the primary")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        closing = self._context.loop.create_task(self._close())
        self._context.pending.append(lambda: 0 if closing.done() else 1)

    async def _close(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])
        await self._channels.close()

    @property
    def state(self) -> str:
        """What the list of services tells of it."""
        if self._task is None or self._task.done():
            return "stopped"
        failure = next(iter(self._failures.values()), "")
        if not self.rounds:
            return f"running, {failure or 'looks for its primary'}"
        return f"running, {failure or f'follows {self._primary}'}"

    # Rounds

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._turn()
            except Exception:
                logger.exception(
                    "state of the primary %s: a round failed; the next one comes", self._primary
                )
            try:
                async with asyncio.timeout(self._context.config.state_sync_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _turn(self) -> None:
        if self._primary and self._is_followed():
            await self._round()
        else:
            await self._look_for_primary()

    def _is_followed(self) -> bool:
        """Tell whether the log comes from there too: else it may be a former primary's state."""
        replication = self._context.replication
        return isinstance(replication, Replica) and replication.connected

    async def _look_for_primary(self) -> None:
        """Ask who is the primary now: name servers tell it again only when this broker registers again."""
        config = self._context.config
        address = (await members(config, self._channels)).get(0)
        if address is None:
            return
        try:
            its = await ask_epochs(self._channels, address, ASK_MS)
        except (OrbitError, OSError) as error:
            logger.debug("primary %s: says nothing of epochs: %s", address, error)
            return
        if its.primary and its.broker_name == config.name:
            where = RegisterBrokerAnswer(ha_server_addr=its.ha_address, master_addr=address)
            for listener in self._context.registration.on_primary:
                listener(where)

    async def _round(self) -> None:
        clock, config = self._context.clock, self._context.config
        done = [await self._try(self._epochs)]
        due = clock.monotonic_ms() - self._all_at_ms >= config.state_sync_all_ms
        if due or not self._all_at_ms or self._tables != self._tables_taken:
            tables = self._tables
            parts = [self._topics, self._groups, self._modes, self._metrics]
            if all([await self._try(part) for part in parts]):
                self._all_at_ms, self._tables_taken = clock.monotonic_ms(), tables
        done += [await self._try(part) for part in (self._offsets, self._delays, self._timer)]
        self.rounds += all(done)

    async def _try(self, part: Callable[[], Awaitable[None]]) -> bool:
        name = part.__name__.strip("_")
        try:
            await part()
        except (OrbitError, OSError, ValueError) as error:
            text = f"{name} of the primary {self._primary}: not taken over, tried again: {error}"
            if self._failures.get(name) != text:
                logger.warning("%s", text)
            self._failures[name] = text
            return isinstance(error, ResponseError)  # that is its answer: it has no timers, say
        self._failures.pop(name, None)
        return True

    async def _ask(self, code: RequestCode, timeout_ms: float = ASK_MS) -> bytes:
        return await body_of(self._channels, self._primary, code, timeout_ms)

    # Parts

    async def _topics(self) -> None:
        told = TopicTable.decode(await self._ask(RequestCode.GET_ALL_TOPIC_CONFIG))
        topics, context = self._context.topics, self._context
        if told.data_version == topics.version or not told.topic_config_table:
            return
        for topic in topics.assign(told.topic_config_table, told.data_version, topics.is_system):
            logger.info("topic %s: deleted, as at the primary", topic)
            context.offsets.remove_topic(topic)
            await context.loop.run_in_executor(None, context.store.delete_topic, topic)

    async def _groups(self) -> None:
        told = GroupTable.decode(await self._ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        if told.data_version != self._context.groups.version:
            self._context.groups.take_over(told)

    async def _modes(self) -> None:
        told = await self._ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        self._context.request_modes.take_over(RequestModes.decode(told))

    async def _offsets(self) -> None:
        told = OffsetTable.decode(await self._ask(RequestCode.GET_ALL_CONSUMER_OFFSET))
        connection = self._channels.get_nowait(self._primary)
        if connection is not self._connection:
            # A primary that was started again may have lost its last offsets: that is no reset.
            self._connection, self._told = connection, OffsetTable()
        self._context.offsets.merge(told, self._told)
        self._told = told

    async def _delays(self) -> None:
        told = await self._ask(RequestCode.GET_ALL_DELAY_OFFSET)
        if told:
            self._context.schedule.take_over(DelayOffsets.decode(told))

    async def _timer(self) -> None:
        timers = self._timers
        if timers is not None:
            told = decode(await self._ask(RequestCode.GET_TIMER_CHECK_POINT))
            await self._context.loop.run_in_executor(None, timers.take, told)

    async def _epochs(self) -> None:
        """Hear of a primary of ours how far its log is, and whether its tables have changed."""
        replication = self._context.replication
        assert isinstance(replication, Replica)
        try:
            told = await ask_epochs(self._channels, self._primary, ASK_MS)
        except ResponseError:
            return  # RocketMQ's brokers do not tell
        replication.primary_end = max(replication.primary_end, told.log_end)
        self._tables = told.tables

    async def _metrics(self) -> None:
        if self._timers is not None:
            told = await self._ask(RequestCode.GET_TIMER_METRICS)
            self._timers.metrics.take_over(parse_state(told.decode()))
