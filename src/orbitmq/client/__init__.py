"""The client of OrbitMQ and RocketMQ: producers, consumers and admin, for any thread or for asyncio."""

from orbitmq.client import aio
from orbitmq.client.admin.admin import AsyncAdmin
from orbitmq.client.consumer.config import StartFrom
from orbitmq.client.consumer.consumer import AsyncConsumer
from orbitmq.client.consumer.delivery import Delivery
from orbitmq.client.consumer.handling import RetryLater
from orbitmq.client.consumer.idempotence import AsyncIdempotent, Idempotent, MemoryKeys, SqliteKeys
from orbitmq.client.consumer.pull_consumer import AsyncPullConsumer
from orbitmq.client.consumer.replying import replies
from orbitmq.client.consumer.simple_consumer import AsyncSimpleConsumer
from orbitmq.client.consumer.subscription import sql
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.message import Message, ReceivedMessage
from orbitmq.client.producer.producer import AsyncProducer
from orbitmq.client.producer.request_reply import reply_message
from orbitmq.client.producer.send_request import split_batch
from orbitmq.client.producer.send_result import SendResult, SendStatus
from orbitmq.client.producer.transaction import AsyncTransaction, TransactionState
from orbitmq.client.rebalance.report import RebalanceReport
from orbitmq.client.sync.admin import Admin
from orbitmq.client.sync.consumer import Consumer
from orbitmq.client.sync.producer import Producer
from orbitmq.client.sync.pull_consumer import PullConsumer
from orbitmq.client.sync.simple_consumer import SimpleConsumer
from orbitmq.client.sync.transaction import Transaction
from orbitmq.format.compression import Compression
from orbitmq.wire.bodies.message_queue import MessageQueue

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncIdempotent",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncSimpleConsumer",
    "AsyncTransaction",
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
    "RebalanceReport",
    "ReceivedMessage",
    "RetryLater",
    "SendResult",
    "SendStatus",
    "SimpleConsumer",
    "SqliteKeys",
    "StartFrom",
    "Transaction",
    "TransactionState",
    "aio",
    "replies",
    "reply_message",
    "split_batch",
    "sql",
]
