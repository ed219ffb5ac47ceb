"""Header encoding 1, big-endian (RocketMQ: RocketMQSerializable).

Layout of FIXED, 13 bytes:

at | size | type | field    | RocketMQ name | meaning
 0 |    2 | i16  | code     | code          | only 16 bits: codes above 32767 lose their upper half
 2 |    1 | u8   | language | language      | number, see `codes.Language`
 3 |    2 | i16  | version  | version       |
 5 |    4 | i32  | opaque   | opaque        |
 9 |    4 | i32  | flag     | flag          |

at | size | type | field         | meaning
13 | 4    | i32  | remark_length | 0: no remark
   | r    | text | remark        | UTF-8
   | 4    | i32  | fields_length | 0: no fields; else pairs until that many bytes are used up
   | 2    | i16  | name_length   |
   | k    | text | name          | UTF-8
   | 4    | i32  | value_length  |
   | v    | text | value         | UTF-8

A pair with an empty name or value counts as absent, as in RocketMQ.
"""

import struct
from typing import Final

from orbitmq.errors import RemoteProtocolError
from orbitmq.wire.codes import Language
from orbitmq.wire.command import Command, ReadCommand

FIXED: Final = struct.Struct(">hBhii")
assert FIXED.size == 13
_INT: Final = struct.Struct(">i")
_pack_int: Final = _INT.pack
_unpack_int: Final = _INT.unpack_from

_BY_NAME: Final = {language.name: language.value for language in Language}
_BY_NUMBER: Final = {language.value: language.name for language in Language}
_NAME_BYTES_MAX: Final = 0x7FFF

# Of the pop codes only the lower half arrives; no other request has those numbers.
_POP_CODES: Final = {code & 0xFFFF: code for code in (*range(200050, 200057), 200151)}
assert 3442 in _POP_CODES  # POP_MESSAGE as a Java client sends it


def encode_header(command: Command) -> bytes:
    """Return the header's bytes."""
    remark = (command.remark or "").encode("utf-8", "replace")
    pairs = _encode_pairs(command.fields) if command.fields else b""
    code = (command.code + 0x8000 & 0xFFFF) - 0x8000
    language = _BY_NAME.get(command.language, Language.OTHER.value)
    try:
        fixed = FIXED.pack(code, language, command.version, command.opaque, command.flag)
    except struct.error as cause:
        raise RemoteProtocolError(f"a number does not fit a binary header: {cause}") from cause
    return b"".join((fixed, _pack_int(len(remark)), remark, _pack_int(len(pairs)), pairs))


def _encode_pairs(fields: dict[str, str]) -> bytes:
    parts: list[bytes] = []
    for name, value in fields.items():
        raw_name, raw_value = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        size = len(raw_name)
        if not size or not raw_value:
            continue
        if size > _NAME_BYTES_MAX:
            raise RemoteProtocolError(f"a field name of {size} bytes is too long")
        parts += (size.to_bytes(2, "big"), raw_name, _pack_int(len(raw_value)), raw_value)
    return b"".join(parts)


def decode_header(raw: bytes | memoryview) -> ReadCommand:
    """Return the command in a header; body and encoding are the caller's. RemoteProtocolError: none."""
    raw = bytes(raw)
    try:
        code, language, version, opaque, flag = FIXED.unpack_from(raw)
        remark, at = _text(raw, FIXED.size, len(raw))
        (length,) = _unpack_int(raw, at)
        at += 4
        if not 0 <= length <= len(raw) - at:
            raise RemoteProtocolError(f"fields of {length} bytes in a header of {len(raw)}")
        fields = _pairs(raw, at, at + length) if length else None
    except (struct.error, IndexError) as cause:
        raise RemoteProtocolError(f"a binary header of {len(raw)} bytes is cut off") from cause
    if not flag & 1:
        code = _POP_CODES.get(code, code)
    name = _BY_NUMBER.get(language, "OTHER")
    return ReadCommand(code, fields, b"", opaque, flag, remark or None, name, version)


def _pairs(raw: bytes, at: int, end: int) -> dict[str, str]:
    if raw.isascii():
        return _ascii_pairs(raw, raw.decode("ascii"), at, end)
    found: dict[str, str] = {}
    while at < end:
        size = raw[at] << 8 | raw[at + 1]
        at += 2
        if not 0 <= size <= end - at:
            raise RemoteProtocolError(f"a field name of {size} bytes leaves the header")
        name = raw[at : at + size].decode("utf-8", "replace")
        value, at = _text(raw, at + size, end)
        if name and value:
            found[name] = value
    return found


def _ascii_pairs(raw: bytes, text: str, at: int, end: int) -> dict[str, str]:
    """Do the same where no byte has its upper bit, nor does a length: the usual case, and faster."""
    found: dict[str, str] = {}
    while at < end:
        name_at = at + 2
        name_end = name_at + (raw[at] << 8 | raw[at + 1])
        (size,) = _unpack_int(raw, name_end)
        value_at = name_end + 4
        at = value_at + size
        if at > end:
            raise RemoteProtocolError(f"a field value of {size} bytes leaves the header")
        if size and name_end > name_at:
            found[text[name_at:name_end]] = text[value_at:at]
    return found


def _text(raw: bytes, at: int, end: int) -> tuple[str, int]:
    (size,) = _unpack_int(raw, at)
    at += 4
    if not 0 <= size <= end - at:
        raise RemoteProtocolError(f"a text of {size} bytes leaves the header")
    return raw[at : at + size].decode("utf-8", "replace"), at + size
