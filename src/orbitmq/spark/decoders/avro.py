"""Avro bodies: a record's schema as a Spark type, and bytes as its value.

Avro                          | Spark
record                        | struct
boolean, int, long            | boolean, int, bigint
float, double                 | float, double
string, enum, uuid            | string
bytes, fixed                  | binary
decimal                       | decimal
date                          | date
timestamp-millis, -micros     | timestamp; timestamp_ntz for the local ones
array, map                    | array, map
union of null and one other   | that one; null is null in every column

Other unions, and types that hold themselves, have no counterpart and are refused. Other logical types are
shown as the type that they are made of.
"""

import io
import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from orbitmq.errors import ConfigError

CONFLUENT_BYTES: Final = 5
"""A zero and the number of a schema in a registry, which many serializers put in front."""
_SIMPLE: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
}
_LOGICAL: Final[dict[str, DataType]] = {
    "date": DateType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
}


def kind(schema: str) -> StructType:
    """Return the Spark type of a record. ConfigError: it is no record, or has no counterpart."""
    found = _Reading(schema).kind(_parsed(schema))
    if not isinstance(found, StructType):
        raise ConfigError("schema", schema, "must be a record of Avro")
    return found


@cache
def decoder(schema: str) -> Callable[[bytes], Any]:
    """Return what reads a body of this schema; it raises whatever is wrong with one."""
    from fastavro import schemaless_reader

    parsed = _parsed(schema)

    def whole(body: bytes) -> Any:
        source = io.BytesIO(body)
        value = schemaless_reader(source, parsed, None)
        if left := len(body) - source.tell():
            raise ValueError(f"{left} bytes are left behind the record")
        return value

    def read(body: bytes) -> Any:
        if body[:1] == b"\0" and len(body) >= CONFLUENT_BYTES:
            # A record may begin with a zero of its own.
            with suppress(Exception):
                return whole(body[CONFLUENT_BYTES:])
        return whole(body)

    return read


def _parsed(schema: str) -> Any:
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        return parse_schema(_shown(json.loads(schema)))
    except (ValueError, KeyError, TypeError, SchemaParseException, UnknownType) as error:
        rule = f"is no schema of Avro ({type(error).__name__}: {error}); give its JSON text"
        raise ConfigError("schema", schema, rule) from None


def _shown(schema: Any) -> Any:
    """Leave out logical types that are shown as what they are made of."""
    if isinstance(schema, list):
        return [_shown(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    known = {*_LOGICAL, "decimal", None}
    hidden = {"logicalType"} if schema.get("logicalType") not in known else set()
    return {
        name: _shown(value) if isinstance(value, dict | list) else value
        for name, value in schema.items()
        if name not in hidden
    }


class _Reading:
    """Reads one schema; knows the names that it gave to types."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._named: dict[str, DataType | None] = {}  # None: that is being read

    def kind(self, schema: Any) -> DataType:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return self._simple(schema)
        name = (
            schema.get("name") if schema["type"] in ("record", "enum", "fixed", "error") else None
        )
        if name:
            self._named[name] = None
        found = self._described(schema)
        if name:
            self._named[name] = found
        return found

    def _described(self, schema: dict[str, Any]) -> DataType:
        if schema.get("logicalType") == "decimal":
            return DecimalType(schema["precision"], schema.get("scale", 0))
        if schema.get("logicalType") in _LOGICAL:
            return _LOGICAL[schema["logicalType"]]
        match schema["type"]:
            case "record" | "error":
                fields = [(one["name"], self.kind(one["type"])) for one in schema["fields"]]
                return StructType([StructField(name, kind) for name, kind in fields])
            case "array":
                return ArrayType(self.kind(schema["items"]))
            case "map":
                return MapType(StringType(), self.kind(schema["values"]))
            case str() as name:
                return self._simple(name)
            case other:
                return self.kind(other)

    def _simple(self, name: str) -> DataType:
        if name in _SIMPLE:
            return _SIMPLE[name]
        found = self._named.get(name)
        if found is None:
            raise self._refused(f"the type {name}, which holds itself or is null alone,")
        return found

    def _union(self, kinds: list[Any]) -> DataType:
        others = [one for one in kinds if one != "null"]
        if len(others) != 1:
            raise self._refused("a union of several types")
        return self.kind(others[0])

    def _refused(self, what: str) -> ConfigError:
        return ConfigError("schema", self._text, f"{what} has no counterpart in Spark")
