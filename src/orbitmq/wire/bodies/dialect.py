"""The JSON dialect of RocketMQ's bodies (fastjson): keys that are no strings, members that are null.

in the text                                          | as a value
{0:"a:1"}                                            | {"0": "a:1"}
{{"brokerName":"b","queueId":0,"topic":"t"}:5}       | {MessageQueue("t", "b", 0): 5}
{{"other":1}:5}                                      | {'{"other":1}': 5}

Written is compact: no blanks, members of a typed body in alphabetical order, None left out. The table
keys of one body are all of the first, all of the second kind or all texts.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from orbitmq.errors import FieldError
from orbitmq.wire.bodies.message_queue import MessageQueue

DEPTH_MAX: Final = 64
"""RocketMQ's own bodies are at most 6 levels deep."""

# A string, or a key that is none: a number, or an object without objects in it. Nothing is looked at
# twice: a string without an end takes the rest of the text.
_STRING_OR_ODD_KEY: Final = re.compile(
    r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)'
    r"|(?P<before>[{,]\s*)(?P<number>-?\d++)(?=\s*+:)"
    r'|(?P<object>\{[^{}"]*+(?:"(?:[^"\\]|\\.)*+"[^{}"]*+)*+\})(?=\s*+:)',
    re.DOTALL,
)
_BRACKETS_OR_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)

_encode: Final = msgspec.json.Encoder().encode
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode
_decode_queue: Final = msgspec.json.Decoder(MessageQueue, strict=False).decode


def loads(raw: bytes) -> Any:
    """Return the value of a body. FieldError: it is not JSON, not even of this dialect."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    _require_depth(raw)
    try:
        plain = _STRING_OR_ODD_KEY.sub(_quote_key, raw.decode("utf-8"))
        return _with_queue_keys(msgspec.json.decode(plain))
    except (ValueError, RecursionError) as cause:  # both decode errors are ValueErrors
        raise FieldError("body", f"is not JSON: {cause}") from cause


def dumps(value: Any, *, quote_keys: bool = False) -> bytes:
    """Return the text of a value. `quote_keys`: numbers as keys become strings, which is plain JSON."""
    out: list[bytes] = []
    _write(value, quote_keys, out)
    return b"".join(out)


def without_nulls(value: Any) -> Any:
    """Return the value without members that are null: absent and null mean the same."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def _quote_key(match: re.Match[str]) -> str:
    if match["number"] is not None:
        return f'{match["before"]}"{match["number"]}"'
    if match["object"] is not None:
        return _encode(match["object"]).decode()
    return match.group()


def _with_queue_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {_read_key(key): _with_queue_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_queue_keys(item) for item in value]
    return value


def _read_key(key: str) -> str | MessageQueue:
    if key.startswith("{"):
        try:
            return _decode_queue(key)
        except (msgspec.DecodeError, RecursionError):
            pass
    return key


def _require_depth(raw: bytes) -> None:
    """Refuse what is nested too deeply for the functions here that call themselves."""
    depth = 0
    for match in _BRACKETS_OR_STRING.finditer(raw):
        piece = match.group()
        if piece in b"[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise FieldError("body", f"is nested more than {DEPTH_MAX} levels deep")
        elif piece in b"]}":
            depth -= 1


def _write(value: Any, quote_keys: bool, out: list[bytes]) -> None:
    if isinstance(value, msgspec.Struct):
        plain = encode_plain(value)
        if plain is not None:
            out.append(plain)
            return
        members = [(name, getattr(value, attribute)) for attribute, name in _members(type(value))]
        _write_members(members, quote_keys, out)
    elif isinstance(value, Mapping):
        members = [(_written_key(key, quote_keys), item) for key, item in value.items()]
        _write_members(members, quote_keys, out)
    elif isinstance(value, list | tuple | set | frozenset):
        separator = b"["
        for item in value:
            out.append(separator)
            _write(item, quote_keys, out)
            separator = b","
        out.append(b"]" if separator == b"," else b"[]")
    else:
        out.append(_encode(value))


def _write_members(members: list[tuple[bytes, Any]], quote_keys: bool, out: list[bytes]) -> None:
    separator = b"{"
    for name, item in members:
        if item is not None:
            out += (separator, name, b":")
            _write(item, quote_keys, out)
            separator = b","
    out.append(b"}" if separator == b"," else b"{}")


def encode_plain(value: msgspec.Struct) -> bytes | None:
    """Return the text of a value that is plain JSON, much faster; None: it has odd keys or nulls."""
    try:
        text = _encode_sorted(value)
    except TypeError:  # a table with other keys than texts
        return None
    # In a text the word does no harm: the other way is as right.
    return None if b":null" in text else text


@cache
def _members(kind: type[msgspec.Struct]) -> tuple[tuple[str, bytes], ...]:
    """Return attribute and written name of each member, in the order of the names."""
    names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    return tuple((attribute, _encode(name)) for name, attribute in sorted(names))


def _written_key(key: Any, quote_keys: bool) -> bytes:
    if isinstance(key, str):
        return _encode(key)
    if isinstance(key, MessageQueue):
        return _encode_sorted(key)
    return b'"%d"' % key if quote_keys else b"%d" % key
