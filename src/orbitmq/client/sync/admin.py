"""Admin: look at a cluster and change it, from any thread. The methods are those of AsyncAdmin.

with Admin("127.0.0.1:9876") as admin:
    admin.create_topic("Orders", queues=4)
    print(admin.progress("orders-service").lag)
"""

from collections.abc import Iterator, Sequence
from typing import Any

from orbitmq.client.admin.admin import AsyncAdmin
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.client.sync.face import SyncClient, forward
from orbitmq.wire.bodies.message_queue import MessageQueue

_BROWSE_STEP = 256


class Admin(SyncClient[AsyncAdmin]):
    """An admin client for any code. Any thread may use it."""

    noun = "admin client"

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        config: ClientConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(AsyncAdmin(namesrv, config=config, **settings))

    # topics
    topics = forward(AsyncAdmin.topics)
    topic = forward(AsyncAdmin.topic)
    topic_config = forward(AsyncAdmin.topic_config)
    topic_stats = forward(AsyncAdmin.topic_stats)
    groups_of_topic = forward(AsyncAdmin.groups_of_topic)
    offsets_at = forward(AsyncAdmin.offsets_at)
    create_topic = forward(AsyncAdmin.create_topic)
    delete_topic = forward(AsyncAdmin.delete_topic)

    # groups
    groups = forward(AsyncAdmin.groups)
    group = forward(AsyncAdmin.group)
    create_group = forward(AsyncAdmin.create_group)
    delete_group = forward(AsyncAdmin.delete_group)
    progress = forward(AsyncAdmin.progress)
    topics_of_group = forward(AsyncAdmin.topics_of_group)
    time_spans = forward(AsyncAdmin.time_spans)
    consumers = forward(AsyncAdmin.consumers)
    producers = forward(AsyncAdmin.producers)
    running_info = forward(AsyncAdmin.running_info)
    sample_group = forward(AsyncAdmin.sample_group)
    plan_reset = forward(AsyncAdmin.plan_reset)
    reset_offsets = forward(AsyncAdmin.reset_offsets)
    set_offset = forward(AsyncAdmin.set_offset)
    clone_offsets = forward(AsyncAdmin.clone_offsets)

    # messages
    message = forward(AsyncAdmin.message)
    messages_by_unique_id = forward(AsyncAdmin.messages_by_unique_id)
    messages_by_key = forward(AsyncAdmin.messages_by_key)
    message_at = forward(AsyncAdmin.message_at)
    trace = forward(AsyncAdmin.trace)
    queue_range = forward(AsyncAdmin.queue_range)

    # brokers and name servers
    clusters = forward(AsyncAdmin.clusters)
    brokers = forward(AsyncAdmin.brokers)
    broker_runtime = forward(AsyncAdmin.broker_runtime)
    replicas = forward(AsyncAdmin.replicas)
    promote = forward(AsyncAdmin.promote)
    broker_config = forward(AsyncAdmin.broker_config)
    update_broker_config = forward(AsyncAdmin.update_broker_config)
    update_namesrv_config = forward(AsyncAdmin.update_namesrv_config)
    broker_stats = forward(AsyncAdmin.broker_stats)
    wipe_write_permission = forward(AsyncAdmin.wipe_write_permission)
    add_write_permission = forward(AsyncAdmin.add_write_permission)
    namesrv_config = forward(AsyncAdmin.namesrv_config)
    put_kv = forward(AsyncAdmin.put_kv)
    get_kv = forward(AsyncAdmin.get_kv)
    delete_kv = forward(AsyncAdmin.delete_kv)

    def browse(
        self, queue: MessageQueue, start: int, end: int, *, expression: str = "*"
    ) -> Iterator[ReceivedMessage]:
        """Yield the messages of a queue from offset `start` up to, not including, `end`."""
        for step in range(start, end, _BROWSE_STEP):
            stop = min(step + _BROWSE_STEP, end)
            yield from self.opened_loop.run(self._browsed(queue, step, stop, expression))

    async def _browsed(
        self, queue: MessageQueue, start: int, end: int, expression: str
    ) -> list[ReceivedMessage]:
        found = self._inner.browse(queue, start, end, expression=expression)
        return [message async for message in found]
