"""A broker world with all processors that tools talk to."""

import asyncio
from pathlib import Path
from typing import Any

from broker_world import BrokerWorld, FakeConnection
from orbitmq.broker.processors.connections import ConnectionsProcessor
from orbitmq.broker.processors.groups_admin import GroupsAdminProcessor
from orbitmq.broker.processors.progress import ProgressProcessor
from orbitmq.broker.processors.reset import ResetProcessor
from orbitmq.broker.processors.runtime import RuntimeProcessor
from orbitmq.broker.processors.topics_admin import TopicsAdminProcessor
from orbitmq.broker.tables.clients import ClientConnection
from orbitmq.wire.bodies.heartbeat import Subscription
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.command import Command


class AdminWorld(BrokerWorld):
    """The tables of a broker, and a tool that asks."""

    def __init__(self, root: Path, **given: Any) -> None:
        super().__init__(root, **given)
        context = self.context
        self.route(
            TopicsAdminProcessor(context),
            GroupsAdminProcessor(context),
            ProgressProcessor(context),
            ConnectionsProcessor(context),
            ResetProcessor(context),
            RuntimeProcessor(context),
        )
        self.tool = self.connect()

    def request(self, code: int, body: bytes = b"", **fields: object) -> Command:
        """Ask as a tool does, and return the answer, which may take a thread's time."""
        texts = {name: str(value) for name, value in fields.items()}
        return self.replay(Command(code, texts, body, opaque=7))

    def replay(self, request: Command) -> Command:
        self.handler.on_commands(self.tool, [request])  # type: ignore[arg-type]
        for _ in range(500):
            self.turn()
            for command in self.tool.take():
                if command.is_response and command.opaque == request.opaque:
                    return command
            self.loop.run_until_complete(asyncio.sleep(0.002))
        raise AssertionError(f"request {request.code} was not answered")

    def topic(self, name: str, queues: int = 1, **given: Any) -> TopicConfig:
        config = TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, **given
        )
        self.context.topics.put(config)
        return config

    def consumer(
        self, group: str, *topics: str, client_id: str = "c1", **given: Any
    ) -> FakeConnection:
        """Put a consumer online that subscribes to these topics."""
        connection = self.connect(**given)
        client = ClientConnection(
            connection,  # type: ignore[arg-type]
            client_id,
            connection.language,
            connection.version,
            self.clock.now_ms(),
        )
        self.context.consumers.register(
            group,
            client,
            consume_type="CONSUME_PASSIVELY",
            model="CLUSTERING",
            from_where="CONSUME_FROM_FIRST_OFFSET",
            subscriptions=[Subscription(topic=topic) for topic in topics],
        )
        connection.take()
        return connection
