"""PulledQueues: the queues of a pull consumer, asked in turn, and how far each of them is done with."""

import asyncio
from collections.abc import Iterable, Sequence

from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.pulled_queue import PulledQueue
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.errors import ClientError
from orbitmq.wire.bodies.heartbeat import Subscription
from orbitmq.wire.bodies.message_queue import MessageQueue


class PulledQueues:
    """Belongs to its loop's thread. `done`: the offsets that may be told to the brokers."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._queues: dict[MessageQueue, PulledQueue] = {}  # who is asked first comes first
        self.done: dict[MessageQueue, int] = {}
        self.came = asyncio.Event()
        """Set when messages came."""

    @property
    def names(self) -> list[MessageQueue]:
        return sorted(self._queues)

    def of_topic(self, topic: str) -> set[MessageQueue]:
        return {queue for queue in self._queues if queue.topic == topic}

    def get(self, queue: MessageQueue) -> PulledQueue:
        """Return a queue that is read. ClientError: it is not."""
        pulled = self._queues.get(queue)
        if pulled is None:
            raise ClientError(
                f"{queue} is not read by this consumer: assign or subscribe to it first"
            )
        return pulled

    def add(self, queue: MessageQueue, offset: int, subscription: Subscription) -> None:
        """Begin to read a queue."""
        if queue not in self._queues:
            self._queues[queue] = PulledQueue(
                self._context, queue, subscription, offset, self.came.set
            )
            self.done[queue] = offset

    async def remove(self, queues: Iterable[MessageQueue]) -> None:
        """Stop to read queues and forget how far they are."""
        for queue in list(queues):
            pulled = self._queues.pop(queue, None)
            self.done.pop(queue, None)
            self._context.offsets.forget(queue)
            if pulled is not None:
                await pulled.close()

    async def stop(self) -> None:
        """Pull nothing more; what is done stays known."""
        for pulled in self._queues.values():
            await pulled.close()

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at this offset."""
        self.get(queue).seek(offset)
        self.done[queue] = offset

    def take(self, count: int) -> list[ReceivedMessage]:
        """Return up to `count` messages, from other queues first than the last time."""
        messages: list[ReceivedMessage] = []
        for queue, pulled in list(self._queues.items()):
            if pulled.ready and len(messages) < count:
                messages += pulled.take(count - len(messages))
                del self._queues[queue]
                self._queues[queue] = pulled
        return messages

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Have messages given out again that were taken last; in their order."""
        for message in reversed(messages):
            pulled = self._queues.get(message.queue)
            if pulled is not None:
                pulled.put_back(message)

    def finish_returned(self) -> None:
        """Count everything that was given out as done."""
        for queue, pulled in self._queues.items():
            self.done[queue] = pulled.position
