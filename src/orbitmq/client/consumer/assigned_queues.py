"""AssignedQueues: the queues that a push consumer has, and how they come and go.

assigned (locked, if orderly) -> its offset read -> pulled and handled -> dropped (no more pulls; what
runs may end) -> its offset stored -> handed over (unlocked, if orderly)
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.delivery import Delivery
from orbitmq.client.consumer.fetcher import QueueFetcher
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.errors import ClientError, WireError
from orbitmq.net.tasks import log_failure, stop_tasks
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.message_queue import MessageQueue

_log = logging.getLogger(__name__)

T = TypeVar("T")
_Ask = Callable[[str, list[MessageQueue]], Awaitable[None]]

_RESET_WAIT_MS: Final = 10 * SECOND_MS
_ORDERLY_WAIT_MS: Final = 500
"""How long a rebalance waits for an orderly handler before it tries again in the next round."""
_FORCED_AFTER_MS: Final = 20 * SECOND_MS
_RELEASE_SHARE: Final = 0.6
"""The part of the handover time that handlers get to end; the rest is for storing the offset."""


class Consumption(Protocol):
    """Handles what was pulled; see `concurrent_consumption` and `orderly_consumption`."""

    def open_queue(self, held: ProcessQueue) -> None: ...

    def submit(self, held: ProcessQueue, messages: list[Delivery]) -> None: ...


class AssignedQueues:
    """Takes queues and gives them up. Belongs to its loop's thread."""

    def __init__(
        self,
        context: ConsumerContext,
        consumption: Consumption,
        wake_rebalance: Callable[[str], None],
    ) -> None:
        self._context, self._config = context, context.config
        self._consumption, self._wake_rebalance = consumption, wake_rebalance
        self._locks = QueueLocks(context)
        self._needs_locks = self._config.orderly and self._config.clustering
        self._assigned: dict[MessageQueue, QueueFetcher] = {}
        self._moving: set[MessageQueue] = set()  # those that begin anew at another offset
        self._moves: set[asyncio.Task[None]] = set()
        self._closed = False
        self.resumed = asyncio.Event()
        """Set while queues may be pulled."""
        self.resumed.set()

    @property
    def queues(self) -> list[MessageQueue]:
        return sorted(self._assigned)

    @property
    def held(self) -> list[ProcessQueue]:
        return [one.held for one in self._assigned.values()]

    # --- taking and giving up ---

    async def hold(self, topic: str, queues: set[MessageQueue], *, shared: bool) -> bool:
        """Hold exactly these queues of a topic; see `QueueHolder`."""
        current = {queue for queue in self._assigned if queue.topic == topic}
        moving = current & self._moving
        fetchers = {queue: self._assigned[queue] for queue in current}
        ended = {queue for queue, one in fetchers.items() if one.held.dropped or one.task.done()}
        gone = (current - queues | ended) - moving
        released = await _all(self._release(queue) for queue in sorted(gone))
        new = queues - set(self._assigned)
        if new:
            group = self._config.group
            _log.info("group %s: %d new queues of topic %s", group, len(new), topic)
        taken = await self._take(new, shared=shared)
        return all(released) and taken and not moving

    async def _take(self, queues: set[MessageQueue], *, shared: bool) -> bool:
        if not queues:
            return True
        mine = queues
        if self._needs_locks:
            locked = await self._locks.lock(queues)
            mine = {queue for queue, is_ours in locked.items() if is_ours}
        elif shared and self._config.handover_wait_ms:
            # The member that had the queue may be ending its last messages. Read the offset after
            # it was stored, and no message comes twice.
            await asyncio.sleep(self._config.handover_wait_ms / 1000)
        taken = await _all(self._open(queue) for queue in sorted(mine))
        return all(taken) and len(mine) == len(queues)

    async def _open(self, queue: MessageQueue) -> bool:
        context = self._context
        context.offsets.forget(queue)
        try:
            offset = await context.start_offset(queue)
        except (WireError, ClientError) as failure:
            _log.warning("%s: no offset to begin at: %s", queue, failure)
            return False
        if self._closed or queue in self._assigned:
            return True
        held = ProcessQueue(queue, offset, context.core.clock, context.call)
        held.set_locked(self._needs_locks)
        self._assigned[queue] = QueueFetcher(
            context,
            held,
            resumed=self.resumed,
            queue_count=self._queue_count,
            on_messages=self._consumption.submit,
            on_illegal_offset=self._illegal_offset,
        ).start()
        self._consumption.open_queue(held)
        context.changes.took(queue, offset, context.core.clock.monotonic_ms())
        return True

    def _queue_count(self, topic: str) -> int:
        return sum(queue.topic == topic for queue in self._assigned)

    async def _release(self, queue: MessageQueue) -> bool:
        """Give up a queue; return False if an orderly handler is still at work on it."""
        one = self._assigned[queue]
        await one.drop()
        wait_ms = self._config.handover_wait_ms * _RELEASE_SHARE
        idle = await one.held.wait_idle(_ORDERLY_WAIT_MS if self._needs_locks else wait_ms)
        if self._needs_locks and not idle:
            age_ms = self._context.core.clock.monotonic_ms() - one.held.locked_ms
            if age_ms <= _FORCED_AFTER_MS:
                return False
        await self._hand_over(queue, one)
        return True

    async def _hand_over(
        self, queue: MessageQueue, one: QueueFetcher, *, lost: bool = False
    ) -> None:
        if not lost:
            self._note_progress(one.held)
        self._note_given_up(one.held, lost=lost)
        one.held.handed_over = True
        if not lost:
            await self._context.offsets.persist([queue], retry=True)
            if self._needs_locks:
                await self._locks.unlock([queue])
        if self._assigned.get(queue) is one:
            del self._assigned[queue]
        self._context.offsets.forget(queue)

    def _note_given_up(self, held: ProcessQueue, *, lost: bool = False) -> None:
        if not held.handed_over:
            offset = None if lost else held.consumer_offset
            now_ms = self._context.core.clock.monotonic_ms()
            self._context.changes.gave_up(held.queue, offset, held.repeated, now_ms)

    # --- offsets ---

    def note_progress(self) -> None:
        """Tell the offset store how far each queue is."""
        for one in self._assigned.values():
            self._note_progress(one.held)

    def _note_progress(self, held: ProcessQueue) -> None:
        offset = None if held.handed_over else held.progress
        if offset is not None:
            self._context.offsets.update(held.queue, offset)

    def _illegal_offset(self, held: ProcessQueue, offset: int) -> None:
        held.drop()
        self.move({held.queue: offset})

    def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Forget what is held of these queues and begin them anew at these offsets."""
        task = asyncio.get_running_loop().create_task(self._move(offsets), name="move offsets")
        self._moves.add(task)
        task.add_done_callback(self._moves.discard)
        task.add_done_callback(log_failure)

    async def _move(self, offsets: Mapping[MessageQueue, int]) -> None:
        await _all(self._move_one(queue, offset) for queue, offset in offsets.items())
        self._wake_rebalance("reset")

    async def _move_one(self, queue: MessageQueue, offset: int) -> None:
        one = self._assigned.get(queue)
        if one is None or queue in self._moving:
            return
        self._moving.add(queue)
        try:
            await one.drop()
            await one.held.wait_idle(_RESET_WAIT_MS)
            self._note_given_up(one.held)
            one.held.handed_over = True
            self._context.offsets.update(queue, offset, forward_only=False)
            await self._hand_over(queue, one)
        finally:
            self._moving.discard(queue)

    # --- locks ---

    async def renew_locks(self) -> None:
        """Renew the locks of all queues; a queue whose lock was lost is given up."""
        wanted = [queue for queue, one in self._assigned.items() if not one.held.dropped]
        for queue, is_ours in (await self._locks.lock(wanted)).items():
            one = self._assigned.get(queue)
            if one is None or queue in self._moving:
                continue
            one.held.set_locked(is_ours)
            if not is_ours:
                _log.warning("group %s: the lock of %s was lost", self._config.group, queue)
                await one.drop()
                # Another member may be further than we are: our offset is not stored.
                await self._hand_over(queue, one, lost=True)
                self._wake_rebalance("lock")

    # --- the end ---

    async def stop_pulls(self) -> None:
        """Pull nothing more, for good; what was pulled can still be handled."""
        self._closed = True
        await stop_tasks(self._moves)
        await stop_tasks(one.task for one in self._assigned.values())

    async def hand_over_all(self) -> None:
        """Store all offsets and give all queues up."""
        self.note_progress()
        for one in self._assigned.values():
            one.held.drop()
            self._note_given_up(one.held)
            one.held.handed_over = True
        await self._context.offsets.persist(retry=True)
        if self._needs_locks:
            await self._locks.unlock(self._assigned)
        self._assigned.clear()


class QueueLocks:
    """Asks brokers for locks, for one consumer. Belongs to its loop's thread."""

    def __init__(self, context: ConsumerContext) -> None:
        self._core, self._group = context.core, context.group

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        """Lock queues, or renew their locks; a broker that could not be asked is left out."""
        core, found = self._core, dict[MessageQueue, bool]()

        async def lock(address: str, part: list[MessageQueue]) -> None:
            held = await core.brokers.lock(address, self._group, core.client_id, part)
            found.update({queue: queue in held for queue in part})

        await self._ask_each(queues, lock, "gave no locks")
        return found

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back and wait until the brokers know."""
        core = self._core

        async def unlock(address: str, part: list[MessageQueue]) -> None:
            await core.brokers.unlock(address, self._group, core.client_id, part)

        await self._ask_each(queues, unlock, "got no locks back")

    async def _ask_each(self, queues: Iterable[MessageQueue], ask: _Ask, problem: str) -> None:
        """Ask each broker for its part of the queues; one that does not answer is logged."""
        parts: dict[str, list[MessageQueue]] = {}
        for queue in sorted(queues):
            parts.setdefault(queue.broker_name, []).append(queue)

        async def ask_one(name: str, part: list[MessageQueue]) -> None:
            try:
                await ask(await self._core.routes.find_address(name, part[0].topic), part)
            except WireError as failure:
                _log.warning("group %s: %s %s: %s", self._group, name, problem, failure)

        await asyncio.gather(*(ask_one(name, part) for name, part in parts.items()))


async def _all(work: Iterable[Awaitable[T]]) -> list[T]:
    return await asyncio.gather(*work)
