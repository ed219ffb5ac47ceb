"""Bodies that are JSON as columns: the fields of each topic, from a schema file or from its messages.

    {"Orders": {"id": "bigint", "paid": "boolean", "items": [{"sku": "string", "count": "int"}]},
     "Events": "variant",
     "*":      {"id": "string"}}

`*` is for topics that are not named. A field may be missing or null in a body, and a body may have more
fields; a field of another type is no fit. A table keeps the fields that it was made with. "variant" takes any
JSON as it is: each value brings its own names and types.
"""

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import pyarrow as pa
from pyspark.sql import types

from orbitmq.errors import ConfigError
from orbitmq.spark.decoders.worker import ERROR, VALUE, Read, arrow_type, decoded
from orbitmq.spark.variant import variant_of

Fields = Mapping[str, Any] | Literal["variant"]
"""Names, and for each its type: a word, a list of one type, or fields again; or no fields, but any JSON."""

VARIANT: Final = "variant"
OTHERS: Final = "*"
_INT: Final = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_LONG: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_TIME: Final = Annotated[datetime, msgspec.Meta(tz=True)]
_TYPES: Final[dict[str, tuple[Any, types.DataType]]] = {
    "boolean": (bool, types.BooleanType()),
    "int": (_INT, types.IntegerType()),
    "bigint": (_LONG, types.LongType()),
    "double": (float, types.DoubleType()),
    "string": (str, types.StringType()),
    "date": (date, types.DateType()),
    "timestamp": (_TIME, types.TimestampType()),
}
_FOUND: Final = ((bool, "boolean"), (int, "bigint"), (float, "double"), (str, "string"))
_DEPTH_MAX: Final = 20
_JSON: Final = msgspec.json.Decoder(type=msgspec.Raw)  # looks at every character, and makes nothing


def read_schema(path: Path) -> Mapping[str, Fields]:
    """Return the fields of each topic from a file. ConfigError: it does not tell them."""
    try:
        found = msgspec.json.decode(
            path.read_bytes(), type=dict[str, dict[str, Any] | Literal["variant"]]
        )
    except OSError as error:
        raise ConfigError("schema", str(path), f"cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        rule = f'must be JSON as {{topic: {{field: type}}}} or {{topic: "variant"}}: {error}'
        raise ConfigError("schema", str(path), rule) from None
    for fields in found.values():
        spark_type(fields)
    return found


def spark_type(kind: Any, depth: int = 0) -> types.DataType:
    """Return a type as Spark names it. ConfigError: there is no such type."""
    match kind:
        case "variant" if not depth:
            return types.VariantType()
        case dict() if kind and depth < _DEPTH_MAX:
            inner = {name: spark_type(of, depth + 1) for name, of in kind.items()}
            return types.StructType([types.StructField(*one) for one in inner.items()])
        case [element] if depth < _DEPTH_MAX:
            return types.ArrayType(spark_type(element, depth + 1))
        case str() if kind in _TYPES:
            return _TYPES[kind][1]
    words = ", ".join(_TYPES)
    raise ConfigError("schema", kind, f"must be one of {words}, [type] or {{field: type}}")


def value_type(fields: Fields) -> pa.DataType:
    """Return the type of the column `value`."""
    return arrow_type(spark_type(fields))


def read_values(bodies: pa.Array, fields: Fields) -> tuple[pa.Array, pa.Array]:
    """Return the value of each body, and the reason why it has none; null where it has."""
    pairs = decoded(bodies, _reader(fields), spark_type(fields), "JSON")
    return pairs.field(VALUE), pairs.field(ERROR)


def _reader(fields: Fields) -> Read:
    if fields == VARIANT:
        return _variant
    decoder = msgspec.json.Decoder(_python_type(fields))
    plain = partial(msgspec.to_builtins, builtin_types=(date, datetime))
    return lambda body: plain(decoder.decode(body))


def _variant(body: bytes) -> dict[str, bytes]:
    """Return a body as a variant. MsgspecError, ValueError: it cannot be one."""
    _JSON.decode(body)  # stricter than Python's json: no NaN
    value, metadata = variant_of(body.decode())
    return {"metadata": metadata, "value": value}


def _python_type(kind: Any) -> Any:
    if isinstance(kind, list):
        return list[_python_type(kind[0]) | None]  # type: ignore[misc]
    if isinstance(kind, str):
        return _TYPES[kind][0]
    # Names of fields may be any text; attributes of a class may not.
    names = {f"f{number}": name for number, name in enumerate(kind)}
    given = [(own, _python_type(kind[name]) | None, None) for own, name in names.items()]
    return msgspec.defstruct("Value", given, rename=names)


def chosen(held: Mapping[str, Fields], asked: Mapping[str, Fields]) -> dict[str, Fields]:
    """Return the fields of tables that are there and of those to come. ConfigError: one shall change."""
    for topic, fields in asked.items():
        if topic != OTHERS and held.get(topic, fields) != fields:
            rule = "its table has other fields, and keeps them; export to another directory"
            raise ConfigError("schema", topic, rule)
    return {**asked, **held}


# --- fields that messages tell ---


def found_fields(bodies: Iterable[bytes]) -> Mapping[str, Any]:
    """Return the fields that these bodies have; none if none of them is an object of JSON."""
    fields: Mapping[str, Any] = {}
    for body in bodies:
        try:
            value = msgspec.json.decode(body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            continue
        if isinstance(value, dict):
            fields = merged(fields, _found_type(value))
    return fields


def _found_type(value: Any, depth: int = 0) -> Any:
    """Return the type of a value; None: it does not tell one."""
    if isinstance(value, dict) and depth < _DEPTH_MAX:
        types_ = {name: _found_type(of, depth + 1) for name, of in value.items()}
        return {name: kind for name, kind in types_.items() if kind} or None
    if isinstance(value, list) and depth < _DEPTH_MAX:
        element = None
        for one in value:
            element = _wider(element, _found_type(one, depth + 1))
        return [element] if element else None
    return next((word for kind, word in _FOUND if isinstance(value, kind)), None)


def merged(fields: Mapping[str, Any], more: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the fields of both; of two types that do not go together the first stays."""
    made = dict(fields)
    for name, kind in (more or {}).items():
        made[name] = _wider(made.get(name), kind)
    return made


def _wider(kind: Any, other: Any) -> Any:
    match kind, other:
        case (None, _):
            return other
        case (dict(), dict()):
            return merged(kind, other)
        case ([inner], [outer]):
            return [_wider(inner, outer)]
        case ("bigint", "double"):
            return other
    return kind
