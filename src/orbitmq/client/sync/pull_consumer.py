"""PullConsumer: read queues at one's own pace and position, in any code.

with PullConsumer(namesrv="127.0.0.1:9876", group="audit") as consumer:
    queues = consumer.topic_queues("Orders")
    consumer.assign(queues)
    consumer.seek(queues[0], 17)
    for message in consumer.poll(timeout=1.0):
        ...
"""

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from orbitmq.client.consumer.config import StartWish
from orbitmq.client.consumer.delivery import Delivery
from orbitmq.client.consumer.pull_consumer import POLL_SECONDS, AsyncPullConsumer, Topics
from orbitmq.client.consumer.subscription import EVERYTHING, Expression
from orbitmq.client.core.broker_api import PullResult
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.sync.background_loop import release_loop
from orbitmq.client.sync.face import SyncClient
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

    # --- life ---

    def close(self) -> None:
        """Commit what is done, if that is automatic, and leave the group."""
        self._end(None)

    def _end(self, kind: type[BaseException] | None) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.run(self._inner.__aexit__(kind, None, None))
            finally:
                release_loop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(kind)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            loop = self.opened_loop
        except ClientClosedError:
            work.close()
            raise
        return loop.run(work)

    def _ask(self, function: Callable[[], T]) -> T:
        """Call something in the loop's thread, to which the consumer belongs."""

        async def call() -> T:
            return function()

        return self._run(call())

    # --- which queues ---

    def topic_queues(self, topic: str) -> list[MessageQueue]:
        """Return all queues of a topic that may be read."""
        return self._run(self._inner.topic_queues(topic))

    def assign(
        self, queues: Iterable[MessageQueue] | str, expression: Expression = EVERYTHING
    ) -> None:
        """Read exactly these queues from now on, or all of a topic; those that stay keep their position."""
        self._run(self._inner.assign(queues, expression))

    def subscribe(self, topics: Topics) -> None:
        """Share the queues of these topics among the members of the group."""
        self._run(self._inner.subscribe(topics))

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are read at the moment."""
        return self._ask(lambda: self._inner.queues)

    @property
    def group(self) -> str:
        return self._inner.group

    @property
    def client_id(self) -> str:
        return self._inner.client_id

    # --- messages ---

    def poll(
        self, timeout: float | None = POLL_SECONDS, count: int | None = None
    ) -> list[Delivery]:
        """Return the next messages, at most `count`; empty after the time. None: wait for ever."""
        return self._run(self._inner.poll(timeout, count))

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

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count: int | None = None,
        expression: Expression = EVERYTHING,
        wait: bool = False,
    ) -> PullResult:
        """Read one queue at one place, without any position; `wait` for a message if there is none."""
        return self._run(
            self._inner.pull(queue, offset, count=count, expression=expression, wait=wait)
        )

    # --- positions ---

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the message that is returned next."""
        return self._ask(lambda: self._inner.position(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at this offset."""
        self._run(self._inner.seek(queue, offset))

    def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go on at the first message that is still there; all queues if none is named."""
        self._run(self._inner.seek_to_begin(*queues))

    def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go on behind the last message; all queues if none is named."""
        self._run(self._inner.seek_to_end(*queues))

    def seek_to_time(self, epoch_ms: int, *queues: MessageQueue) -> None:
        """Go on at the first message stored at this time or later; all queues if none is named."""
        self._run(self._inner.seek_to_time(epoch_ms, *queues))

    def offset_at(self, queue: MessageQueue, epoch_ms: int) -> int:
        """Return the offset of the first message stored at this time or later."""
        return self._run(self._inner.offset_at(queue, epoch_ms))

    def pause(self, *queues: MessageQueue) -> None:
        """Return nothing of these queues until `resume`; of all if none is named."""
        self._ask(lambda: self._inner.pause(*queues))

    def resume(self, *queues: MessageQueue) -> None:
        self._ask(lambda: self._inner.resume(*queues))

    # --- offsets of the group ---

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Tell the brokers how far the group is: everything that was returned, or what is given."""
        self._run(self._inner.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return how far the group is, as the broker knows it; None: nowhere."""
        return self._run(self._inner.committed(queue))
