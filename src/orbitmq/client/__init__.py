"""The client of OrbitMQ and RocketMQ: producers, consumers and admin, for any thread or for asyncio."""

from orbitmq.client import aio
from orbitmq.client.admin import AsyncAdmin
from orbitmq.client.config import ClientConfig
from orbitmq.client.consumer import AsyncConsumer
from orbitmq.client.consumer_config import StartFrom
from orbitmq.client.delivery import Delivery
from orbitmq.client.handling import RetryLater
from orbitmq.client.idempotence import AsyncIdempotent, Idempotent, MemoryKeys, SqliteKeys
from orbitmq.client.message import Message, ReceivedMessage
from orbitmq.client.producer import AsyncProducer
from orbitmq.client.pull_consumer import AsyncPullConsumer
from orbitmq.client.send_request import split_batch
from orbitmq.client.send_result import SendResult, SendStatus
from orbitmq.client.subscription import sql
from orbitmq.client.sync_admin import Admin
from orbitmq.client.sync_consumer import Consumer
from orbitmq.client.sync_producer import Producer
from orbitmq.client.sync_pull_consumer import PullConsumer
from orbitmq.format.compression import Compression
from orbitmq.wire.bodies.message_queue import MessageQueue

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncIdempotent",
    "AsyncProducer",
    "AsyncPullConsumer",
    "ClientConfig",
    "Compression",
    "Consumer",
    "Delivery",
    "Idempotent",
    "MemoryKeys",
    "Message",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "ReceivedMessage",
    "RetryLater",
    "SendResult",
    "SendStatus",
    "SqliteKeys",
    "StartFrom",
    "aio",
    "split_batch",
    "sql",
]
