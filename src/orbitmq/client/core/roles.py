"""Roles: what the core of a client knows of its producers and consumers, and asks of them.

Brokers send requests to clients too; the core finds the group that is meant and calls these methods, in
the loop's thread. They must not block.
"""

from collections.abc import Mapping
from typing import Protocol

from orbitmq.client.core.message import ReceivedMessage
from orbitmq.wire.bodies.heartbeat import ConsumerData
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo, DirectConsumeResult
from orbitmq.wire.command import Command


class ProducerRole(Protocol):
    """A producer that brokers may ask something."""

    @property
    def group(self) -> str: ...

    def on_check_transaction(
        self, address: str, request: Command, message: ReceivedMessage
    ) -> None:
        """The broker at this address wants to know what became of a half message (39)."""

    def on_reply(self, message: ReceivedMessage) -> None:
        """The answer to a request of ours (326)."""


class ConsumerRole(Protocol):
    """A consumer that brokers may ask something."""

    @property
    def group(self) -> str: ...

    def consumer_data(self) -> ConsumerData:
        """What the heartbeat says of this group."""

    def on_members_changed(self) -> None:
        """The members of the group changed (40): rebalance."""

    def on_reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at these offsets (220)."""

    def offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        """How far this member is (221)."""

    def running_info(self) -> ConsumerRunningInfo:
        """What this member is doing (307)."""

    async def consume_directly(
        self, message: ReceivedMessage, broker_name: str
    ) -> DirectConsumeResult:
        """Handle this one message now and say how that went (309)."""
