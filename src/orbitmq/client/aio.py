"""The client for asyncio code: `from orbitmq.client.aio import Producer` is the async one."""

from orbitmq.client.admin import AsyncAdmin as Admin
from orbitmq.client.consumer import AsyncConsumer as Consumer
from orbitmq.client.producer import AsyncProducer as Producer
from orbitmq.client.pull_consumer import AsyncPullConsumer as PullConsumer

__all__ = ["Admin", "Consumer", "Producer", "PullConsumer"]
