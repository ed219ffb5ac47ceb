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
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Self

from orbitmq.errors import FieldError


class _Field(NamedTuple):
    attribute: str
    wire: str
    read: Callable[[str], Any]
    write: Callable[[Any], str]
    required: bool


class Header:
    """Base of all typed headers; subclasses are dataclasses."""

    __slots__ = ()

    @classmethod
    def read(cls, fields: Mapping[str, str] | None) -> Self:
        """Return the typed header. FieldError: a field is missing or cannot be understood."""
        get = (fields or {}).get
        values: dict[str, Any] = {}
        wire = ""
        try:
            for attribute, wire, read, _, required in _layout(cls):
                text = get(wire)
                if text is not None:
                    values[attribute] = read(text)
                elif required:
                    raise FieldError(wire, "is missing")
        except ValueError as cause:
            raise FieldError(wire, f"{get(wire, '')[:64]!r} is not what it should be") from cause
        return cls(**values)

    def write(self) -> dict[str, str]:
        """Return the fields; None is left out."""
        written = {}
        for attribute, wire, _, write, _ in _layout(type(self)):
            value = getattr(self, attribute)
            if value is not None:
                written[wire] = write(value)
        return written


def wire_names(kind: type[Header]) -> tuple[str, ...]:
    """Return the names on the wire of a header's fields."""
    return tuple(item.wire for item in _layout(kind))


_LONG_MIN: Final = -(1 << 63)
_LONG_MAX: Final = (1 << 63) - 1

_LAYOUTS: dict[type[Any], tuple[_Field, ...]] = {}


def _layout(kind: type[Any]) -> tuple[_Field, ...]:
    found = _LAYOUTS.get(kind)
    if found is None:
        found = _LAYOUTS[kind] = _work_out_layout(kind)
    return found


def _work_out_layout(kind: type[Any]) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(kind)
    layout = []
    for item in dataclasses.fields(kind):
        hint = hints[item.name]
        optional = isinstance(hint, types.UnionType) and type(None) in hint.__args__
        base = next(a for a in hint.__args__ if a is not type(None)) if optional else hint
        read, write = _CODECS[base]
        has_default = item.default is not dataclasses.MISSING
        assert has_default or not optional, f"{kind.__name__}.{item.name} has to have a default"
        wire = item.metadata.get("wire") or _camel(item.name)
        layout.append(_Field(item.name, wire, read, write, not (optional or has_default)))
    return tuple(layout)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _read_int(text: str) -> int:
    if "_" in text or not text.isascii():  # a number in Python, but nowhere else
        raise ValueError("not a decimal number")
    value = int(text)
    if not _LONG_MIN <= value <= _LONG_MAX:
        raise ValueError("does not fit 64 bits")
    return value


def _read_bool(text: str) -> bool:
    return text.lower() == "true"


def _write_bool(value: bool) -> str:
    return "true" if value else "false"


_CODECS: dict[Any, tuple[Callable[[str], Any], Callable[[Any], str]]] = {
    str: (str, str),
    int: (_read_int, str),
    bool: (_read_bool, _write_bool),
}
