"""Protocol buffer bodies: a message of a descriptor set as a Spark type, and bytes as its value.

A descriptor set is what `protoc --include_imports --descriptor_set_out=FILE` writes.

Protobuf                                   | Spark
message                                    | struct; one that is not set is null
bool, float, double, string, bytes         | boolean, float, double, string, binary
int32, sint32, sfixed32; 64                | int; bigint
uint32, fixed32; 64                        | bigint; decimal(20, 0)
enum                                       | string: the name, or the number of one without
repeated, map                              | array, map

A field that knows whether it was set is null if it was not; others have their default, as everywhere in
protobuf. Messages that hold themselves are refused.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from orbitmq.errors import ConfigError


def kind(descriptors: bytes, name: str) -> StructType:
    """Return the Spark type of a message. ConfigError: there is none of this name, or it holds itself."""
    return _struct(_message(descriptors, name).DESCRIPTOR, ())


@cache
def decoder(descriptors: bytes, name: str) -> Callable[[bytes], Any]:
    """Return what reads a body of this message; it raises whatever is wrong with one."""
    message = _message(descriptors, name)
    return lambda body: _value(message.FromString(body))


def _message(descriptors: bytes, name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    try:
        for file in FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
        return GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        rule = "the descriptor set has no message of this name"
        raise ConfigError("schema", name, rule) from None
    except (DecodeError, TypeError):
        rule = "this is no whole descriptor set; protoc --include_imports --descriptor_set_out makes one"
        raise ConfigError("schema", name, rule) from None


def _simple(field: Any) -> DataType:
    kinds: dict[int, DataType] = {
        field.CPPTYPE_BOOL: BooleanType(),
        field.CPPTYPE_INT32: IntegerType(),
        field.CPPTYPE_INT64: LongType(),
        field.CPPTYPE_UINT32: LongType(),
        field.CPPTYPE_UINT64: DecimalType(20, 0),
        field.CPPTYPE_FLOAT: FloatType(),
        field.CPPTYPE_DOUBLE: DoubleType(),
        field.CPPTYPE_ENUM: StringType(),
        field.CPPTYPE_STRING: BinaryType() if field.type == field.TYPE_BYTES else StringType(),
    }
    return kinds[field.cpp_type]


def _is_map(field: Any) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _struct(message: Any, above: tuple[str, ...]) -> StructType:
    if message.full_name in above:
        rule = "the message holds itself, which has no counterpart in Spark"
        raise ConfigError("schema", message.full_name, rule)
    path = (*above, message.full_name)
    return StructType([StructField(field.name, _kind(field, path)) for field in message.fields])


def _kind(field: Any, above: tuple[str, ...]) -> DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return MapType(_kind(entry["key"], above), _kind(entry["value"], above))
    one = _struct(field.message_type, above) if field.message_type else _simple(field)
    return ArrayType(one) if field.is_repeated else one


def _value(message: Any) -> dict[str, Any]:
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        entry = field.message_type.fields_by_name["value"]
        return [(key, _one(entry, of_key)) for key, of_key in value.items()]
    if field.is_repeated:
        return [_one(field, one) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _one(field, value)


def _one(field: Any, value: Any) -> Any:
    if field.message_type:
        return _value(value)
    if field.enum_type:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    return value
