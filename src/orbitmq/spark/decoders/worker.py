"""A column of bodies to one of values, in a Python worker: null and words where a body does not fit."""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

VALUE: Final = "value"
ERROR: Final = "error"
_SIMPLE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "variant": pa.struct(
        [pa.field(name, pa.binary(), nullable=False) for name in ("metadata", "value")]
    ),
}

Read = Callable[[bytes], Any]


def arrow_type(kind: DataType) -> pa.DataType:
    """Return how Arrow names a type of ours."""
    if isinstance(kind, StructType):
        return pa.struct([pa.field(one.name, arrow_type(one.dataType)) for one in kind.fields])
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType)))
    if isinstance(kind, MapType):
        return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return _SIMPLE[kind.simpleString()]


def decoded(bodies: pa.Array, read: Read, kind: DataType, what: str) -> pa.Array:
    """Return a struct of value and error for each body; both are null where there is no body."""
    arrow = arrow_type(kind)
    pairs = [_pair(body, read, what) for body in bodies.to_pylist()]
    try:
        values = pa.array([value for value, _ in pairs], type=arrow)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        pairs = [_fitting(pair, arrow) for pair in pairs]
        values = pa.array([value for value, _ in pairs], type=arrow)
    errors = pa.array([error for _, error in pairs], type=pa.string())
    return pa.StructArray.from_arrays([values, errors], names=[VALUE, ERROR])


def _pair(body: bytes | None, read: Read, what: str) -> tuple[Any, str | None]:
    if body is None:
        return None, None
    try:
        return read(body), None
    except Exception as error:  # any bytes may stand in a body, and libraries raise what they like
        return None, _words(f"the body is no {what} of this schema", error)


def _fitting(pair: tuple[Any, str | None], arrow: pa.DataType) -> tuple[Any, str | None]:
    """Leave out a value that Arrow, and so Spark, cannot hold: a year 20000."""
    try:
        pa.array([pair[0]], type=arrow)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        return None, _words("the value of the body does not fit into Spark's types", error)
    return pair


def _words(what: str, error: Exception) -> str:
    first = str(error).partition("\n")[0]
    return f"{what}: {type(error).__name__}" + (f" ({first})" if first else "")
