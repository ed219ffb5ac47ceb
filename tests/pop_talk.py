"""Pops over a socket, of any broker: what a consumer asks, in few words.

talk = PopTalk(broker.address, "Orders", "Cid")
taken = await talk.pop(count=3)
await talk.ack(taken.messages[0])
"""

import time
from typing import Any

from live_broker import LiveClient
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pop import AckHeader, ChangeInvisibleHeader, PopHeader
from orbitmq.wire.receipt import real_topic
from pop_world import Message, Taken, taken_of


class PopTalk:
    """A consumer of one topic."""

    def __init__(self, address: str, topic: str, group: str, client_id: str = "popper") -> None:
        self.client = LiveClient(address, client_id)
        self.topic, self.group = topic, group

    async def pop(
        self, *, count: int = 32, invisible_ms: int = 5_000, poll_ms: int = 0, **given: Any
    ) -> Taken:
        header = PopHeader(
            **{
                "consumer_group": self.group,
                "topic": self.topic,
                "queue_id": -1,
                "max_msg_nums": count,
                "invisible_time": invisible_ms,
                "poll_time": poll_ms,
                "born_time": time.time_ns() // 1_000_000,
                "init_mode": 0,
                **given,
            }
        )
        command = Command(RequestCode.POP_MESSAGE, header.write())
        answer = await self.client.channels.request(self.client.address, command, poll_ms + 10_000)
        return taken_of(answer, command)

    async def ack(self, message: Message) -> Command:
        receipt = message.receipt
        header = AckHeader(
            consumer_group=self.group,
            topic=real_topic(self.topic, self.group, receipt.kind),
            queue_id=receipt.queue_id,
            extra_info=receipt.text,
            offset=receipt.offset,
        )
        return await self.client.ask(RequestCode.ACK_MESSAGE, header.write())

    async def renew(self, message: Message, invisible_ms: int) -> Command:
        receipt = message.receipt
        header = ChangeInvisibleHeader(
            consumer_group=self.group,
            topic=real_topic(self.topic, self.group, receipt.kind),
            queue_id=receipt.queue_id,
            extra_info=receipt.text,
            offset=receipt.offset,
            invisible_time=invisible_ms,
        )
        return await self.client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.write())

    async def send(self, *bodies: str, queue_id: int = 0) -> None:
        for body in bodies:
            answer = await self.client.send(self.topic, body.encode(), queue_id)
            assert answer.code == 0, answer
