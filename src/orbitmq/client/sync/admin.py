"""Admin: look at a cluster and change it, from any thread. The methods are those of AsyncAdmin.

with Admin("127.0.0.1:9876") as admin:
    admin.create_topic("Orders", queues=4)
    print(admin.progress("orders-service").lag)
"""

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from orbitmq.client.admin.admin import AsyncAdmin
from orbitmq.client.admin.messages import END_OF_TIME
from orbitmq.client.admin.offsets import Target
from orbitmq.client.admin.results import (
    BrokerInfo,
    ClientInfo,
    ConsumerGroupState,
    GroupInfo,
    GroupProgress,
    OffsetChange,
    QueueStats,
    QueueTimes,
    TopicInfo,
)
from orbitmq.client.admin.topics import DEFAULT_QUEUES
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.client.sync.background_loop import BackgroundLoop, acquire_loop, release_loop
from orbitmq.errors import ClientClosedError
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo
from orbitmq.wire.bodies.stats import StatsData
from orbitmq.wire.bodies.topic_config import PERM_READ, PERM_WRITE, TopicConfig

T = TypeVar("T")

_BROWSE_STEP = 256


class Admin:
    """An admin client for any code. Any thread may use it."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        config: ClientConfig | None = None,
        **settings: Any,
    ) -> None:
        self._inner = AsyncAdmin(namesrv, config=config, **settings)
        self._loop: BackgroundLoop | None = None

    def open(self) -> Self:
        """Get ready; connections are made when they are needed."""
        if self._loop is None:
            self._loop = acquire_loop()
            self._loop.run(self._inner.open())
        return self

    def close(self) -> None:
        """Close the connections."""
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.run(self._inner.close())
            finally:
                release_loop()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise ClientClosedError(
                "the admin client is not open: use it inside `with`, or call open() first"
            )
        return self._loop.run(work)

    # --- topics ---

    def topics(self, *, system: bool = False, cluster: str | None = None) -> list[str]:
        return self._run(self._inner.topics(system=system, cluster=cluster))

    def topic(self, topic: str) -> TopicInfo:
        return self._run(self._inner.topic(topic))

    def topic_config(self, topic: str, broker: str) -> TopicConfig | None:
        return self._run(self._inner.topic_config(topic, broker))

    def topic_stats(self, topic: str) -> list[QueueStats]:
        return self._run(self._inner.topic_stats(topic))

    def groups_of_topic(self, topic: str) -> list[str]:
        return self._run(self._inner.groups_of_topic(topic))

    def offsets_at(self, topic: str, epoch_ms: int) -> dict[MessageQueue, int]:
        return self._run(self._inner.offsets_at(topic, epoch_ms))

    def create_topic(
        self,
        topic: str,
        *,
        queues: int = DEFAULT_QUEUES,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int = PERM_READ | PERM_WRITE,
        ordered: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> TopicInfo:
        return self._run(
            self._inner.create_topic(
                topic,
                queues=queues,
                read_queues=read_queues,
                write_queues=write_queues,
                perm=perm,
                ordered=ordered,
                attributes=attributes,
                cluster=cluster,
                broker=broker,
            )
        )

    def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        self._run(self._inner.delete_topic(topic, cluster=cluster))

    # --- groups ---

    def groups(
        self, *, system: bool = False, cluster: str | None = None, broker: str | None = None
    ) -> list[GroupInfo]:
        return self._run(self._inner.groups(system=system, cluster=cluster, broker=broker))

    def group(self, group: str) -> GroupInfo | None:
        return self._run(self._inner.group(group))

    def create_group(
        self,
        group: str,
        *,
        enabled: bool = True,
        broadcast_enabled: bool = True,
        retries_max: int = 16,
        retry_queues: int = 1,
        orderly: bool = False,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> GroupInfo:
        return self._run(
            self._inner.create_group(
                group,
                enabled=enabled,
                broadcast_enabled=broadcast_enabled,
                retries_max=retries_max,
                retry_queues=retry_queues,
                orderly=orderly,
                cluster=cluster,
                broker=broker,
            )
        )

    def delete_group(
        self, group: str, *, dead_letters: bool = False, cluster: str | None = None
    ) -> None:
        self._run(self._inner.delete_group(group, dead_letters=dead_letters, cluster=cluster))

    def progress(
        self, group: str, topic: str | None = None, *, members: bool = False
    ) -> GroupProgress:
        return self._run(self._inner.progress(group, topic, members=members))

    def topics_of_group(self, group: str) -> list[str]:
        return self._run(self._inner.topics_of_group(group))

    def time_spans(self, group: str, topic: str) -> list[QueueTimes]:
        return self._run(self._inner.time_spans(group, topic))

    def consumers(self, group: str) -> ConsumerGroupState:
        return self._run(self._inner.consumers(group))

    def producers(self, group: str, topic: str) -> list[ClientInfo]:
        return self._run(self._inner.producers(group, topic))

    def running_info(self, group: str, client_id: str) -> ConsumerRunningInfo:
        return self._run(self._inner.running_info(group, client_id))

    def plan_reset(
        self, group: str, topic: str, to: Target = "latest", *, queue_id: int | None = None
    ) -> list[OffsetChange]:
        return self._run(self._inner.plan_reset(group, topic, to, queue_id=queue_id))

    def reset_offsets(
        self, group: str, topic: str, to: Target = "latest", *, queue_id: int | None = None
    ) -> list[OffsetChange]:
        return self._run(self._inner.reset_offsets(group, topic, to, queue_id=queue_id))

    def set_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        self._run(self._inner.set_offset(group, queue, offset))

    def clone_offsets(self, source: str, target: str, topic: str) -> None:
        self._run(self._inner.clone_offsets(source, target, topic))

    # --- messages ---

    def message(self, message_id: str, topic: str | None = None) -> ReceivedMessage | None:
        return self._run(self._inner.message(message_id, topic))

    def messages_by_unique_id(
        self, topic: str, message_id: str, *, begin_ms: int = 0, end_ms: int = END_OF_TIME
    ) -> list[ReceivedMessage]:
        return self._run(
            self._inner.messages_by_unique_id(topic, message_id, begin_ms=begin_ms, end_ms=end_ms)
        )

    def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME,
        count_max: int = 64,
    ) -> list[ReceivedMessage]:
        return self._run(
            self._inner.messages_by_key(
                topic, key, begin_ms=begin_ms, end_ms=end_ms, count_max=count_max
            )
        )

    def message_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage | None:
        return self._run(self._inner.message_at(queue, queue_offset))

    def browse(
        self, queue: MessageQueue, start: int, end: int, *, expression: str = "*"
    ) -> Iterator[ReceivedMessage]:
        """Yield the messages of a queue from offset `start` up to, not including, `end`."""
        for step in range(start, end, _BROWSE_STEP):
            stop = min(step + _BROWSE_STEP, end)
            yield from self._run(self._browsed(queue, step, stop, expression))

    async def _browsed(
        self, queue: MessageQueue, start: int, end: int, expression: str
    ) -> list[ReceivedMessage]:
        found = self._inner.browse(queue, start, end, expression=expression)
        return [message async for message in found]

    def queue_range(self, queue: MessageQueue) -> tuple[int, int]:
        return self._run(self._inner.queue_range(queue))

    # --- brokers and name servers ---

    def clusters(self) -> dict[str, list[str]]:
        return self._run(self._inner.clusters())

    def brokers(self, *, cluster: str | None = None, runtime: bool = True) -> list[BrokerInfo]:
        return self._run(self._inner.brokers(cluster=cluster, runtime=runtime))

    def broker_runtime(self, broker: str) -> dict[str, str]:
        return self._run(self._inner.broker_runtime(broker))

    def broker_config(self, broker: str) -> dict[str, str]:
        return self._run(self._inner.broker_config(broker))

    def update_broker_config(self, broker: str, settings: Mapping[str, str]) -> None:
        self._run(self._inner.update_broker_config(broker, settings))

    def broker_stats(self, broker: str, name: str, key: str) -> StatsData:
        return self._run(self._inner.broker_stats(broker, name, key))

    def wipe_write_permission(self, broker_name: str) -> int:
        return self._run(self._inner.wipe_write_permission(broker_name))

    def add_write_permission(self, broker_name: str) -> int:
        return self._run(self._inner.add_write_permission(broker_name))

    def namesrv_config(self) -> dict[str, dict[str, str]]:
        return self._run(self._inner.namesrv_config())

    def put_kv(self, namespace: str, key: str, value: str) -> None:
        self._run(self._inner.put_kv(namespace, key, value))

    def get_kv(self, namespace: str, key: str) -> str | None:
        return self._run(self._inner.get_kv(namespace, key))

    def delete_kv(self, namespace: str, key: str) -> None:
        self._run(self._inner.delete_kv(namespace, key))
