"""Assignment: which queues this member has at the moment, found out again and again.

when                                            | why
at the start                                    |
every 20 s                                      | a notice may have been lost
a broker says that members changed (40)         |
the route of a topic changed                    | queues were added or taken away
a second after a round that could not be done   | a topic is not known yet, a lock is not free;
                                                | ten times, then every 20 s
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.rebalance import share_of
from orbitmq.errors import ClientError, WireError
from orbitmq.message import RETRY_PREFIX
from orbitmq.net.tasks import stop_tasks
from orbitmq.wire.bodies.message_queue import MessageQueue

_log = logging.getLogger(__name__)

_PATIENT_ROUNDS: Final = 10
"""After so many failures in a row the usual pace is enough."""


class QueueHolder(Protocol):
    """Takes queues and gives them up."""

    async def hold(self, topic: str, queues: set[MessageQueue], *, shared: bool) -> bool:
        """Hold exactly these queues of a topic; return whether that is so now.

        `shared`: the group has other members, who may have had the queues a moment ago.
        """


class Assignment:
    """The rebalance job of one consumer. Belongs to its loop's thread."""

    def __init__(
        self,
        context: ConsumerContext,
        holder: QueueHolder,
        on_round: Callable[[Iterable[str], float], None] = lambda reasons, started_ms: None,
    ) -> None:
        """`on_round` is called after each round with why it was made and when it began (monotonic)."""
        self._context, self._holder, self._on_round = context, holder, on_round
        self._woken = asyncio.Event()
        self._reasons = {"start"}
        self._task: asyncio.Task[None] | None = None
        self._failures: dict[str, int] = {}  # rounds in a row that a topic could not be done

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="rebalance")

    def wake(self, reason: str) -> None:
        """Rebalance as soon as possible; see `RebalanceReport` for reasons."""
        self._reasons.add(reason)
        self._woken.set()

    async def stop(self) -> None:
        """End the job; a round that is going on is cancelled."""
        if self._task is not None:
            await stop_tasks([self._task])

    async def _run(self) -> None:
        config = self._context.config
        while True:
            self._woken.clear()
            reasons, self._reasons = self._reasons, set()
            started_ms = self._context.core.clock.monotonic_ms()
            done = await self.round()
            self._on_round(reasons, started_ms)
            wait_ms = config.rebalance_interval_ms if done else config.rebalance_again_ms
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._woken.wait()
            except TimeoutError:
                self._reasons.add("interval" if done else "again")

    async def round(self) -> bool:
        """Rebalance all topics; return whether each has what it should have."""
        topics = list(self._context.subscriptions)
        return all(await asyncio.gather(*(self._topic_round(topic) for topic in topics)))

    async def _topic_round(self, topic: str) -> bool:
        try:
            queues, shared = await self._share(topic)
            done = await self._holder.hold(topic, queues, shared=shared)
        except (WireError, ClientError) as failure:
            return self._failed(topic, failure)
        except Exception:
            _log.exception("group %s: topic %s not rebalanced", self._context.group, topic)
            return False
        self._failures.pop(topic, None)
        return done

    def _failed(self, topic: str, failure: Exception) -> bool:
        """Return whether it is of no use to try again soon."""
        # The retry topic of a new group appears a moment after its first heartbeat; that of a group
        # without retries never does.
        known = topic in self._failures or topic.startswith(RETRY_PREFIX)
        count = self._failures[topic] = self._failures.get(topic, 0) + 1
        level = logging.DEBUG if known else logging.WARNING
        _log.log(
            level, "group %s: topic %s not rebalanced: %s", self._context.group, topic, failure
        )
        return count >= _PATIENT_ROUNDS

    async def _share(self, topic: str) -> tuple[set[MessageQueue], bool]:
        """Return the queues that are ours, and whether there are other members."""
        context = self._context
        core, config = context.core, context.config
        queues = await core.routes.subscribe_queues(topic)
        if not config.clustering:
            return set(queues), False
        address = core.routes.any_address(topic)
        if address is None:
            raise core.routes.no_route(topic)
        try:
            members = await core.brokers.consumer_ids(address, config.group)
        except WireError:
            await core.heartbeat()  # a broker that was restarted does not know the group
            raise
        if core.client_id not in members:
            await core.heartbeat()
        mine = share_of(config.strategy, core.client_id, queues, members)
        return set(mine), set(members) != {core.client_id}
