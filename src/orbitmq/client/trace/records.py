"""Trace records: what one client did with one message, as RocketMQ's clients write it into the trace topic.

The body of a trace message is a row of records. Fields are joined by 0x01, each record ends with 0x02; which
fields there are follows from the first one:

record         | fields behind its name
Pub            | time, region, group, topic, id, tag, keys, broker, body bytes, cost, kind, offset id, success
SubBefore      | time, region, group, request id, id, retries, keys
SubAfter       | request id, id, cost, success, keys, code, time, group
EndTransaction | time, region, group, topic, id, tag, keys, broker, kind, transaction id, state, from check
Recall         | time, region, group, topic, id, success

What is not there is written as `null`. Older clients leave out the offset id of Pub and the end of SubAfter.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any, Final

from orbitmq.message import NAME_SEPARATOR, PROPERTY_SEPARATOR

FIELD_END: Final = NAME_SEPARATOR
RECORD_END: Final = PROPERTY_SEPARATOR
NULL: Final = "null"
"""Java's text of a tag or keys that a message does not have."""


class TraceKind(Enum):
    """What happened to the message."""

    PUB = "Pub"
    SUB_BEFORE = "SubBefore"
    SUB_AFTER = "SubAfter"
    END_TRANSACTION = "EndTransaction"
    RECALL = "Recall"


class MessageKind(IntEnum):
    """Which kind of message was sent (RocketMQ: MessageType, by ordinal)."""

    NORMAL = 0
    HALF = 1
    TRANSACTION_END = 2
    DELAYED = 3
    ORDERED = 4


class ConsumeCode(IntEnum):
    """How a handler ended (RocketMQ: ConsumeReturnType, by ordinal)."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    NOTHING_RETURNED = 3
    FAILED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRecord:
    """One record; which of the fields count follows from its kind."""

    kind: TraceKind
    message_id: str
    time_ms: int = 0
    region: str = ""
    group: str = ""
    topic: str = ""
    tag: str | None = None
    keys: str | None = None
    store_host: str = ""
    body_bytes: int = 0
    cost_ms: int = 0
    message_kind: MessageKind = MessageKind.NORMAL
    offset_id: str = ""
    success: bool = True
    request_id: str = ""  # the same in what was written before and after the handler
    retry_times: int = 0
    code: ConsumeCode = ConsumeCode.SUCCESS
    transaction_id: str | None = None
    state: str = ""  # COMMIT_MESSAGE, ROLLBACK_MESSAGE, UNKNOW
    from_check: bool = False

    @property
    def key_list(self) -> list[str]:
        return (self.keys or "").split()


_SENT: Final = ("time_ms", "region", "group", "topic", "message_id", "tag", "keys", "store_host")
_FIELDS: Final[dict[TraceKind, tuple[str, ...]]] = {
    TraceKind.PUB: (*_SENT, "body_bytes", "cost_ms", "message_kind", "offset_id", "success"),
    TraceKind.SUB_BEFORE: (
        *("time_ms", "region", "group", "request_id", "message_id", "retry_times", "keys"),
    ),
    TraceKind.SUB_AFTER: (
        *("request_id", "message_id", "cost_ms", "success", "keys", "code", "time_ms", "group"),
    ),
    TraceKind.END_TRANSACTION: (
        *(*_SENT, "message_kind", "transaction_id", "state", "from_check"),
    ),
    TraceKind.RECALL: ("time_ms", "region", "group", "topic", "message_id", "success"),
}
_PUB_WITHOUT_OFFSET_ID: Final = tuple(
    name for name in _FIELDS[TraceKind.PUB] if name != "offset_id"
)
_LEAST: Final = {kind: len(names) for kind, names in _FIELDS.items()} | {
    TraceKind.PUB: len(_PUB_WITHOUT_OFFSET_ID),
    TraceKind.SUB_AFTER: 5,
}
"""So many fields an older client's record has at least."""


# --- to bytes ---


def encode_record(record: TraceRecord) -> str:
    """Return the text of a record, with its end."""
    texts = [_text(getattr(record, name)) for name in _FIELDS[record.kind]]
    return FIELD_END.join((record.kind.value, *texts)) + RECORD_END


def _text(value: str | int | bool | None) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if not value:
        return NULL if value is None else ""
    # A key that holds a separator would end the field, and nobody could read the rest.
    return value.replace(FIELD_END, "?").replace(RECORD_END, "?")


def keys_of(records: Iterable[TraceRecord]) -> list[str]:
    """Return what a trace message is found by: the ids and the keys of its messages, each once."""
    found: dict[str, None] = {}
    for record in records:
        found[record.message_id] = None
        found.update(dict.fromkeys(record.key_list))
    return [key for key in found if key]


# --- from bytes ---


def decode_records(body: bytes) -> list[TraceRecord]:
    """Return the records of a trace message; what is none, or of a kind that nobody knows, is left out.

    A record of a batch that names all of its messages becomes one for each.
    """
    found: list[TraceRecord] = []
    for text in body.decode("utf-8", "replace").split(RECORD_END):
        record = _decode_record(text)
        if record is not None:
            found += _singles(record)
    return found


def _decode_record(text: str) -> TraceRecord | None:
    name, *texts = text.split(FIELD_END)
    if name not in _KINDS:
        return None
    kind = TraceKind(name)
    while texts and not texts[-1] and len(texts) > _LEAST[kind]:
        texts.pop()  # a cloud's SubAfter ends with an empty field
    if len(texts) < _LEAST[kind]:
        return None
    names = _FIELDS[kind]
    if kind is TraceKind.PUB and len(texts) == len(_PUB_WITHOUT_OFFSET_ID):
        names = _PUB_WITHOUT_OFFSET_ID
    values: dict[str, Any] = {}
    try:
        for field_name, value in zip(names, texts, strict=False):
            values[field_name] = _READERS.get(field_name, str)(value)
    except ValueError:
        return None
    return TraceRecord(kind=kind, **values)


def _singles(record: TraceRecord) -> list[TraceRecord]:
    """Return a record for each message: Java writes one for a batch, with all ids in one field."""
    if "," not in record.message_id:
        return [record]
    ids, offset_ids = record.message_id.split(","), record.offset_id.split(",")
    if len(offset_ids) != len(ids):
        offset_ids = [record.offset_id] * len(ids)
    pairs = zip(ids, offset_ids, strict=True)
    return [replace(record, message_id=one, offset_id=offset_id) for one, offset_id in pairs]


def _optional(text: str) -> str | None:
    return None if text == NULL else text


def _truth(text: str) -> bool:
    return text.lower() == "true"


def _message_kind(text: str) -> MessageKind:
    return MessageKind(int(text))


def _consume_code(text: str) -> ConsumeCode:
    return ConsumeCode(int(text))


_KINDS: Final = frozenset(kind.value for kind in TraceKind)
_READERS: Final[dict[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("time_ms", "body_bytes", "cost_ms", "retry_times"), int),
    **dict.fromkeys(("success", "from_check"), _truth),
    **dict.fromkeys(("tag", "keys", "transaction_id"), _optional),
    "message_kind": _message_kind,
    "code": _consume_code,
}
