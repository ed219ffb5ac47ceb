"""Rows as messages: which columns a table may have, and Arrow batches to messages as a client batch has them.

The columns are those of a load (`jobs.load.columns`), with three that only a send can have:

column       | type                       | meaning
delay_level  | a whole number             | one of the broker's delay levels
delay_ms     | a whole number             | delivered so much later
deliver_time | timestamp, or milliseconds | delivered then

What a send gives by itself (message id, born time, offsets) is passed over, so that a table that was read
from a store or a cluster can be sent as it is.
"""

import secrets
import time
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import IntegralType, MapType, StringType, StructType, TimestampType

from orbitmq.client.core.name_rules import RESERVED_PROPERTIES
from orbitmq.errors import ConfigError, InvalidMessageError
from orbitmq.format.client_batch import HEAD_BYTES, OVERHEAD_BYTES
from orbitmq.format.columns import Bytes, Ints
from orbitmq.format.message_id import UniqueId, month_range
from orbitmq.message import NAME_SEPARATOR, PROPERTY_SEPARATOR, Property
from orbitmq.spark.jobs.load.arrow_columns import column, numbers, require_properties, texts
from orbitmq.spark.jobs.load.columns import GIVEN, KINDS, REFUSED_FLAGS, Kinds, require_columns
from orbitmq.spark.jobs.load.encode.layout import Texts
from orbitmq.spark.jobs.load.queues import Mask

_OF_THE_SEND: Final = frozenset(("message_id", "born_time", "reconsume_times"))
SENT_GIVEN: Final = GIVEN | _OF_THE_SEND
SENT_KINDS: Final[Kinds] = {
    **{name: kind for name, kind in KINDS.items() if name not in _OF_THE_SEND},
    "properties": ((MapType,), "a map of strings"),
    "delay_level": ((IntegralType,), "a whole number"),
    "delay_ms": ((IntegralType,), "a whole number"),
    "deliver_time": ((TimestampType, IntegralType), "a timestamp, or milliseconds since 1970"),
}
_DELAYS: Final = {
    "delay_level": Property.DELAY,
    "delay_ms": Property.TIMER_DELAY_MS,
    "deliver_time": Property.TIMER_DELIVER_MS,
}
_LEFT_OUT: Final = RESERVED_PROPERTIES - {Property.TAGS, Property.KEYS}
"""Properties that say what became of another message; a new one gets its own."""
_WIDE: Final = pa.large_binary()
_HEAD: Final = np.dtype(
    [("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body", ">i4")]
)
assert _HEAD.itemsize == HEAD_BYTES
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)
_COUNTER_DIGITS: Final = 12  # of an id: milliseconds of the month, and a counter
_ID_START: Final = f"{Property.UNIQ_KEY}{NAME_SEPARATOR}".encode()
_ID_END: Final = f"{PROPERTY_SEPARATOR}{Property.WAIT}{NAME_SEPARATOR}true{PROPERTY_SEPARATOR}"
_PROPERTIES_OF_ALL: Final = 2  # the id, and WAIT


def require_sent_columns(schema: StructType, topic: str | None) -> None:
    """Raise ConfigError unless such rows can be sent."""
    kinds = {field.name: field.dataType for field in schema.fields}
    require_columns(
        kinds, known=SENT_KINDS, given=SENT_GIVEN, topic=topic, topic_option="the option topic"
    )
    properties = kinds.get("properties")
    if isinstance(properties, MapType) and not (
        isinstance(properties.keyType, StringType) and isinstance(properties.valueType, StringType)
    ):
        rule = "must be a map of strings; CAST(properties AS map<string,string>) makes one"
        raise ConfigError("column properties", properties.simpleString(), rule)


class Encoded(NamedTuple):
    """Messages as a client batch has them, one behind the other."""

    messages: pa.LargeBinaryArray
    sizes: Ints
    delayed: Mask

    def taken(self, order: Ints) -> "Encoded":
        """Return them in another order."""
        return Encoded(self.messages.take(pa.array(order)), self.sizes[order], self.delayed[order])


class MessageEncoder:
    """Makes messages of the rows of one partition, each with an id of its own. Not thread-safe."""

    def __init__(self, partition: int, message_bytes_max: int, address: bytes) -> None:
        self._partition, self._bytes_max = partition, message_bytes_max
        now = time.time_ns() // 1_000_000
        tag, self._row = secrets.randbits(48), 0
        sample = UniqueId(address, tag >> 32, tag & 0xFFFFFFFF, 0, 0).encode()
        self._id_prefix = _ID_START + sample[:-_COUNTER_DIGITS].encode()
        # An id says when its message was made, in milliseconds of the month, and has 16 bits to count.
        self._first_id = ((now - month_range(now)[0]) & 0xFFFFFFFF) << 16

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        """Return the next rows as messages. InvalidMessageError: one that no broker would take."""
        bodies = batch["body"].cast(_WIDE)
        self._require(batch, bodies)
        delay, delayed = self._delays(batch)
        mapped, mapped_counts = _of_map(batch)
        pieces = [self._ids(batch.num_rows), mapped]
        counts = mapped_counts + _PROPERTIES_OF_ALL + delayed
        for name, values in (("TAGS", column(batch, "tags")), ("KEYS", _keys(batch))):
            if values is not None:
                piece, there = _piece(name, values)
                pieces.append(piece)
                counts += there
        properties = pc.binary_join_element_wise(*pieces, delay, pa.scalar(b"", _WIDE))
        self._require_properties(properties, counts)
        encoded = _joined(bodies, properties, numbers(batch, "flag", 0))
        self._row += batch.num_rows
        return Encoded(encoded, texts(encoded).lengths, delayed)

    def _ids(self, count: int) -> pa.Array:
        """Return the property UNIQ_KEY of so many rows, and WAIT behind it."""
        start, end = self._id_prefix, _ID_END.encode()
        width = len(start) + _COUNTER_DIGITS + len(end)
        rows = np.empty((count, width), dtype=np.uint8)
        rows[:, : len(start)] = np.frombuffer(start, dtype=np.uint8)
        rows[:, width - len(end) :] = np.frombuffer(end, dtype=np.uint8)
        ids = np.arange(count, dtype=np.int64) + (self._first_id + self._row)
        shifts = np.arange(4 * (_COUNTER_DIGITS - 1), -1, -4, dtype=np.int64)
        digits = (ids[:, None] >> shifts) & 15
        rows[:, len(start) : len(start) + _COUNTER_DIGITS] = _HEX[digits]
        return _fixed(rows.reshape(-1), width)

    def _delays(self, batch: pa.RecordBatch) -> tuple[pa.Array, Mask]:
        """Return the property that delays each row, empty where none does, and which rows have one."""
        found = pa.array([b""] * batch.num_rows, _WIDE)
        delayed = np.zeros(batch.num_rows, dtype=bool)
        for name, prop in _DELAYS.items():
            values = column(batch, name)
            if values is None:
                continue
            if pa.types.is_timestamp(values.type):
                values = values.cast(pa.timestamp("ms", values.type.tz), safe=False)
            wanted = values.cast(pa.int64()).fill_null(0)
            there = np.asarray(wanted.to_numpy(zero_copy_only=False)) != 0
            self._refuse(np.asarray(wanted) < 0, f"{name} must not be negative")
            self._refuse(there & delayed, "set one of delay_level, delay_ms and deliver_time")
            text = wanted.cast(pa.string()).cast(_WIDE)
            piece = _join(f"{prop}{NAME_SEPARATOR}", text, PROPERTY_SEPARATOR)
            found = pc.if_else(pa.array(there), piece, found)
            delayed |= there
        return found, delayed

    # --- what no broker would take ---

    def _require(self, batch: pa.RecordBatch, bodies: pa.Array) -> None:
        flags = numbers(batch, "sys_flag", 0) & REFUSED_FLAGS != 0
        self._refuse(flags, "is a half message or an inner batch (sys_flag); leave it out")
        lengths = texts(bodies).lengths
        empty = np.asarray(bodies.is_null()) | (lengths == 0)
        self._refuse(empty, "has no body: brokers refuse that; leave it out")
        large = lengths > self._bytes_max
        what = f"has a body of {int(lengths.max())} bytes, allowed are {self._bytes_max}"
        self._refuse(large, f"{what}: maxMessageSize of the broker, option maxMessageBytes here")

    def _require_properties(self, properties: pa.Array, counts: Ints) -> None:
        try:
            require_properties(texts(properties), counts)
        except InvalidMessageError as error:
            raise InvalidMessageError(f"{self._place(0)} or behind it: {error}") from error

    def _refuse(self, bad: Mask, what: str) -> None:
        if bad.any():
            raise InvalidMessageError(f"{self._place(int(bad.argmax()))}: {what}")

    def _place(self, row: int) -> str:
        return f"partition {self._partition}, row {self._row + row}"


def _keys(batch: pa.RecordBatch) -> pa.Array | None:
    """Return the keys of each row as one text."""
    keys = column(batch, "keys")
    if keys is None or not pa.types.is_list(keys.type):
        return keys
    if keys.flatten().null_count:
        raise InvalidMessageError("a row has a null among its keys; array_compact(keys) is without")
    return pc.binary_join(keys, " ")


def _piece(name: str, values: pa.Array) -> tuple[pa.Array, Ints]:
    """Return a property of each row, empty where the row has none, and how many that are."""
    filled = values.fill_null("").cast(_WIDE)
    there = texts(filled).lengths > 0
    piece = _join(f"{name}{NAME_SEPARATOR}", filled, PROPERTY_SEPARATOR)
    return pc.if_else(pa.array(there), piece, pa.scalar(b"", _WIDE)), there.astype(np.int64)


def _of_map(batch: pa.RecordBatch) -> tuple[pa.Array, Ints]:
    """Return the properties that the column of that name gives each row, and how many that are."""
    given = column(batch, "properties")
    if given is None or not len(given.keys):
        return pa.array([b""] * batch.num_rows, _WIDE), np.zeros(batch.num_rows, dtype=np.int64)
    names, values = given.keys, given.items
    taken = {prop for name, prop in (("tags", "TAGS"), ("keys", "KEYS")) if _has(batch, name)}
    others = pa.array(sorted(_LEFT_OUT | taken))
    lengths = pc.binary_length(values).fill_null(0)
    keep = pc.and_(pc.greater(lengths, 0), pc.invert(pc.is_in(names, value_set=others)))
    if pc.any(pc.and_(keep, pc.equal(names, ""))).as_py():
        raise InvalidMessageError("a property has an empty name")
    entries = _join(
        names.cast(_WIDE), NAME_SEPARATOR, values.fill_null("").cast(_WIDE), PROPERTY_SEPARATOR
    )
    kept = texts(pc.if_else(keep, entries, pa.scalar(b"", _WIDE)))
    # The entries of a row lie one behind the other: so do their bytes, and a row is one text of them.
    rows = np.asarray(given.offsets)
    kept_before = np.concatenate([[0], np.cumsum(np.asarray(keep), dtype=np.int64)])
    return _texts_array(kept, kept.ends[rows]), np.diff(kept_before[rows])


def _has(batch: pa.RecordBatch, name: str) -> bool:
    return name in batch.schema.names


def _joined(bodies: pa.Array, properties: pa.Array, flags: Ints) -> pa.Array:
    """Return whole messages: head, body, the length of the properties, these."""
    body_lengths, lengths = texts(bodies).lengths, texts(properties).lengths
    heads = np.zeros(len(bodies), dtype=_HEAD)
    heads["size"] = OVERHEAD_BYTES + body_lengths + lengths
    heads["flag"], heads["body"] = flags, body_lengths
    short = lengths.astype(">i2")
    parts = _fixed(heads.view(np.uint8), HEAD_BYTES), bodies, _fixed(short.view(np.uint8), 2)
    return pc.binary_join_element_wise(*parts, properties, pa.scalar(b"", _WIDE))


def _join(*parts: pa.Array | str) -> pa.Array:
    texts_of = (pa.scalar(p.encode(), _WIDE) if isinstance(p, str) else p for p in parts)
    return pc.binary_join_element_wise(*texts_of, pa.scalar(b"", _WIDE))


def _fixed(data: Bytes, width: int) -> pa.Array:
    """Return texts of one length that lie one behind the other."""
    ends = np.arange(len(data) // width + 1, dtype=np.int64) * width
    return _texts_array(Texts(data, ends), ends)


def _texts_array(found: Texts, ends: Ints) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(ends)), pa.py_buffer(found.data)]
    return pa.Array.from_buffers(_WIDE, len(ends) - 1, buffers)
