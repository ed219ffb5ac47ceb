"""Columns of the message table, made from rows of the kernels and the bytes that the rows point into.

No Python object is made per message: numbers are copied by numpy, texts by the kernel `gather`. Bytes that
are no UTF-8 are shown as Python decodes them, with U+FFFD; only a batch that has such bytes pays for that.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from orbitmq.errors import FormatError
from orbitmq.format.columns import Bytes, Ints, Rows
from orbitmq.format.kernels import Kernels
from orbitmq.format.properties import decode_properties
from orbitmq.format.record import (
    BODY_AT,
    BODY_CRC_AT,
    BORN_HOST_AT,
    HOST_V6_EXTRA,
    STORE_HOST_AT,
    unpack_host,
)
from orbitmq.message import SysFlag
from orbitmq.spark.source.schemas import KEY_SCHEMA

_SIMPLE_TYPES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}

VARIANT: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        # By this Spark knows a variant from any other struct.
        pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
    ]
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return how Arrow names the types of our columns; Spark has that too, but keeps it to itself."""
    fields = schema.fields
    return pa.schema([pa.field(f.name, _arrow_type(f.dataType), f.nullable) for f in fields])


def _arrow_type(kind: DataType) -> pa.DataType:
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(kind.elementType), kind.containsNull))
    if isinstance(kind, VariantType):
        return VARIANT
    if isinstance(kind, MapType):
        value = pa.field("value", _arrow_type(kind.valueType), kind.valueContainsNull)
        return pa.map_(pa.field("key", _arrow_type(kind.keyType), nullable=False), value)
    return _SIMPLE_TYPES[kind.simpleString()]


ARROW_SCHEMA: Final = arrow_schema(KEY_SCHEMA)
TEXT_BYTES_MAX: Final = 2**31 - 1
"""What the 32-bit offsets of one Arrow column can address."""

TIME_MS_MIN: Final = -62_135_596_800_000  # 0001-01-01, and 9999-12-31T23:59:59.999: Python's range
TIME_MS_MAX: Final = 253_402_300_799_999

_HEAD: Final = np.dtype(
    [
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("log_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_ms", ">i8"),
    ]
)
"""The fields of a record from its body CRC to its born time."""
_TAIL: Final = np.dtype([("reconsume_times", ">i4"), ("prepared_offset", ">i8")])
_TAIL_BACK_BYTES: Final = 16  # before the body: reconsume_times, prepared_offset, body_length
_HOST_BYTES: Final = 8
_HEX: Final = np.frombuffer(
    b"".join(b"%02X" % number for number in range(256)), dtype=np.uint16
)  # two characters per byte

_DECODED_ROWS: Final = 16
"""So many property strings at a time become Python objects, which take fifty times their bytes."""

Mask = npt.NDArray[np.bool_]
Array = TypeVar("Array", Rows, Ints)


class RowColumns:
    """Columns of some rows of one buffer; what several of them need is made once. Not thread-safe.

    `keeps_buffer`: nobody writes to the buffer, so a column may be a part of it.
    """

    def __init__(
        self, kernels: Kernels, buffer: Bytes, rows: Rows, *, keeps_buffer: bool = True
    ) -> None:
        self.kernels, self.buffer, self.rows = kernels, buffer, rows
        self._keeps_buffer = keeps_buffer

    def column(self, name: str) -> pa.Array:
        """Return a column with exactly its type in `schemas`; bodies are as stored."""
        make = _MAKERS.get(name)
        return make(self) if make is not None else pa.nulls(len(self.rows), _type(name))

    def _of_rows(self, name: str) -> pa.Array:
        return number_array(name, self.rows[name])

    def _of_head(self, name: str) -> pa.Array:
        return number_array(name, self._head[name])

    def _of_tail(self, name: str) -> pa.Array:
        fixed = self._fixed_fields(self._ints("body_at") - _TAIL_BACK_BYTES, _TAIL)
        return number_array(name, fixed[name])

    def _time(self, name: str, milliseconds: Ints) -> pa.Array:
        known = is_time(milliseconds)
        return number_array(name, np.where(known, milliseconds, 0) * 1000, known)

    def _topic(self) -> pa.Array:
        return self._text(self._ints("topic_at"), self._ints("topic_length"))

    def _span_text(self, name: str) -> pa.Array:
        lengths = self._spans[f"{name}_length"]
        return self._text(self._spans[f"{name}_at"], lengths, lengths > 0)

    def _keys(self) -> pa.Array:
        at, lengths = (self._spans[name].astype(np.int64) for name in ("keys_at", "keys_length"))
        parts = self.kernels.split_parts(self.buffer, at, lengths, ord(" "))
        texts = self._text(parts.elements["at"], parts.elements["length"])
        return _list_array("keys", parts.ends, texts)

    def _properties(self) -> pa.Array:
        pairs = self.kernels.property_pairs(self.buffer, self.rows)
        names, values = (
            self._gathered(pairs.elements[f"{part}_at"], pairs.elements[f"{part}_length"])
            for part in ("name", "value")
        )
        if not (names.is_text() and values.is_text()):
            return self._decoded_properties()
        kind = _type("properties")
        entries = pa.StructArray.from_arrays(
            [names.array(pa.string()), values.array(pa.string())],
            fields=[kind.key_field, kind.item_field],
        )
        return _list_array("properties", pairs.ends, entries)

    def _decoded_properties(self) -> pa.Array:
        """Return the maps as Python decodes them: two malformed names may become one."""
        return pa.concat_arrays(
            self._decoded_maps(start, start + _DECODED_ROWS)
            for start in range(0, len(self.rows), _DECODED_ROWS)
        )

    def _decoded_maps(self, start: int, end: int) -> pa.Array:
        rows = self.rows[start:end]
        ends = rows["properties_at"] + rows["properties_length"]
        spans = zip(rows["properties_at"].tolist(), ends.tolist(), strict=True)
        maps = [decode_properties(self.buffer[at:end].tobytes()) for at, end in spans]
        return pa.array([list(found.items()) for found in maps], type=_type("properties"))

    def _host(self, at: Ints, is_v6: Mask) -> pa.Array:
        lengths = _HOST_BYTES + HOST_V6_EXTRA * is_v6.astype(np.int64)
        packed = self._gathered(at, lengths).array(pa.binary())
        # A log knows few hosts: each is written out once per batch.
        coded = packed.dictionary_encode()
        texts = [unpack_host(host).text() for host in coded.dictionary.to_pylist()]
        return pa.array(texts, type=pa.string()).take(coded.indices)

    def _born_host(self) -> pa.Array:
        return self._host(self.starts + BORN_HOST_AT, self._is_v6(SysFlag.BORN_HOST_V6))

    def _store_host(self) -> pa.Array:
        return self._host(self.store_hosts_at, self._is_v6(SysFlag.STORE_HOST_V6))

    def _offset_id(self) -> pa.Array:
        hosts = _HOST_BYTES + HOST_V6_EXTRA * self._is_v6(SysFlag.STORE_HOST_V6).astype(np.int64)
        ends = np.concatenate(([0], np.cumsum(hosts + 8)))
        ids = np.empty(int(ends[-1]), dtype=np.uint8)
        self.kernels.gather(self.buffer, self.store_hosts_at, hosts, ids, ends[:-1])
        # The place, not what the record says of it: a broker reads at the offset in the id.
        offsets = self.rows["log_offset"].astype(">i8").view(np.uint8)
        count = len(self.rows)
        eights = np.full(count, 8, dtype=np.int64)
        self.kernels.gather(offsets, 8 * np.arange(count), eights, ids, ends[1:] - 8)
        return Gathered(2 * ends, _HEX[ids].view(np.uint8)).array(pa.string())

    def _body(self) -> pa.Array:
        at, lengths = self.bodies
        if (
            len(at) == 1 and self._keeps_buffer
        ):  # Not copied: this may be a body larger than all memory that a task may use.
            start, end = int(at[0]), int(at[0] + lengths[0])
            return Gathered(np.array([0, end - start]), self.buffer[start:end]).array(pa.binary())
        return self._gathered(at, lengths).array(pa.binary())

    @cached_property
    def bodies(self) -> tuple[Ints, Ints]:
        """The position of each body in the buffer, and its length."""
        return self._ints("body_at"), self._ints("body_length")

    @cached_property
    def starts(self) -> Ints:
        """The position of each record in the buffer."""
        hosts = self._is_v6(SysFlag.BORN_HOST_V6).astype(np.int64)
        hosts += self._is_v6(SysFlag.STORE_HOST_V6)
        return self._ints("body_at") - BODY_AT - HOST_V6_EXTRA * hosts

    @cached_property
    def store_hosts_at(self) -> Ints:
        """The position of each record's store host."""
        born_v6 = self._is_v6(SysFlag.BORN_HOST_V6).astype(np.int64)
        return self.starts + STORE_HOST_AT + HOST_V6_EXTRA * born_v6

    @cached_property
    def _head(self) -> npt.NDArray[np.void]:
        return self._fixed_fields(self.starts + BODY_CRC_AT, _HEAD)

    @cached_property
    def _spans(self) -> npt.NDArray[np.void]:
        return self.kernels.text_spans(self.buffer, self.rows)

    def _is_v6(self, bit: SysFlag) -> Mask:
        mask: Mask = (self.rows["sys_flag"] & bit.value) != 0
        return mask

    def _ints(self, name: str) -> Ints:
        numbers: Ints = self.rows[name].astype(np.int64)
        return numbers

    def _fixed_fields(self, at: Ints, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
        lengths = np.full(len(at), dtype.itemsize, dtype=np.int64)
        return self._gathered(at, lengths).data.view(dtype)

    def _text(self, at: Ints, lengths: Ints, valid: Mask | None = None) -> pa.Array:
        return self._gathered(at, lengths).text(valid)

    def _gathered(self, at: Ints, lengths: Ints) -> "Gathered":
        return gathered(self.kernels, self.buffer, at, lengths)


class Gathered:
    """Pieces of bytes one after another, and where each ends: what an Arrow column is made of."""

    def __init__(self, ends: Ints, data: Bytes) -> None:
        self.ends, self.data = ends, data

    def array(self, kind: pa.DataType, valid: Mask | None = None) -> pa.Array:
        offsets = pa.py_buffer(self.ends.astype(np.int32))
        buffers = [_bitmap(valid), offsets, pa.py_buffer(self.data)]
        return pa.Array.from_buffers(kind, len(self.ends) - 1, buffers)

    def is_text(self) -> bool:
        """Return whether every piece is UTF-8."""
        if not len(self.data) or self.data.max() < 0x80:
            return True
        try:
            self.array(pa.string()).validate(full=True)
        except pa.ArrowInvalid:
            return False
        return True

    def text(self, valid: Mask | None = None) -> pa.Array:
        if self.is_text():
            return self.array(pa.string(), valid)
        texts = [piece.decode("utf-8", "replace") for piece in self.array(pa.binary()).to_pylist()]
        mask = None if valid is None else ~valid
        return pa.array(texts, type=pa.string(), mask=mask)


def gathered(kernels: Kernels, buffer: Bytes, at: Ints, lengths: Ints) -> Gathered:
    """Copy pieces of a buffer one after another. FormatError: they are too much for one column."""
    sizes = lengths.astype(np.int64)
    ends = np.concatenate(([0], np.cumsum(sizes)))
    if int(ends[-1]) > TEXT_BYTES_MAX:
        raise FormatError(f"{int(ends[-1])} bytes do not fit into one Arrow column")
    data = np.empty(int(ends[-1]), dtype=np.uint8)
    kernels.gather(buffer, at.astype(np.int64), sizes, data, ends[:-1])
    return Gathered(ends, data)


def pieces(rows: Array, weights: Ints, limit: int) -> Iterator[Array]:
    """Cut rows (or their numbers) so that no piece of several of them weighs more than the limit."""
    sums = np.cumsum(weights)
    start = 0
    while start < len(rows):
        before = int(sums[start - 1]) if start else 0
        end = int(np.searchsorted(sums, before + limit, side="right"))
        end = max(end, start + 1)
        yield rows[start:end]
        start = end


def number_array(name: str, numbers: npt.NDArray[Any], valid: Mask | None = None) -> pa.Array:
    """Return numbers in native form as the column of this name."""
    kind = _type(name)
    width = np.int32 if kind.bit_width == 32 else np.int64
    values = np.ascontiguousarray(numbers, dtype=width)
    return pa.Array.from_buffers(kind, len(values), [_bitmap(valid), pa.py_buffer(values)])


def is_time(milliseconds: Ints) -> Mask:
    """Return which of the times a timestamp can show; the others are null in the table."""
    mask: Mask = (milliseconds >= TIME_MS_MIN) & (milliseconds <= TIME_MS_MAX)
    return mask


def _bitmap(valid: Mask | None) -> pa.Buffer | None:
    if valid is None:
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _list_array(name: str, ends: npt.NDArray[np.int32], elements: pa.Array) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(ends))]
    return pa.Array.from_buffers(_type(name), len(ends) - 1, buffers, children=[elements])


def _type(name: str) -> pa.DataType:
    return ARROW_SCHEMA.field(name).type


_MAKERS: Final[dict[str, Callable[[RowColumns], pa.Array]]] = {
    "topic": RowColumns._topic,
    "queue_id": lambda columns: columns._of_rows("queue_id"),
    "queue_offset": lambda columns: columns._of_rows("queue_offset"),
    "log_offset": lambda columns: columns._of_rows("log_offset"),
    "size": lambda columns: columns._of_rows("size"),
    "tags": lambda columns: columns._span_text("tags"),
    "keys": RowColumns._keys,
    "message_id": lambda columns: columns._span_text("unique"),
    "offset_id": RowColumns._offset_id,
    "born_time": lambda columns: columns._time("born_time", columns._head["born_ms"]),
    "store_time": lambda columns: columns._time("store_time", columns.rows["store_ms"]),
    "born_host": RowColumns._born_host,
    "store_host": RowColumns._store_host,
    "sys_flag": lambda columns: columns._of_rows("sys_flag"),
    "flag": lambda columns: columns._of_head("flag"),
    "reconsume_times": lambda columns: columns._of_tail("reconsume_times"),
    "prepared_offset": lambda columns: columns._of_tail("prepared_offset"),
    "body_crc": lambda columns: columns._of_head("body_crc"),
    "body_length": lambda columns: columns._of_rows("body_length"),
    "properties": RowColumns._properties,
    "body": RowColumns._body,
}
"""How each column is made; `error` is null wherever there is a record."""
