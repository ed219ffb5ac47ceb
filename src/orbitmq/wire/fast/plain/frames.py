"""Find the ordinary sends at the beginning of what came from a producer: the reference for `compiled.frames`.

A send is taken if it looks as nearly all do: a JSON header without blanks, fields as texts, properties in
which only 0x01 and 0x02 are escaped and which ask for nothing that broker or store would have to do, but to
wait for one time. At the
first frame that looks otherwise, or has not come whole, the search ends: it goes the general way, through
`wire` and the broker's rules, which know everything. So nothing here is ever refused.
"""

import re
import struct
from typing import Final, NamedTuple

import numpy as np

from orbitmq.errors import FormatError
from orbitmq.format.client_batch import iter_client_batch
from orbitmq.format.ordinary import is_ordinary
from orbitmq.format.properties import remove_property
from orbitmq.format.record import OVERHEAD_BYTES
from orbitmq.format.waiting import TIMED
from orbitmq.message import PROPERTIES_BYTES_MAX, TIMER_TOPIC, TOPIC_BYTES_MAX, Property
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import INT_MAX, ONEWAY_FLAG
from orbitmq.wire.fast.layout import (
    MOVED,
    MOVED_BYTES,
    NAMES_MAX,
    NUMBERS,
    REQUIRED,
    SEND,
    TIME_DIGITS_MAX,
    Bytes,
    Table,
)
from orbitmq.wire.frame import HEADER_BYTES_MAX, PREFIX_BYTES
from orbitmq.wire.header_json import MEMBERS
from orbitmq.wire.headers.send import BROKER_PROPERTIES, LETTERS

_LENGTHS: Final = struct.Struct(">ii")
_TEXT: Final = rb"[ !#-\[\]-\x7f]*"  # ASCII, and nothing that is escaped
_NUMBER: Final = rb"(?:0|[1-9][0-9]{0,17})(?![0-9])"
_MEMBER: Final = re.compile(b'"(%s)":(?:(%s)|"(%s)"|(\\{))' % (_TEXT, _NUMBER, _TEXT))
_FIELD: Final = re.compile(b'"(%s)":"' % _TEXT)
_VALUE: Final = re.compile(b'(%s)"' % _TEXT)
_PROPERTIES: Final = re.compile(rb'((?:[ !#-\[\]-\x7f]|\\u000[12])*)"')
_WHOLE_NUMBER: Final = re.compile(_NUMBER)

_CODE, _FIELDS, _FLAG, _LANGUAGE, _OPAQUE, _REMARK, _ENCODING, _VERSION = map(str.encode, MEMBERS)
_NUMBERS: Final = (_CODE, _FLAG, _OPAQUE, _VERSION)
_TEXTS: Final = (_LANGUAGE, _REMARK, _ENCODING)
_SENDS: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
_BY_NAME: Final = {name.encode(): name for name in LETTERS}
_BY_LETTER: Final = {letter.encode(): name for name, letter in LETTERS.items()}
_BROKERS: Final = frozenset(name.encode() for name in BROKER_PROPERTIES)
_UNIQUE: Final = Property.UNIQ_KEY.encode()
_WAIT: Final = Property.WAIT.encode()
_TIMED: Final = tuple(name.encode() for name in TIMED)
_MOVED: Final = tuple(name.encode() for name in MOVED)
_TIME: Final = re.compile(rb"[0-9]{1,%d}" % TIME_DIGITS_MAX)
_WORDS: Final = {b"true": 1, b"false": 0}

_Span = tuple[int, int]


class _OddError(Exception):
    """Not an ordinary send."""


class _Header(NamedTuple):
    numbers: dict[bytes, int]  # by member
    language: _Span
    fields: dict[str, int]  # those that are numbers, by their whole names
    topic: _Span
    properties: _Span  # in the text
    text_end: int


def find_sends(
    data: Bytes,
    start: int,
    frame_max: int,
    body_max: int,
    suffix_length: int,
    rows: Table,
    queues: Table,
    text: Bytes,
) -> tuple[int, int, int, int, int, int, int, int]:
    """Fill `rows` and `queues` with the ordinary sends from `start` on, `text` with their properties.

    Return how many of both, where the last send ends, how many bytes of keys and messages they have,
    and language (position, length) and version of the last sender.
    """
    raw = data.tobytes()
    found: dict[tuple[bytes, int], list[int]] = {}  # what goes to each queue, as QUEUE has it
    count = key_bytes = messages = used = 0
    at, sender = start, (0, 0, 0)
    while count < len(rows):
        try:
            body_at, end = _frame(raw, at, frame_max)
            header = _read_header(raw, at + PREFIX_BYTES, body_at, text, used)
            row = _row(raw, header, body_at, end, body_max, suffix_length, text)
        except _OddError:
            break
        topic_at, topic_length, queue_id = row["topic_at"], row["topic_length"], row["queue_id"]
        key = raw[topic_at : topic_at + topic_length], queue_id
        if key not in found:
            if len(found) == len(queues):
                break
            found[key] = [topic_at, topic_length, queue_id, 0, 0, 0, 0]
        found[key][3] += row["messages"]
        found[key][6] += row["timed"] > 0
        found[key][4] += row["bytes"]
        row["queue"] = list(found).index(key)
        rows[count] = tuple(row.get(name, 0) for name in SEND.names or ())
        messages += row["messages"]
        key_bytes += row["key_length"]
        sender = *header.language, row["version"]
        count, at, used = count + 1, end, header.text_end
    for number, queue in enumerate(found.values()):
        queues[number] = tuple(queue)
    return count, len(found), at, key_bytes, messages, *sender


def _frame(raw: bytes, at: int, frame_max: int) -> _Span:
    """Return where body and frame end that begin at `at`."""
    if len(raw) - at < PREFIX_BYTES:
        raise _OddError
    length, header_length = _LENGTHS.unpack_from(raw, at)
    if length > frame_max - 4 or not 0 <= header_length <= min(length - 4, HEADER_BYTES_MAX):
        raise _OddError
    if at + 4 + length > len(raw):
        raise _OddError
    return at + PREFIX_BYTES + header_length, at + 4 + length


def _behind(raw: bytes, at: int, end: int, byte: bytes) -> int:
    """Return the position behind this byte, which stands at `at`."""
    if at >= end or raw[at : at + 1] != byte:
        raise _OddError
    return at + 1


def _read_header(raw: bytes, at: int, end: int, text: Bytes, used: int) -> _Header:
    numbers, language = {_CODE: -1, _FLAG: -1, _OPAQUE: 0, _VERSION: 0}, (0, 0)
    named, fields = False, None
    at = _behind(raw, at, end, b"{")
    while True:
        match = _MEMBER.match(raw, at, end)
        if match is None:
            raise _OddError
        name, number, value, brace = match.groups()
        at = match.end()
        if name == _FIELDS and brace and fields is None:
            named = numbers[_CODE] == RequestCode.SEND_MESSAGE  # if it comes first, as it does
            fields, at = _read_fields(raw, at, end, text, used, named=named)
        elif name in _TEXTS and value is not None:
            if name == _LANGUAGE:
                language = match.start(3), len(value)
        elif name in _NUMBERS and number is not None and int(number) <= INT_MAX:
            numbers[name] = int(number)
        else:
            raise _OddError
        if at == end - 1 and raw[at:end] == b"}":
            break
        at = _behind(raw, at, end, b",")
    code = numbers[_CODE]
    if fields is None or named != (code == RequestCode.SEND_MESSAGE) or code not in _SENDS:
        raise _OddError
    if numbers[_FLAG] not in (0, ONEWAY_FLAG):
        raise _OddError
    return _Header(numbers, language, *fields)


def _read_fields(
    raw: bytes, at: int, end: int, text: Bytes, used: int, *, named: bool
) -> tuple[tuple[dict[str, int], _Span, _Span, int], int]:
    """Return what the fields say that begin at `at`, behind their brace, and where they end."""
    numbers = {"reconsumeTimes": 0, "batch": 0}
    topic = properties = (0, 0)
    seen: set[str] = set()
    known = _BY_NAME if named else _BY_LETTER
    while True:
        field = _FIELD.match(raw, at, end)
        if field is None:
            raise _OddError
        name = known.get(field[1], "")
        pattern = _PROPERTIES if name == "properties" else _VALUE
        match = pattern.match(raw, field.end(), end)
        if match is None:
            raise _OddError
        value, at = match[1], match.end()
        if name == "properties":
            properties = used, _keep_properties(value, text, used)
            used += properties[1]
        elif name == "topic":
            topic = match.start(1), len(value)
        elif name == "batch":
            if value not in _WORDS:
                raise _OddError
            numbers[name] = _WORDS[value]
        elif name in NUMBERS:
            numbers[name] = int(value) if _WHOLE_NUMBER.fullmatch(value) else -1
        seen.add(name)
        if raw[at : at + 1] == b"}" and at < end:
            break
        at = _behind(raw, at, end, b",")
    if not seen.issuperset(REQUIRED):
        raise _OddError
    return (numbers, topic, properties, used), at + 1


def _keep_properties(escaped: bytes, text: Bytes, used: int) -> int:
    """Put properties into the text; return their length."""
    properties = escaped.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")
    if used + len(properties) > len(text):
        raise _OddError
    text[used : used + len(properties)] = np.frombuffer(properties, dtype=np.uint8)
    return len(properties)


def _row(
    raw: bytes,
    header: _Header,
    body_at: int,
    end: int,
    body_max: int,
    suffix_length: int,
    text: Bytes,
) -> dict[str, int]:
    """Return a row of SEND without its queue."""
    fields, (start, length) = header.fields, header.properties
    properties = text[start : start + length].tobytes()
    key_at, key_length = _unique_key(properties)
    row = {
        "topic_at": header.topic[0],
        "topic_length": header.topic[1],
        "properties_at": start,
        "properties_length": length,
        "key_at": start + key_at if key_length else 0,
        "key_length": key_length,
        "body_at": body_at,
        "body_length": end - body_at,
        "language_at": header.language[0],
        "language_length": header.language[1],
        "born_ms": fields["bornTimestamp"],
        "queue_id": fields["queueId"],
        "sys_flag": fields["sysFlag"],
        "flag": fields["flag"],
        "reconsume_times": fields["reconsumeTimes"],
        "opaque": header.numbers[_OPAQUE],
        "version": header.numbers[_VERSION],
        "batch": fields["batch"],
        "oneway": int(header.numbers[_FLAG] == ONEWAY_FLAG),
    }
    if min(fields.values()) < 0 or not _fits(row, body_max):
        raise _OddError
    row["timed"], row["time"], others = _time(properties)
    if not is_ordinary(row["sys_flag"], others) or (row["timed"] and row["batch"]):
        raise _OddError
    row["messages"], row["bytes"] = _measure(raw, row, length + suffix_length)
    return row


def _time(properties: bytes) -> tuple[int, int, bytes]:
    """Return which of TIMED says when a message is due (0: none), its number, and the other properties."""
    pieces = [piece.partition(b"\x01") for piece in properties.split(b"\x02")]
    found = [(_TIMED.index(name), value) for name, _, value in pieces if name in _TIMED]
    if not found:
        return 0, 0, properties
    number, value = found[0]
    if len(found) > 1 or not _TIME.fullmatch(value) or any(name in _MOVED for name, _, _ in pieces):
        raise _OddError
    return number + 1, int(value), remove_property(properties, TIMED[number])


def _fits(row: dict[str, int], body_max: int) -> bool:
    """Tell whether a record has room for the numbers of a send."""
    return (
        max(row["queue_id"], row["flag"], row["reconsume_times"], row["sys_flag"]) <= INT_MAX
        and 0 < row["topic_length"] <= TOPIC_BYTES_MAX
        and 0 < row["body_length"] <= body_max
    )


def _unique_key(properties: bytes) -> _Span:
    """Return where the unique key lies in properties, (0, 0) if there is none.

    RocketMQ reads them into a map and writes that. They are fine if it would write them as they are: each
    has a name of its own and a value; none is one that the broker acts on.
    """
    if not properties.endswith(b"\x02"):
        raise _OddError
    key, at, names = (0, 0), 0, set()
    for piece in properties[:-1].split(b"\x02"):
        name, _, value = piece.partition(b"\x01")
        if not name or not value or name in names or name in _BROKERS:
            raise _OddError
        if name == _UNIQUE:
            key = at + len(name) + 1, len(value)
            if not value.isalnum():
                raise _OddError
        elif name == _WAIT and value != b"true":
            raise _OddError
        names.add(name)
        at += len(piece) + 1
    if len(names) > NAMES_MAX:
        raise _OddError
    return key


def _measure(raw: bytes, row: dict[str, int], extra_length: int) -> _Span:
    """Return how many messages a send has and how many bytes their records."""
    fixed = OVERHEAD_BYTES + row["topic_length"]
    if row["timed"]:
        extra_length += MOVED_BYTES + row["topic_length"] + len(str(row["queue_id"]))
        fixed = OVERHEAD_BYTES + len(TIMER_TOPIC)
    if not row["batch"]:
        if extra_length > PROPERTIES_BYTES_MAX or not row["key_length"]:
            raise _OddError
        return 1, fixed + row["body_length"] + extra_length
    messages = total = 0
    try:
        body = raw[row["body_at"] : row["body_at"] + row["body_length"]]
        for message in iter_client_batch(body):
            own = message.properties
            length = len(own) + extra_length + (1 if own and not own.endswith(b"\x02") else 0)
            if b"\0" in own or length > PROPERTIES_BYTES_MAX:
                raise _OddError
            messages += 1
            total += fixed + len(message.body) + length
    except FormatError:
        raise _OddError from None
    return messages, total
