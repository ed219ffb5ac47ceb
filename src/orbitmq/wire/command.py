"""Command: one request or answer, as both header encodings carry it."""

import itertools
from enum import IntEnum
from typing import Annotated, Final

import msgspec

from orbitmq.wire.codes import VERSION

RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2
INT_MIN: Final = -(1 << 31)
INT_MAX: Final = (1 << 31) - 1
OPAQUE_MAX: Final = 0x7FFFFFFF

_Int = Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)]


class Encoding(IntEnum):
    """How a header is written; RocketMQ's SerializeType."""

    JSON = 0
    BINARY = 1


# A header's JSON is decoded straight into this: the names of its members are the renamed attributes.
class Command(msgspec.Struct, gc=False, eq=False, rename={"fields": "extFields"}):
    """One request or answer. `fields` is None where the header has none at all."""

    code: _Int
    fields: dict[str, str] | None = None
    body: bytes = b""
    opaque: _Int = 0
    flag: _Int = 0
    remark: str | None = None
    language: str = "PYTHON"
    version: _Int = VERSION
    encoding: Encoding = Encoding.JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY_FLAG)

    def answer(
        self,
        code: int = 0,
        remark: str | None = None,
        *,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> "Command":
        """Return the answer to this request, in the encoding in which it was asked."""
        return Command(
            code,
            fields,
            body,
            self.opaque,
            RESPONSE_FLAG,
            remark,
            "JAVA",  # what every client expects of a broker; C++ looks at it
            VERSION,
            self.encoding,
        )

    def __eq__(self, other: object) -> bool:
        # A command that was read is of a subclass, and no less equal for that.
        if not isinstance(other, Command):
            return NotImplemented
        return all(
            getattr(self, name) == getattr(other, name) for name in Command.__struct_fields__
        )

    __hash__ = None  # type: ignore[assignment]


class ReadCommand(Command, gc=False, eq=False, rename={"fields": "extFields"}):
    """A command that came: what its header leaves out is zero, not what we would have written."""

    code: _Int = 0
    language: str = "OTHER"
    version: _Int = 0

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in Command.__struct_fields__)
        return f"Command({', '.join(shown)})"


class Opaques:
    """Numbers for requests: each connection's own, from 1 on, back to 0 behind the largest."""

    def __init__(self, start: int = 1) -> None:
        self._count = itertools.count(start)

    def next(self) -> int:
        return next(self._count) & OPAQUE_MAX
