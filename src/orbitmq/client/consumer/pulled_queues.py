"""PulledQueues: the queues of a pull consumer, fetched ahead, asked in turn, with positions that may jump."""

import asyncio
from collections.abc import Iterable, Sequence

from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.delivery import Delivery
from orbitmq.client.consumer.fetcher import QueueFetcher
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.errors import ClientError
from orbitmq.net.tasks import stop_tasks
from orbitmq.wire.bodies.heartbeat import Subscription
from orbitmq.wire.bodies.message_queue import MessageQueue


class PulledQueues:
    """Belongs to its loop's thread."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._queues: dict[MessageQueue, QueueFetcher] = {}  # who is asked first comes first
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

    def _get(self, queue: MessageQueue) -> QueueFetcher:
        one = self._queues.get(queue)
        if one is None:
            raise ClientError(
                f"{queue} is not read by this consumer: assign or subscribe to it first"
            )
        return one

    def add(self, queue: MessageQueue, offset: int, subscription: Subscription) -> None:
        """Begin to read a queue."""
        if queue not in self._queues:
            resumed = asyncio.Event()
            resumed.set()
            self._begin(queue, offset, subscription, resumed)

    def _begin(
        self, queue: MessageQueue, offset: int, subscription: Subscription, resumed: asyncio.Event
    ) -> None:
        self._queues[queue] = QueueFetcher(
            self._context,
            ProcessQueue(queue, offset, self._context.core.clock),
            resumed=resumed,
            queue_count=lambda topic: 1,
            on_messages=lambda held, messages: self.came.set(),
            on_illegal_offset=lambda held, offset: self.seek(queue, offset),
            lite=subscription,
        ).start()

    async def remove(self, queues: Iterable[MessageQueue]) -> None:
        """Stop to read queues and forget how far they are."""
        for queue in list(queues):
            one = self._queues.pop(queue, None)
            self._context.offsets.forget(queue)
            if one is not None:
                await one.drop()

    async def stop(self) -> None:
        """Fetch nothing more; what is done stays known."""
        await stop_tasks(one.task for one in self._queues.values())

    # --- positions; ClientError: the queue is not read ---

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the message that is given out next."""
        return self._get(queue).held.position

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at this offset: forget what was fetched, and give up the pull that waits at the broker."""
        one = self._get(queue)
        assert one.own is not None
        one.held.drop()
        one.task.cancel()
        self._begin(queue, offset, one.own, one.resumed)

    def pause(self, queue: MessageQueue) -> None:
        self._get(queue).resumed.clear()

    def resume(self, queue: MessageQueue) -> None:
        self._get(queue).resumed.set()
        self.came.set()

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
