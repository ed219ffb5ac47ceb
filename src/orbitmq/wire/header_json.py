"""Header encoding 0: a JSON object.

member                  | meaning
code                    | request or response code
flag                    | bit 0: answer, bit 1: nobody waits for an answer
language, version       | of the sender
opaque                  | number that the answer repeats
remark                  | text for people, sometimes a little data
extFields               | the typed fields, as texts
serializeTypeCurrentRPC | "JSON"; nobody needs it

Clients differ: values of extFields may be numbers, booleans or null (Node, C++), numbers may be texts,
members may be missing or come in any order, white space may follow the object (C++), and a text that
was cut may end in half a surrogate pair. What we write has the members in alphabetical order, no
blanks and only texts in extFields, which all of them read.
"""

import json
from typing import Final

import msgspec

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.command import INT_MAX, INT_MIN, Command, ReadCommand

_Value = str | int | float | bool | None


class _Loose(msgspec.Struct, gc=False):
    """What the less careful clients write."""

    code: int | str = 0
    opaque: int | str = 0
    flag: int | str = 0
    version: int | str = 0
    language: str | int | None = None
    remark: _Value = None
    extFields: dict[str, _Value] | None = None  # noqa: N815


class _Written(msgspec.Struct, gc=False):
    # In the order in which RocketMQ writes them; UNSET is left out.
    code: int
    extFields: dict[str, str] | msgspec.UnsetType  # noqa: N815
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serializeTypeCurrentRPC: str  # noqa: N815
    version: int


MEMBERS: Final = _Written.__struct_fields__
"""The names of all members, in the order in which they are written."""

_strict: Final = msgspec.json.Decoder(ReadCommand).decode
_loose: Final = msgspec.json.Decoder(_Loose).decode
_encode: Final = msgspec.json.Encoder().encode
_UNSET: Final = msgspec.UNSET


def encode_header(command: Command) -> bytes:
    """Return the header's text."""
    fields, remark = command.fields, command.remark
    return _encode(
        _Written(
            command.code,
            _UNSET if fields is None else fields,
            command.flag,
            command.language,
            command.opaque,
            _UNSET if remark is None else remark,
            "JSON",
            command.version,
        )
    )


def decode_header(text: bytes | memoryview) -> ReadCommand:
    """Return the command in a header; body and encoding are the caller's. RemoteProtocolError: none."""
    try:
        # What Java and Go write: by far the fastest to read.
        return _strict(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return _decode_loosely(bytes(text))
    except (ValueError, OverflowError, RecursionError) as cause:
        raise RemoteProtocolError(f"the header is not the JSON of a command: {cause}") from cause


def _decode_loosely(text: bytes) -> ReadCommand:
    # Bytes that are no UTF-8, a name in another character set perhaps, are replaced as in RocketMQ.
    shown = text.decode("utf-8", "replace")
    try:
        read = _loose(shown)
    except msgspec.DecodeError:
        if "\\u" not in shown:
            raise
        read = _loose(_without_halves(shown))
    fields, remark = read.extFields, read.remark
    command = ReadCommand(
        code=_int(read.code),
        opaque=_int(read.opaque),
        flag=_int(read.flag),
        version=_int(read.version),
    )
    if read.language is not None:
        command.language = str(read.language)
    if remark is not None:
        command.remark = _text(remark)
    if fields is not None:
        command.fields = {n: _text(value) for n, value in fields.items() if value is not None}
    return command


def _without_halves(text: str) -> bytes:
    """Return JSON with '?' for each half of a surrogate pair, as RocketMQ would store it."""
    return json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace")


def _int(value: int | str) -> int:
    number = int(value)
    if not INT_MIN <= number <= INT_MAX:
        raise ValueError(f"{number} is no 32-bit number")
    return number


def _text(value: _Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
