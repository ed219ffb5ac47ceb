"""PullConsumer: read queues at one's own pace and position, in any code.

with PullConsumer(namesrv="127.0.0.1:9876", group="audit") as consumer:
    queues = consumer.topic_queues("Orders")
    consumer.assign(queues)
    consumer.seek(queues[0], 17)
    for message in consumer.poll(timeout=1.0):
        ...
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from orbitmq.client.consumer.config import StartWish, Topics
from orbitmq.client.consumer.delivery import Delivery
from orbitmq.client.consumer.pull_consumer import AsyncPullConsumer
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.sync.face import SyncClient, forward
from orbitmq.errors import ClientClosedError
from orbitmq.wire.bodies.message_queue import MessageQueue

T = TypeVar("T")


class PullConsumer(SyncClient[AsyncPullConsumer]):
    """A consumer that reads only when it is asked. Any thread may use it, one poll at a time.

    What the methods do is said at `AsyncPullConsumer`.
    """

    noun = "consumer"

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        group: str = "",
        topics: Topics = (),
        *,
        start_from: StartWish = "last",
        auto_commit: bool = True,
        config: ClientConfig | None = None,
        **settings: Any,
    ) -> None:
        inner = AsyncPullConsumer(
            namesrv,
            group,
            topics,
            start_from=start_from,
            auto_commit=auto_commit,
            config=config,
            **settings,
        )
        super().__init__(inner)

    # --- which queues ---

    topic_queues = forward(AsyncPullConsumer.topic_queues)
    assign = forward(AsyncPullConsumer.assign)
    subscribe = forward(AsyncPullConsumer.subscribe)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are read at the moment."""
        return self._ask(lambda: self._inner.queues)

    @property
    def group(self) -> str:
        return self._inner.group

    def _ask(self, function: Callable[[], T]) -> T:
        """Call something in the loop's thread, to which the consumer belongs."""
        loop = self.opened_loop

        async def call() -> T:
            return function()

        return loop.run(call())

    # --- messages ---

    poll = forward(AsyncPullConsumer.poll)
    pull = forward(AsyncPullConsumer.pull)

    def __iter__(self) -> Iterator[Delivery]:
        """Yield messages for ever; each counts as done when the next poll is needed."""
        waiting: deque[Delivery] = deque()
        try:
            while self._loop is not None:
                waiting.extend(self.poll(None))
                while waiting:
                    yield waiting.popleft()
        except ClientClosedError:
            return
        finally:
            # Nobody saw these: the next loop or poll begins with them.
            loop, rest = self._loop, list(waiting)
            if loop is not None and rest:
                loop.call(lambda: self._inner.put_back(rest))

    # --- positions ---

    seek = forward(AsyncPullConsumer.seek)
    seek_to_begin = forward(AsyncPullConsumer.seek_to_begin)
    seek_to_end = forward(AsyncPullConsumer.seek_to_end)
    seek_to_time = forward(AsyncPullConsumer.seek_to_time)
    offset_at = forward(AsyncPullConsumer.offset_at)

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the message that is returned next."""
        return self._ask(lambda: self._inner.position(queue))

    def pause(self, *queues: MessageQueue) -> None:
        """Return nothing of these queues until `resume`; of all if none is named."""
        self._ask(lambda: self._inner.pause(*queues))

    def resume(self, *queues: MessageQueue) -> None:
        self._ask(lambda: self._inner.resume(*queues))

    # --- offsets of the group ---

    commit = forward(AsyncPullConsumer.commit)
    committed = forward(AsyncPullConsumer.committed)
