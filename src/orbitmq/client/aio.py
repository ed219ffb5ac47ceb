"""The client for asyncio code: `from orbitmq.client.aio import Producer` is the async one."""

from orbitmq.client.admin.admin import AsyncAdmin as Admin
from orbitmq.client.consumer.consumer import AsyncConsumer as Consumer
from orbitmq.client.consumer.pull_consumer import AsyncPullConsumer as PullConsumer
from orbitmq.client.consumer.simple_consumer import AsyncSimpleConsumer as SimpleConsumer
from orbitmq.client.producer.producer import AsyncProducer as Producer

__all__ = ["Admin", "Consumer", "Producer", "PullConsumer", "SimpleConsumer"]
