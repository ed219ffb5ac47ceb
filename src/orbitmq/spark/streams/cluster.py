"""ClusterView: what a stream or a query asks a cluster from beside the driver.

Which queues there are and how far they reach, where a time lies in them, how large their next messages are;
and it tells how far a stream's group is.

A broker that does not answer leaves its queues as they are: the others go on. Only the first look needs all
of them, because a queue that turns up later is read from its first message.
"""

import asyncio
import fnmatch
import itertools
import logging
import time
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from orbitmq.client.admin.base import ADMIN_GROUP, is_system_topic
from orbitmq.client.core.broker_api import BrokerApi
from orbitmq.client.core.config import ClientConfig, parse_addresses
from orbitmq.client.core.core import ClientCore
from orbitmq.client.core.route_cache import subscribe_queues
from orbitmq.client.sync.background_loop import BackgroundLoop, acquire_loop, release_loop
from orbitmq.errors import ConfigError, FormatError, ResponseError, WireError
from orbitmq.spark.streams.offsets import Offsets
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.route import TopicRoute
from orbitmq.wire.bodies.stats import QueueUnit, QueueUnits, TopicStats
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.headers.admin import QueryQueueHeader, TopicHeader
from orbitmq.wire.headers.pull import PullHeader
from orbitmq.wire.pull_flags import PullFlag

_log = logging.getLogger(__name__)
T = TypeVar("T")

RETRY_S: Final = 60.0
"""So long a name server or a broker may be away, for a restart, before that is an error."""
_WAITS_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
_ROUTES_S: Final = 1.0  # routes are not asked for more often
_ABSENT_S: Final = 5.0  # a topic may be unknown for so long because its only broker is restarted
_SIZES_MAX: Final = 1_000  # sizes of so many messages are asked for
_GONE: Final = {ResponseCode.TOPIC_NOT_EXIST.value}


@contextmanager
def connected(namesrv: str) -> Iterator[tuple[BackgroundLoop, ClientCore]]:
    """Have a client of a cluster, and the loop that it lives in."""
    loop = acquire_loop()
    try:
        core = loop.run(ClientCore.acquire(ClientConfig(namesrv=parse_addresses(namesrv))))
        try:
            yield loop, core
        finally:
            loop.run(core.release())
    finally:
        release_loop()


class Span(NamedTuple):
    """The messages that a queue has: from the first that is kept to the next that will come."""

    start: int
    end: int


@dataclass(slots=True)
class View:
    """The queues of a cluster at one moment; `silent` are brokers that did not answer."""

    spans: dict[MessageQueue, Span] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)


class ClusterView:
    """Asks a cluster, from one thread. Opens its connections when they are needed."""

    def __init__(
        self, namesrv: str, topics: Sequence[str], *, retry_s: float | None = None
    ) -> None:
        self._namesrv = namesrv
        self._names = {topic for topic in topics if not is_pattern(topic)}
        self._patterns = [topic for topic in topics if is_pattern(topic)]
        self._retry_s = RETRY_S if retry_s is None else retry_s
        self._closing = ExitStack()
        self._client: tuple[BackgroundLoop, ClientCore] | None = None
        self._routes: dict[str, TopicRoute] = {}
        self._routes_at = float("-inf")
        self._failures = 0

    def close(self) -> None:
        """Close the connections."""
        self._client = None
        self._closing.close()

    def run(self, work: Callable[[ClientCore], Coroutine[Any, Any, T]]) -> T:
        """Have this done in the client's loop."""
        if self._client is None:
            self._client = self._closing.enter_context(connected(self._namesrv))
        loop, core = self._client
        return loop.run(work(core))

    def _steadily(self, work: Callable[[ClientCore], Coroutine[Any, Any, T]]) -> T:
        """Do it, and again for a while if somebody does not answer. WireError: it was no use."""
        deadline = time.monotonic() + self._retry_s
        for wait_s in itertools.chain(_WAITS_S, itertools.repeat(_WAITS_S[-1])):
            try:
                return self.run(work)
            except ResponseError:
                raise  # an answer: it will be the same next time
            except WireError as failure:
                if time.monotonic() + wait_s > deadline:
                    raise
                _log.warning("%s; trying again", failure)
            time.sleep(wait_s)
            self._routes_at = float("-inf")
        raise AssertionError("unreachable")

    # --- looking ---

    def look(self) -> View:
        """Return the queues as they are now; of brokers that are away, nothing."""
        try:
            view = self.run(self._view)
        except WireError as failure:
            view = View(silent={"name server": str(failure)})
        self._tell(view)
        return view

    def look_at_all(self) -> View:
        """Return the queues as they are now. WireError: somebody did not answer for a long time."""
        deadline = time.monotonic() + min(_ABSENT_S, self._retry_s)
        while True:
            view = self._steadily(self._whole_view)
            absent = self._names - self._routes.keys()
            if not absent or time.monotonic() > deadline:
                break
            time.sleep(_WAITS_S[-3])
            self._routes_at = float("-inf")
        for topic in sorted(absent):
            _log.warning("topic %s is not known yet; it is read as soon as it is there", topic)
        return view

    def _tell(self, view: View) -> None:
        """Log the 1st, 2nd, 4th, 8th look in a row at which somebody did not answer."""
        self._failures = self._failures + 1 if view.silent else 0
        if self._failures and self._failures & (self._failures - 1) == 0:
            for who, why in view.silent.items():
                _log.warning("%s does not answer (%d): %s", who, self._failures, why)

    async def _whole_view(self, core: ClientCore) -> View:
        view = await self._view(core)
        for who, why in view.silent.items():
            raise WireError("", f"{who} does not answer: {why}")
        return view

    async def _view(self, core: ClientCore) -> View:
        await self._refresh_routes(core)
        view = View()
        asked = [
            self._add(core, view, topic, route, data.broker_name)
            for topic, route in self._routes.items()
            for data in route.queue_datas
        ]
        await asyncio.gather(*asked)
        return view

    async def _refresh_routes(self, core: ClientCore) -> None:
        now = time.monotonic()
        if now - self._routes_at < _ROUTES_S:
            return
        topics = sorted(self._names | await self._matching(core))
        routes = await asyncio.gather(*(core.namesrv.route(topic) for topic in topics))
        self._routes = {t: r for t, r in zip(topics, routes, strict=True) if r is not None}
        for topic, route in self._routes.items():
            core.routes.put(topic, route)
        self._routes_at = now

    async def _matching(self, core: ClientCore) -> set[str]:
        if not self._patterns:
            return set()
        names, cluster = await asyncio.gather(core.namesrv.topics(), core.namesrv.cluster_info())
        return {
            name
            for name in names
            if not is_system_topic(name, cluster)
            and any(fnmatch.fnmatchcase(name, pattern) for pattern in self._patterns)
        }

    async def _add(
        self, core: ClientCore, view: View, topic: str, route: TopicRoute, broker_name: str
    ) -> None:
        """Ask one broker for all queues of a topic, which is one request."""
        address = core.routes.address(broker_name)
        if address is None:
            view.silent[broker_name] = "it is not registered"
            return
        code, header = RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic=topic)
        try:
            answer = await core.calls.checked(address, code, header.write(), also=frozenset(_GONE))
        except WireError as failure:
            view.silent[broker_name] = str(failure)
            return
        if answer.code:
            return
        readable = set(subscribe_queues(topic, route))
        for queue, one in TopicStats.decode(answer.body).offset_table.items():
            named = MessageQueue(topic, broker_name, queue.queue_id)
            if named in readable:
                start = max(one.min_offset, 0)
                view.spans[named] = Span(start, max(one.max_offset, start))

    # --- questions about queues ---

    def offsets_at(self, queues: Collection[MessageQueue], time_ms: int) -> Offsets:
        """Return of each queue the offset of the first message stored at this time or later."""

        async def search(core: ClientCore, queue: MessageQueue) -> int:
            return await core.brokers.search_offset(_address(core, queue), queue, time_ms)

        return self._steadily(lambda core: _each(core, queues, search))

    def sizes(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, list[int]]:
        """Return the sizes of the next messages of each queue, as its consume queue holds them."""

        async def units(core: ClientCore, queue: MessageQueue) -> list[int]:
            address = _address(core, queue)
            found = await queue_units(core, address, queue, offsets[queue], _SIZES_MAX)
            return [max(unit.physic_size, 0) for unit in found]

        return self._steadily(lambda core: _each(core, offsets, units))

    # --- the group ---

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        """Tell brokers how far the group is; return of which queues they know it now.

        For tools that show lag only: the stream itself goes by its checkpoint. So what a broker does not
        take is logged, and told again with the next batch. ConfigError: it does not know the group.
        """

        async def tell(core: ClientCore, queue: MessageQueue) -> bool:
            try:
                await self._tell_offset(core, group, queue, offsets[queue])
            except (WireError, FormatError) as failure:
                _log.warning("group %s: offset of %s not told: %s", group, queue, failure)
                return False
            return True

        try:
            told = self.run(lambda core: _each(core, offsets, tell))
        except WireError as failure:
            _log.warning("group %s: offsets not told: %s", group, failure)
            return set()
        return {queue for queue, known in told.items() if known}

    async def _tell_offset(
        self, core: ClientCore, group: str, queue: MessageQueue, offset: int
    ) -> None:
        address = core.routes.primary(queue.broker_name)
        if address is None:
            raise WireError("", f"broker {queue.broker_name} has no primary")
        brokers = core.brokers
        try:
            await brokers.update_consumer_offset(address, group, queue, offset)
        except ResponseError as failure:
            if failure.code in _GONE:
                return  # the topic was deleted, and its offsets with it
            if failure.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            await _make_group(brokers, address, plain_pull(queue, offset, 1, group=group))
            await brokers.update_consumer_offset(address, group, queue, offset)


def is_pattern(topic: str) -> bool:
    """Return whether it stands for many topics: no topic may have these characters in its name."""
    return any(character in topic for character in "*?[")


async def _each(
    core: ClientCore,
    queues: Collection[MessageQueue],
    question: Callable[[ClientCore, MessageQueue], Awaitable[T]],
) -> dict[MessageQueue, T]:
    answers = await asyncio.gather(*(question(core, queue) for queue in queues))
    return dict(zip(queues, answers, strict=True))


def _address(core: ClientCore, queue: MessageQueue) -> str:
    address = core.routes.address(queue.broker_name)
    if address is None:
        raise WireError("", f"broker {queue.broker_name} is not registered")
    return address


async def _make_group(brokers: BrokerApi, address: str, first_pull: PullHeader) -> None:
    """Have a group made by a broker that makes groups by itself: it does so at the first pull."""
    try:
        await brokers.pull(address, first_pull)
    except ResponseError as refusal:
        if refusal.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            raise
        group = first_pull.consumer_group
        rule = f"broker {address} does not know it and makes none: `orbitmq group create {group}`"
        raise ConfigError("group", group, rule) from refusal


def plain_pull(
    queue: MessageQueue,
    offset: int,
    count: int,
    *,
    group: str = ADMIN_GROUP,
    expression: str = "*",
    bytes_max: int | None = None,
) -> PullHeader:
    """Return a request for messages that brings its own filter and does not wait for new ones."""
    return PullHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        max_msg_bytes=bytes_max,
        sys_flag=int(PullFlag.SUBSCRIPTION),
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription=expression,
        expression_type="TAG",
        bname=queue.broker_name,
    )


async def queue_units(
    core: ClientCore, address: str, queue: MessageQueue, offset: int, count: int
) -> list[QueueUnit]:
    """Return the units of a queue from an offset on, as its consume queue holds them."""
    header = QueryQueueHeader(topic=queue.topic, queue_id=queue.queue_id, index=offset, count=count)
    answer = await core.calls.checked(address, RequestCode.QUERY_CONSUME_QUEUE, header.write())
    return (QueueUnits.decode(answer.body).queue_data or []) if answer.body else []
