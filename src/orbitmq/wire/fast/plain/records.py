"""Write the records of found sends, and their answers: the reference for `compiled.records`."""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from orbitmq.format.client_batch import ClientMessage, iter_client_batch
from orbitmq.format.properties import join_properties
from orbitmq.format.record import BLANK, BODY_AT, FIXED, MAGIC_V1, record_parts
from orbitmq.message import TIMER_TOPIC, AppendRequest
from orbitmq.wire.fast.layout import (
    BEFORE_HANDLE,
    BEFORE_ID,
    BEFORE_KEY,
    BEFORE_OFFSET,
    BEFORE_OPAQUE,
    BEFORE_QUEUE_ID,
    BEFORE_REAL_QUEUE,
    BEFORE_REAL_TOPIC,
    BEFORE_SLOT,
    BEHIND_HANDLE,
    HANDLE_BROKER,
    HANDLE_START,
    ID_START,
    LAST,
    SEND,
    Bytes,
    Ints,
    Table,
)
from orbitmq.wire.frame import PREFIX

_HOST_BYTES: Final = 8
_BODY_LENGTH_AT: Final = BODY_AT - 4

_Row = dict[str, int]


def write_sends(
    out: Bytes,
    position: int,
    log_offset: int,
    store_ms: int,
    hosts: Bytes,
    data: Bytes,
    text: Bytes,
    suffix: Bytes,
    rows: Table,
    count: int,
    queues: Table,
    waiting_offset: int,
) -> int:
    """Write the records of all sends from `position` on, each without size and magic; return the end.

    The caller has made sure that there is room. The queues' `next_offset` moves on. A message with a slot
    goes where such messages wait, with where it belongs: `waiting_offset` is the queue offset of the first.
    """
    born_host, store_host = hosts[:_HOST_BYTES].tobytes(), hosts[_HOST_BYTES:].tobytes()
    end = position
    for index, row in enumerate(_rows(rows, count)):
        queue = queues[row["queue"]]
        waits = row["slot_ms"] > 0
        queue_offset = waiting_offset if waits else int(queue["next_offset"])
        rows[index]["log_offset"] = log_offset + end - position
        rows[index]["queue_offset"] = queue_offset
        topic = TIMER_TOPIC.encode() if waits else _slice(data, row, "topic")
        for message in _messages(row, data, text, suffix):
            parts = record_parts(
                message,
                FIXED,
                0,  # size and magic come last, see `publish_records`
                0,
                row["sys_flag"],
                queue_offset,
                log_offset + end - position,
                born_host,
                store_ms,
                store_host,
                bytes((len(topic),)) + topic,
                message.properties,
            )
            end = _put(out, end, b"".join(parts))
            queue_offset += 1
        if waits:
            waiting_offset = queue_offset
        else:
            queue["next_offset"] = queue_offset
    return end


def _messages(row: _Row, data: Bytes, text: Bytes, suffix: Bytes) -> Iterator[AppendRequest]:
    """Yield the messages of a send as records hold them."""
    body, extra = _slice(data, row, "body"), _slice(text, row, "properties") + suffix.tobytes()
    queue_id = row["queue_id"]
    if row["slot_ms"]:
        slot, topic = b"%d" % row["slot_ms"], _slice(data, row, "topic")
        extra += BEFORE_SLOT + slot + BEFORE_REAL_TOPIC + topic
        extra += b"%b%d\x02" % (BEFORE_REAL_QUEUE, queue_id)
        queue_id = 0
    inner: Iterable[ClientMessage] = [ClientMessage(body, b"", row["flag"])]
    if row["batch"]:
        inner = iter_client_batch(body)
    for message in inner:
        yield AppendRequest(
            "",
            queue_id,
            message.body,
            join_properties(message.properties, extra),
            message.flag,
            born_ms=row["born_ms"],
            reconsume_times=row["reconsume_times"],
        )


def publish_records(out: Bytes, position: int, end: int) -> None:
    """Give the records of `write_sends` their size and magic, one after the other.

    A call of its own: whoever finds a size and a magic must find a whole record behind them.
    """
    while position < end:
        size = _record_bytes(out, position)
        _put(out, position, BLANK.pack(size, MAGIC_V1))
        position += size


def _record_bytes(out: Bytes, at: int) -> int:
    """Return the size of a record that does not say it yet."""
    topic_at = at + BODY_AT + _int(out, at + _BODY_LENGTH_AT, 4)
    length_at = topic_at + 1 + int(out[topic_at])
    return length_at + 2 + _int(out, length_at, 2) - at


def write_answers(
    out: Bytes,
    text: Bytes,
    data: Bytes,
    records: Bytes,
    position: int,
    rows: Table,
    count: int,
    parts: Bytes,
    ends: Ints,
) -> int:
    """Write the frames that tell producers where their messages went; return how many bytes.

    `records` holds what was written from `position` on; `ends` says where each of the `parts` ends.
    """
    cut = [part.tobytes() for part in np.split(parts, ends[:-1])]
    used = 0
    for row in _rows(rows, count):
        if not row["oneway"]:
            ids = _offset_ids(row, records, position, cut[ID_START])
            header = b"".join(
                (
                    b"%b%d" % (cut[BEFORE_QUEUE_ID], row["queue_id"]),
                    cut[BEFORE_KEY] + _slice(text, row, "key") if row["key_length"] else b"",
                    cut[BEFORE_ID] + b",".join(ids),
                    cut[BEFORE_HANDLE] + _handle(row, text, data, cut) + cut[BEHIND_HANDLE]
                    if row["slot_ms"]
                    else cut[BEFORE_OFFSET],
                    b"%d" % row["queue_offset"],
                    b"%b%d" % (cut[BEFORE_OPAQUE], row["opaque"]),
                    cut[LAST],
                )
            )
            used = _put(out, used, PREFIX.pack(4 + len(header), len(header)) + header)
        position += row["bytes"]
    return used


def _handle(row: _Row, text: Bytes, data: Bytes, cut: Sequence[bytes]) -> bytes:
    """Return by what a message that waits can be recalled; its time is the first moment of its slot."""
    topic, time = _slice(data, row, "topic"), row["slot_ms"] + 1
    start = cut[HANDLE_START] + topic + cut[HANDLE_BROKER]
    return urlsafe_b64encode(b"%b%d %b" % (start, time, _slice(text, row, "key")))


def _offset_ids(row: _Row, records: Bytes, position: int, start: bytes) -> Iterator[bytes]:
    """Yield the offset ids of a send's messages."""
    at = position
    for _ in range(row["messages"]):
        yield b"%b%016X" % (start, row["log_offset"] + at - position)
        at += _int(records, at, 4)


def _rows(rows: Table, count: int) -> Iterator[_Row]:
    for values in rows[:count].tolist():
        yield dict(zip(SEND.names or (), values, strict=True))


def _slice(source: Bytes, row: _Row, name: str) -> bytes:
    at = row[f"{name}_at"]
    return source[at : at + row[f"{name}_length"]].tobytes()


def _int(source: Bytes, at: int, size: int) -> int:
    return int.from_bytes(source[at : at + size].tobytes(), "big")


def _put(out: Bytes, at: int, data: bytes) -> int:
    """Write bytes at this position; return the end."""
    end = at + len(data)
    out[at:end] = np.frombuffer(data, dtype=np.uint8)
    return end
