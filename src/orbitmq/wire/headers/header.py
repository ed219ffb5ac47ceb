"""Header: subclasses are dataclasses; their attributes are the typed fields of a kind of request or answer.

Attribute `queue_id` stands for the field `queueId`; another name on the wire is given by
`field(metadata={"wire": "bname"})`. An attribute that may be None, or has a default, may be missing.

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
from typing import Any, ClassVar, Final, NamedTuple, Self

from orbitmq.errors import FieldError

_LONG_MIN: Final = -(1 << 63)
_LONG_MAX: Final = (1 << 63) - 1
_DIGITS_SAFE: Final = 19  # fewer are no more than a long holds


class _Field(NamedTuple):
    attribute: str
    wire: str
    kind: type
    default: Any
    required: bool


@typing.dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
class Header:
    """Base of all typed headers."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls) -> None:
        assert cls.__bases__ == (Header,), f"{cls.__name__}: a header of a header"

    def __init__(self, **values: Any) -> None:
        # The first of its class. There are some seventy, few of them used, and each takes a while to
        # make a dataclass of; that puts its own __init__ in the place of this one.
        _layout(type(self))
        type(self).__init__(self, **values)

    @classmethod
    def read(cls, fields: Mapping[str, str] | None, names: Mapping[str, str] | None = None) -> Self:
        """Return the typed header. FieldError: a field is missing or cannot be understood.

        With `names` the fields are called as these say; errors still have their own names.
        """
        header = object.__new__(cls)
        reader = _READERS.get((cls, id(names))) or _make_reader(cls, names)
        reader((fields or {}).get, header)
        return header

    def write(self) -> dict[str, str]:
        """Return the fields; None is left out."""
        kind = type(self)
        return (_WRITERS.get(kind) or _make_writer(kind))(self)


def wire_names(kind: type[Header]) -> tuple[str, ...]:
    """Return the names on the wire of a header's fields."""
    return tuple(item.wire for item in _layout(kind))


_Reader = Callable[[Callable[[str], str | None], Header], None]
_Writer = Callable[[Header], dict[str, str]]
_LAYOUTS: Final[dict[type[Any], tuple[_Field, ...]]] = {}
_READERS: Final[dict[tuple[type[Any], int], _Reader]] = {}
_WRITERS: Final[dict[type[Any], _Writer]] = {}


def _layout(kind: type[Any]) -> tuple[_Field, ...]:
    found = _LAYOUTS.get(kind)
    if found is None:
        found = _LAYOUTS[kind] = tuple(_fields(kind))
    return found


def _make_reader(kind: type[Any], names: Mapping[str, str] | None) -> _Reader:
    """Return a function that fills a header, made as a dataclass's own are: one step for each field.

    Every pull and send goes through one; a loop over the layout takes three times as long.
    """
    lines = ["def read(get, header):"]
    scope: dict[str, Any] = {"FieldError": FieldError, "read_int": _read_int}
    for number, (attribute, wire, of, default, required) in enumerate(_layout(kind)):
        scope[f"default_{number}"] = default
        missing = f"raise FieldError({wire!r}, 'is missing')"
        value = {
            str: "text",
            bool: "text == 'true' or text.lower() == 'true'",
            int: f"read_int({wire!r}, text)",
        }[of]
        lines += (
            f"    text = get({wire if names is None else names[wire]!r})",
            "    if text is None:",
            f"        {missing if required else f'header.{attribute} = default_{number}'}",
            "    else:",
            f"        header.{attribute} = {value}",
        )
    exec("\n".join(lines), scope)
    # By identity: names are constants, and live as long as this table.
    reader: _Reader = scope["read"]
    _READERS[kind, id(names)] = reader
    return reader


def _make_writer(kind: type[Any]) -> _Writer:
    """Return a function that writes the fields of such a header, made as `_make_reader` makes its own."""
    lines = ["def write(header):", "    written = {}"]
    for attribute, wire, of, _, _ in _layout(kind):
        text = {str: "value", bool: "'true' if value else 'false'", int: "str(value)"}[of]
        lines += (
            f"    value = header.{attribute}",
            "    if value is not None:",
            f"        written[{wire!r}] = {text}",
        )
    scope: dict[str, Any] = {}
    exec("\n".join([*lines, "    return written"]), scope)
    writer: _Writer = scope["write"]
    _WRITERS[kind] = writer
    return writer


def _fields(header: type[Any]) -> list[_Field]:
    hints = typing.get_type_hints(header)
    found = []
    for item in dataclasses.fields(dataclasses.dataclass(kw_only=True)(header)):
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
    if len(text) < _DIGITS_SAFE and text.isdecimal() and text.isascii():
        return int(text)
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
