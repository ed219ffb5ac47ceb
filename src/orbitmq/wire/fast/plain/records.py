"""Write the records of found sends, and their answers: the reference for `compiled.records`."""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from orbitmq.format.client_batch import ClientMessage, iter_client_batch
from orbitmq.format.properties import join_properties
from orbitmq.format.record import BLANK, BODY_AT, FIXED, MAGIC_V1, record_parts
from orbitmq.message import AppendRequest
from orbitmq.wire.fast.layout import (
    BEFORE_ID,
    BEFORE_KEY,
    BEFORE_OFFSET,
    BEFORE_OPAQUE,
    BEFORE_QUEUE_ID,
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
) -> int:
    """Write the records of all sends from `position` on, each without size and magic; return the end.

    The caller has made sure that there is room. The queues' `next_offset` moves on.
    """
    born_host, store_host = hosts[:_HOST_BYTES].tobytes(), hosts[_HOST_BYTES:].tobytes()
    end = position
    for index, row in enumerate(_rows(rows, count)):
        queue = queues[row["queue"]]
        queue_offset = int(queue["next_offset"])
        rows[index]["log_offset"] = log_offset + end - position
        rows[index]["queue_offset"] = queue_offset
        topic = _slice(data, row, "topic")
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
        queue["next_offset"] = queue_offset
    return end


def _messages(row: _Row, data: Bytes, text: Bytes, suffix: Bytes) -> Iterator[AppendRequest]:
    """Yield the messages of a send as records hold them."""
    body, extra = _slice(data, row, "body"), _slice(text, row, "properties") + suffix.tobytes()
    inner: Iterable[ClientMessage] = [ClientMessage(body, b"", row["flag"])]
    if row["batch"]:
        inner = iter_client_batch(body)
    for message in inner:
        yield AppendRequest(
            "",
            row["queue_id"],
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
                    b"%b%d" % (cut[BEFORE_OFFSET], row["queue_offset"]),
                    b"%b%d" % (cut[BEFORE_OPAQUE], row["opaque"]),
                    cut[LAST],
                )
            )
            used = _put(out, used, PREFIX.pack(4 + len(header), len(header)) + header)
        position += row["bytes"]
    return used


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
