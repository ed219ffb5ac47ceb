"""Headers of RECALL_MESSAGE (370), and the handle by which a waiting message is named.

A handle is URL-safe base64 of five words: `v1 <topic> <broker name> <delivery time in ms> <unique key>`.
"""

import base64
import binascii
from typing import Final, NamedTuple, Self

from orbitmq.errors import FormatError
from orbitmq.wire.headers.header import Header

_VERSION: Final = "v1"
_WORDS: Final = 5


class RecallHeader(Header):
    """Which message shall not be delivered."""

    producer_group: str | None = None
    bname: str | None = None
    topic: str
    recall_handle: str


class RecallAnswer(Header):
    """Unique key of the message that was recalled."""

    msg_id: str


class RecallHandle(NamedTuple):
    """A waiting message, as the answer to its send named it."""

    topic: str
    broker_name: str
    deliver_ms: str  # text: what a broker cannot read, it refuses
    unique_key: str

    @property
    def text(self) -> str:
        return " ".join((_VERSION, *self))

    def encode(self) -> str:
        return base64.urlsafe_b64encode(self.text.encode("utf-8", "replace")).decode()

    @classmethod
    def decode(cls, handle: str) -> Self:
        """Return what a handle names. FormatError: it is none."""
        try:
            raw = base64.b64decode(handle.encode(), altchars=b"-_", validate=True)
            words = raw.decode().split(" ")
        except (binascii.Error, ValueError):
            words = []
        if len(words) < _WORDS or words[0] != _VERSION:
            raise FormatError("recall handle is invalid")
        return cls(*words[1:_WORDS])
