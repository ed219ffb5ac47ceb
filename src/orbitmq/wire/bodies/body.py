"""Body: a typed JSON body of a request or answer.

    class LockBody(Body):
        consumer_group: str
        client_id: str
        mq_set: list[MessageQueue]

Attribute `consumer_group` stands for the member `consumerGroup`. Tables with numbers or queues as keys
(`dict[int, str]`, `dict[MessageQueue, int]`) are written as RocketMQ writes them, see `dialect`.
Reading is kind: unknown members are ignored, null counts as absent, numbers may be written as strings.
"""

from functools import cache
from typing import Any, Self

import msgspec

from orbitmq.errors import FieldError
from orbitmq.wire.bodies import dialect


class Body(msgspec.Struct, rename="camel", kw_only=True):
    """Base of all typed bodies and of the objects inside them."""

    def encode(self, *, quote_keys: bool = False) -> bytes:
        """Return the text: compact, members in alphabetical order, None left out.

        `quote_keys`: numbers as keys become strings, which every JSON parser reads.
        """
        return dialect.dumps(self, quote_keys=quote_keys)

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        """Return the body that a text holds. FieldError: it holds none of this kind."""
        try:
            body: Self = _decoder(cls).decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return cls.of(dialect.loads(raw))
        return body

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return the body of a value that `dialect.loads` or `read_state` gave."""
        try:
            return msgspec.convert(dialect.without_nulls(value), cls, strict=False)
        except (msgspec.ValidationError, RecursionError) as cause:
            raise FieldError("body", f"is no {cls.__name__}: {cause}") from cause


@cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, strict=False)
