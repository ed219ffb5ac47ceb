"""Header: a dataclass whose attributes are the typed fields of one kind of request or answer.

Attribute `queue_id` stands for the field `queueId`; another name on the wire is given by
`field(metadata={"wire": "bname"})`. An attribute that may be None, or has a default, may be missing.

    @dataclass(slots=True, kw_only=True)
    class GetMaxOffset(Header):
        topic: str
        queue_id: int
        committed: bool = True

type | text
str  | as it is
int  | decimal
bool | "true" in any case is true, everything else false
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from orbitmq.errors import FieldError

_LONG_MIN: Final = -(1 << 63)
_LONG_MAX: Final = (1 << 63) - 1


class _Field(NamedTuple):
    attribute: str
    wire: str
    kind: type
    default: Any
    required: bool


class Header:
    """Base of all typed headers; subclasses are dataclasses."""

    __slots__ = ()

    @classmethod
    def read(cls, fields: Mapping[str, str] | None) -> Self:
        """Return the typed header. FieldError: a field is missing or cannot be understood."""
        get = (fields or {}).get
        # Each pull goes through here, so the values do not go through __init__ and a table first.
        header = object.__new__(cls)
        value: Any
        for attribute, wire, kind, default, required in _layout(cls):
            text = get(wire)
            if text is None:
                if required:
                    raise FieldError(wire, "is missing")
                value = default
            elif kind is str:
                value = text
            elif kind is bool:
                value = text == "true" or text.lower() == "true"
            else:
                value = _read_int(wire, text)
            setattr(header, attribute, value)
        return header

    def write(self) -> dict[str, str]:
        """Return the fields; None is left out."""
        written = {}
        for attribute, wire, kind, _, _ in _layout(type(self)):
            value = getattr(self, attribute)
            if value is None:
                continue
            if kind is bool:
                written[wire] = "true" if value else "false"
            else:
                written[wire] = value if kind is str else str(value)
        return written


def wire_names(kind: type[Header]) -> tuple[str, ...]:
    """Return the names on the wire of a header's fields."""
    return tuple(item.wire for item in _layout(kind))


_LAYOUTS: Final[dict[type[Any], tuple[_Field, ...]]] = {}


def _layout(kind: type[Any]) -> tuple[_Field, ...]:
    found = _LAYOUTS.get(kind)
    if found is None:
        found = _LAYOUTS[kind] = tuple(_fields(kind))
    return found


def _fields(header: type[Any]) -> list[_Field]:
    hints = typing.get_type_hints(header)
    found = []
    for item in dataclasses.fields(header):
        hint = hints[item.name]
        optional = isinstance(hint, types.UnionType) and type(None) in hint.__args__
        kind = next(a for a in hint.__args__ if a is not type(None)) if optional else hint
        required = item.default is dataclasses.MISSING
        assert kind in (str, int, bool), f"{header.__name__}.{item.name}: no such field type"
        assert not (optional and required), f"{header.__name__}.{item.name} needs a default"
        wire = item.metadata.get("wire") or _camel(item.name)
        found.append(_Field(item.name, wire, kind, item.default, required))
    return found


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _read_int(wire: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError as cause:
        raise FieldError(wire, f"{text[:64]!r} is no whole number") from cause
    # Python takes more for a number than anybody else does: 1_000, other scripts, blanks around it.
    if (
        not _LONG_MIN <= value <= _LONG_MAX
        or "_" in text
        or not text.isascii()
        or text[0] <= " "
        or text[-1] <= " "
    ):
        raise FieldError(wire, f"{text[:64]!r} is no whole number of 64 bits")
    return value
