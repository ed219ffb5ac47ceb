"""PulledQueues: the queues of a pull consumer, fetched ahead, asked in turn, with positions that may jump."""

import asyncio
from collections.abc import Iterable, Sequence

from orbitmq.client.consumer.assigned_queues import log_failure, stop_tasks
from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.delivery import Delivery
from orbitmq.client.consumer.fetcher import QueueFetcher
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.errors import ClientError
from orbitmq.wire.bodies.heartbeat import Subscription
from orbitmq.wire.bodies.message_queue import MessageQueue


class _PulledQueue:
    """One queue: what is held of it, and the task that fetches more."""

    def __init__(
        self,
        context: ConsumerContext,
        queue: MessageQueue,
        subscription: Subscription,
        offset: int,
        came: asyncio.Event,
    ) -> None:
        self.subscription = subscription
        self._context, self._queue, self._came = context, queue, came
        self.resumed = asyncio.Event()
        self.resumed.set()
        self.begin(offset)

    def begin(self, offset: int) -> None:
        """Read from this offset on."""
        self.held = ProcessQueue(self._queue, offset, self._context.core.clock)
        fetcher = QueueFetcher(
            self._context,
            self.held,
            resumed=self.resumed,
            queue_count=lambda topic: 1,
            on_messages=lambda held, messages: self._came.set(),
            on_illegal_offset=lambda held, offset: self.seek(offset),
            lite=self.subscription,
        )
        name = f"fetch {self._queue}"
        self.task = asyncio.get_running_loop().create_task(fetcher.run(), name=name)
        self.task.add_done_callback(log_failure)

    def seek(self, offset: int) -> None:
        """Go on at this offset: forget what was fetched, and give up the pull that waits at the broker."""
        self.held.drop()
        self.task.cancel()
        self.begin(offset)

    def resume(self) -> None:
        self.resumed.set()
        self._came.set()


class PulledQueues:
    """Belongs to its loop's thread."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._queues: dict[MessageQueue, _PulledQueue] = {}  # who is asked first comes first
        self.came = asyncio.Event()
        """Set when messages came."""

    @property
    def names(self) -> list[MessageQueue]:
        return sorted(self._queues)

    @property
    def done(self) -> dict[MessageQueue, int]:
        """The offsets that may be told to the brokers."""
        return {queue: one.held.consumer_offset for queue, one in self._queues.items()}

    @property
    def held(self) -> list[ProcessQueue]:
        return [one.held for one in self._queues.values()]

    def of_topic(self, topic: str) -> set[MessageQueue]:
        return {queue for queue in self._queues if queue.topic == topic}

    def _get(self, queue: MessageQueue) -> _PulledQueue:
        one = self._queues.get(queue)
        if one is None:
            raise ClientError(
                f"{queue} is not read by this consumer: assign or subscribe to it first"
            )
        return one

    def add(self, queue: MessageQueue, offset: int, subscription: Subscription) -> None:
        """Begin to read a queue."""
        if queue not in self._queues:
            self._queues[queue] = _PulledQueue(
                self._context, queue, subscription, offset, self.came
            )

    async def remove(self, queues: Iterable[MessageQueue]) -> None:
        """Stop to read queues and forget how far they are."""
        for queue in list(queues):
            one = self._queues.pop(queue, None)
            self._context.offsets.forget(queue)
            if one is not None:
                one.held.drop()
                await stop_tasks([one.task])

    async def stop(self) -> None:
        """Fetch nothing more; what is done stays known."""
        await stop_tasks(one.task for one in self._queues.values())

    # --- positions; ClientError: the queue is not read ---

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the message that is given out next."""
        return self._get(queue).held.position

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at this offset."""
        self._get(queue).seek(offset)

    def pause(self, queue: MessageQueue) -> None:
        self._get(queue).resumed.clear()

    def resume(self, queue: MessageQueue) -> None:
        self._get(queue).resume()

    # --- messages ---

    def take(self, count: int) -> list[Delivery]:
        """Return up to `count` messages, from other queues first than the last time."""
        messages: list[Delivery] = []
        for queue, one in list(self._queues.items()):
            if len(messages) < count and one.resumed.is_set():
                taken = one.held.take(count - len(messages))
                if taken:
                    messages += taken
                    self._queues[queue] = self._queues.pop(queue)
        return messages

    def put_back(self, messages: Sequence[Delivery]) -> None:
        """Have messages given out again that nobody saw."""
        for one in self._queues.values():
            one.held.put_back(messages)
        self.came.set()

    def finish_returned(self) -> None:
        """Count everything that was given out as done."""
        for one in self._queues.values():
            one.held.remove(one.held.taken())
