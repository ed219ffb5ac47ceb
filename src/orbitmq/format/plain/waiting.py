"""Timer messages, many at once: read their records, walk a slot, write what is delivered."""

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.format.columns import Bytes, Ints
from orbitmq.format.java_hash import java_hash
from orbitmq.format.ordinary import is_ordinary_when_due
from orbitmq.format.properties import find_property
from orbitmq.format.record import (
    BLANK,
    BODY_CRC_AT,
    FIXED,
    MAGIC_V1,
    OVERHEAD_BYTES,
    QUEUE_ID_AT,
    Record,
    decode_record,
    record_parts,
)
from orbitmq.format.timer_log import UNIT, UNIT_BYTES, TimerUnit
from orbitmq.format.waiting import (
    DELIVERED_TEXT,
    ENQUEUED_TEXT,
    ODD_WORDS,
    QUEUE_DIGITS_MAX,
    SLOT_DIGITS_MAX,
    WAITING,
    WAITING_PROPERTIES_MAX,
)
from orbitmq.message import TIMER_TOPIC, TOPIC_BYTES_MAX, AppendRequest, Property

Table = npt.NDArray[np.void]  # of WAITING or WAITED_FOR

_SLOT: Final = re.compile(rf"[0-9]{{1,{SLOT_DIGITS_MAX}}}")
_QUEUE: Final = re.compile(rf"[0-9]{{1,{QUEUE_DIGITS_MAX}}}")
_Row = dict[str, int]


class _OddError(Exception):
    """A record that the kernels leave to others."""


def read_waiting(
    data: Bytes,
    at: Ints,
    sizes: Ints,
    enqueue_ms: Ints,
    now_ms: int,
    body_max: int,
    rows: Table,
    queues: Table,
    *,
    check_crc: bool,
) -> tuple[int, int]:
    """Fill `rows` with the records at these places, and `queues` with what they wait for.

    Return how many of both: up to the first record that is not simple, or that needs one more queue. The
    times are what a delivery would tell of each: when it was put into the wheel, and when it came out.
    """
    found: dict[tuple[str, int], list[int]] = {}
    count = 0
    for index in range(len(at)):
        try:
            row, topic = _row(
                data, int(at[index]), int(sizes[index]), body_max, check_crc=check_crc
            )
        except _OddError:
            break
        key = topic, row["queue_id"]
        if key not in found:
            if len(found) == len(queues):
                break
            found[key] = [row["topic_at"], row["topic_length"], row["queue_id"], 0, 0, 0]
        found[key][3] += 1
        found[key][4] += row["cancels"]
        row["queue"], row["enqueue_ms"] = list(found).index(key), int(enqueue_ms[index])
        row["bytes"] = (
            OVERHEAD_BYTES
            + (row["body_length"] + row["topic_length"] + row["properties_length"])
            + len(_stamps(row["enqueue_ms"], now_ms))
        )
        rows[count] = tuple(row[name] for name in WAITING.names or ())
        count += 1
    for number, queue in enumerate(found.values()):
        queues[number] = tuple(queue)
    return count, len(found)


def _row(data: Bytes, at: int, size: int, body_max: int, *, check_crc: bool) -> tuple[_Row, str]:
    """Return a row without queue, enqueue time and bytes, and its topic."""
    record = _record(data, at, size, check_crc=check_crc)
    properties = record.properties
    body_at = at + FIXED.size
    properties_at = at + size - len(properties)
    slot = find_property(properties, Property.TIMER_OUT_MS) or ""
    topic = find_property(properties, Property.REAL_TOPIC) or ""
    queue_id = find_property(properties, Property.REAL_QUEUE_ID) or ""
    if (
        len(record.body) > body_max
        or len(properties) > WAITING_PROPERTIES_MAX
        or not properties.endswith(b"\x02")
        or not is_ordinary_when_due(record.sys_flag, properties)
        or any(word in properties for word in ODD_WORDS)
        or not _SLOT.fullmatch(slot)
        or not _QUEUE.fullmatch(queue_id)
        or not topic.isascii()
        or not 0 < len(topic) <= TOPIC_BYTES_MAX
    ):
        raise _OddError
    key_at, key_length = _place(properties, Property.UNIQ_KEY)
    topic_at, _ = _place(properties, Property.REAL_TOPIC)
    row = {
        "at": at,
        "body_at": body_at,
        "body_length": len(record.body),
        "properties_at": properties_at,
        "properties_length": len(properties),
        "topic_at": properties_at + topic_at,
        "topic_length": len(topic),
        "topic_hash": java_hash(topic),
        "key_at": properties_at + key_at if key_length else 0,
        "key_length": key_length,
        "queue_id": int(queue_id),
        "slot_ms": int(slot),
        "cancels": int(find_property(properties, Property.TIMER_CANCELS) is not None),
    }
    return row, topic


def _record(data: Bytes, at: int, size: int, *, check_crc: bool) -> Record:
    if not (0 <= at <= len(data) and 0 <= size <= len(data) - at):
        raise _OddError
    try:
        record = decode_record(data[at : at + size].tobytes(), check_crc=check_crc)
    except FormatError:
        raise _OddError from None
    if record.size != size or record.magic != MAGIC_V1 or record.topic != TIMER_TOPIC:
        raise _OddError
    return record


def _place(properties: bytes, name: str) -> tuple[int, int]:
    """Return where the value of a property begins, and its length; (0, 0): there is none."""
    place, at = (0, 0), 0
    for piece in properties.split(b"\x02"):
        start = len(name) + 1
        if piece.startswith(name.encode() + b"\x01") and len(piece) > start:
            place = at + start, len(piece) - start
        at += len(piece) + 1
    return place


def _stamps(enqueue_ms: int, now_ms: int) -> bytes:
    return b"%b%d%b%d\x02" % (ENQUEUED_TEXT, enqueue_ms, DELIVERED_TEXT, now_ms)


def write_due(
    out: Bytes,
    position: int,
    log_offset: int,
    store_ms: int,
    store_host: Bytes,
    now_ms: int,
    data: Bytes,
    rows: Table,
    count: int,
    queues: Table,
) -> int:
    """Write the records that deliver these messages, each without size and magic; return the end.

    The caller has made sure that there is room. The queues' `next_offset` moves on. A body keeps its stored
    checksum: one that does not match it must not look whole.
    """
    end, own = position, store_host.tobytes()
    for values in rows[:count].tolist():
        row = dict(zip(WAITING.names or (), values, strict=True))
        record_end = row["properties_at"] + row["properties_length"]
        record = decode_record(data[row["at"] : record_end].tobytes(), check_crc=False)
        queue = queues[row["queue"]]
        queue_offset = int(queue["next_offset"])
        queue["next_offset"] = queue_offset + 1
        topic = data[row["topic_at"] : row["topic_at"] + row["topic_length"]].tobytes()
        message = AppendRequest(
            "",
            row["queue_id"],
            record.body,
            record.properties + _stamps(row["enqueue_ms"], now_ms),
            record.flag,
            born_ms=record.born_ms,
            reconsume_times=record.reconsume_times,
        )
        parts = record_parts(
            message,
            FIXED,
            0,  # size and magic come last, see `publish_due`
            0,
            record.sys_flag,
            queue_offset,
            log_offset + end - position,
            record.born_host.packed(),
            store_ms,
            own,
            bytes((len(topic),)) + topic,
            message.properties,
        )
        written = b"".join(parts)
        out[end : end + len(written)] = np.frombuffer(written, dtype=np.uint8)
        crc_at = row["at"] + BODY_CRC_AT
        out[end + BODY_CRC_AT : end + QUEUE_ID_AT] = data[crc_at : crc_at + 4]
        end += len(written)
    return end


def publish_due(out: Bytes, position: int, rows: Table, count: int) -> None:
    """Give the records of `write_due` their size and magic, one after the other."""
    for size in rows["bytes"][:count].tolist():
        prefix = BLANK.pack(size, MAGIC_V1)
        out[position : position + len(prefix)] = np.frombuffer(prefix, dtype=np.uint8)
        position += size


def walk_slot(
    units: Bytes, base: int, position: int, slot_ms: int, positions: Ints, marks: Ints
) -> tuple[int, int, bool]:
    """Walk the units of a slot back from this timer log offset, in the file that begins at `base`.

    Fill `positions`, and `marks` with the magic of each. Return how many there are, where the next one is
    (-1: there is none), and whether there is a unit of this slot at that place; it may lie in another file.
    """
    count = 0
    while position >= base and count < len(positions):
        at = position - base
        if at % UNIT_BYTES or at > len(units) - UNIT_BYTES:
            return count, position, False
        unit = TimerUnit(*UNIT.unpack_from(units.data, at))
        if not unit.is_sound or unit.slot_ms != slot_ms or unit.previous >= position:
            return count, position, False
        positions[count], marks[count] = position, unit.magic
        count, position = count + 1, unit.previous
    return count, position, True
