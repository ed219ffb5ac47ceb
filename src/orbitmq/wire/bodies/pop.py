"""Body of BATCH_ACK_MESSAGE (200151): many popped messages are done with."""

import base64
import binascii
from typing import Final

import msgspec

from orbitmq.errors import FieldError
from orbitmq.wire.bodies.body import Body

BITS_MAX: Final = 1 << 20
"""Messages of one pop lie this close to each other at most, however few its filter lets pass."""


class BatchAck(Body, kw_only=True):
    """Messages of one pop, by bits: bit i stands for the message at start offset + i."""

    consumer_group: str = msgspec.field(name="c")
    topic: str = msgspec.field(name="t")  # the original topic
    retry: str = msgspec.field(default="0", name="r")  # the kind of retry topic, if it is one
    start_offset: int = msgspec.field(name="so")
    queue_id: int = msgspec.field(name="q")
    revive_queue_id: int = msgspec.field(name="rq")
    pop_time: int = msgspec.field(name="pt")
    invisible_time: int = msgspec.field(name="it")
    bits: str = msgspec.field(default="", name="b")

    def offsets(self) -> list[int]:
        """Return the queue offsets of the messages. FieldError: the bits cannot be understood."""
        try:
            raw = base64.b64decode(self.bits, validate=True)
        except (binascii.Error, ValueError) as cause:
            raise FieldError("b", f"{self.bits[:64]!r} is no Base64: {cause}") from cause
        if len(raw) * 8 > BITS_MAX:
            raise FieldError("b", f"has {len(raw) * 8} bits, the limit is {BITS_MAX}")
        start = self.start_offset
        return [
            start + 8 * place + bit
            for place, byte in enumerate(raw)
            if byte
            for bit in range(8)
            if byte >> bit & 1
        ]


class BatchAckBody(Body):
    """Acks of several pops at one broker."""

    broker_name: str = ""
    acks: list[BatchAck] = []
