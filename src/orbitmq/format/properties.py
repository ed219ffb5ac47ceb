"""The property string of a record: name 0x01 value 0x02, repeated, in UTF-8.

RocketMQ up to 5.1 leaves out the last 0x02, later versions write it; readers take both. A piece counts
only if it has a name, a 0x01 and a value that is not empty; further 0x01 belong to the value; of equal
names the last one counts. Both separators are ASCII, so cutting bytes and cutting the decoded text give
the same pieces, also where the UTF-8 is malformed (which becomes U+FFFD).
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from orbitmq.errors import FormatError
from orbitmq.format.java_hash import java_hash
from orbitmq.message import NAME_SEPARATOR, PROPERTY_SEPARATOR

JAVA_MAP_CAPACITY: Final = 128
"""Buckets of the map into which the Java broker reads a producer's properties."""

_NAME_END: Final = NAME_SEPARATOR.encode()
_PIECE_END: Final = PROPERTY_SEPARATOR.encode()


def encode_properties(properties: Mapping[str, str], *, as_java: bool = False) -> bytes:
    """Return the property string, with the final 0x02.

    With `as_java` the names come in the order in which a Java broker would write them.
    """
    names = java_order(properties) if as_java else properties
    text = "".join([f"{n}{NAME_SEPARATOR}{properties[n]}{PROPERTY_SEPARATOR}" for n in names])
    count = len(properties)
    # Searched as a whole, for every message comes here; a value may hold 0x01.
    separators = text.count(PROPERTY_SEPARATOR), text.count(NAME_SEPARATOR)
    if separators != (count, count) or "" in properties:
        _require_pieces(properties)
    return text.encode("utf-8", "replace")  # Java too writes '?' for half a surrogate pair


def _require_pieces(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if not name or NAME_SEPARATOR in name or PROPERTY_SEPARATOR in name:
            raise FormatError(f"property name {name!r} is empty or holds a separator")
        if PROPERTY_SEPARATOR in value:
            raise FormatError(f"value of property {name!r} holds the separator 0x02")


def decode_properties(raw: bytes) -> dict[str, str]:
    """Return the properties by name; pieces that are none are left out."""
    found: dict[str, str] = {}
    for piece in raw.decode("utf-8", "replace").split(PROPERTY_SEPARATOR):
        name, _, value = piece.partition(NAME_SEPARATOR)
        if name and value:
            found[name] = value
    return found


def find_property(raw: bytes, name: str) -> str | None:
    """Return the value that `decode_properties` would give for this name, without decoding the rest."""
    wanted = _searched(name)
    if wanted is None:
        return decode_properties(raw).get(name)
    end = len(raw)
    while (at := raw.rfind(wanted, 0, end)) >= 0:
        if at == 0 or raw[at - 1 : at] == _PIECE_END:
            value = _value_at(raw, at + len(wanted))
            if value:
                return value.decode("utf-8", "replace")
        end = at + len(wanted) - 1
    return None


@lru_cache(maxsize=1024)
def _searched(name: str) -> bytes | None:
    """Return the bytes that a piece with this name begins with, None if there are no such bytes."""
    # U+FFFD stands for any malformed bytes, so such a name has no single encoded form.
    if not name or any(c in name for c in (NAME_SEPARATOR, PROPERTY_SEPARATOR, "\ufffd")):
        return None
    try:
        return name.encode() + _NAME_END
    except UnicodeEncodeError:
        return None  # half a surrogate pair: no bytes decode to it


def _value_at(raw: bytes, start: int) -> bytes:
    end = raw.find(_PIECE_END, start)
    return raw[start:] if end < 0 else raw[start:end]


def remove_property(raw: bytes, name: str) -> bytes:
    """Return the property string without any piece of this name; the rest stays as it is."""
    wanted = name.encode() + _NAME_END
    if wanted not in raw:
        return raw
    pieces = raw.split(_PIECE_END)
    return _PIECE_END.join(piece for piece in pieces if not piece.startswith(wanted))


def join_properties(first: bytes, second: bytes) -> bytes:
    """Return both property strings as one, with a 0x02 between them if it is missing."""
    if not first or not second or first.endswith(_PIECE_END):
        return first + second
    return first + _PIECE_END + second


def java_order(names: Iterable[str], capacity: int = JAVA_MAP_CAPACITY) -> list[str]:
    """Return the names in the order in which a Java HashMap of this capacity iterates.

    Bucket order; inside a bucket the order of insertion. The map doubles when it is three quarters
    full. Not modelled: buckets of eight names or more, which Java turns into trees.
    """
    unique = list(dict.fromkeys(names))
    while len(unique) > capacity * 3 // 4:
        capacity *= 2
    return sorted(unique, key=lambda name: _bucket(name, capacity))


def _bucket(name: str, capacity: int) -> int:
    value = java_hash(name) & 0xFFFFFFFF
    return (value ^ value >> 16) & (capacity - 1)
