"""Which columns a table must have to become messages, and the columns that tasks make records of.

column          | type                             | without it
topic           | string                           | option `topic`
body            | binary, string                   | refused
tags            | string                           | no tag
keys            | array<string>, string            | no keys; a string has spaces between them
message_id      | string                           | none: readers show the offset id
properties      | map, struct, of anything         | no others; null and empty values are left out
queue_id        | a whole number                   | by `sharding_key`, else in turn
sharding_key    | string, a whole number           | as above
born_time       | timestamp, or milliseconds       | the time of the load
flag, reconsume_times | a whole number             | 0
sys_flag        | a whole number                   | only looked at: see `REFUSED_FLAGS`

These are the names of the message table (`spark.source.schemas`), so a table read from a store can be
loaded as it is: what a store gives by itself (offsets, sizes, hosts) is in `GIVEN` and passed over.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (Spark's own habit)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from orbitmq.errors import ConfigError
from orbitmq.message import NAME_SEPARATOR, PROPERTY_SEPARATOR, Property, SysFlag
from orbitmq.spark.jobs.load.arrow_columns import NO_NAME

GIVEN: Final = frozenset(
    (
        *("queue_offset", "log_offset", "size", "offset_id", "store_time", "store_host"),
        *("born_host", "prepared_offset", "body_crc", "body_length", "error", "key"),
    )
)
"""Columns of a message table that the load itself gives."""
REFUSED_FLAGS: Final = int(SysFlag.PREPARED | SysFlag.INNER_BATCH)
"""Half messages, rollbacks (both have this bit) and inner batches are no messages by themselves."""
PIECES: Final = "pieces"
"""How many properties a row has; below 0: one of them has no name."""

_TEXT: Final = (StringType,)
_WHOLE: Final = (IntegralType, StringType)  # a CSV file has nothing but strings
Kinds = Mapping[str, tuple[tuple[type[DataType], ...], str]]
"""Of each column: which types it may have, and how to say that."""
KINDS: Final[Kinds] = {
    "topic": (_TEXT, "a string"),
    "body": ((BinaryType, StringType), "binary or a string"),
    "tags": (_TEXT, "a string"),
    "keys": ((ArrayType, StringType), "an array of strings, or a string with spaces between keys"),
    "message_id": (_TEXT, "a string"),
    "properties": ((MapType, StructType), "a map or a struct"),
    "queue_id": (_WHOLE, "a whole number"),
    "sharding_key": (_WHOLE, "a string or a whole number"),
    "born_time": (
        (TimestampType, TimestampNTZType, IntegralType, StringType),
        "a timestamp, or milliseconds since 1970",
    ),
    "flag": (_WHOLE, "a whole number"),
    "reconsume_times": (_WHOLE, "a whole number"),
    "sys_flag": (_WHOLE, "a whole number"),
}
_OF_PROPERTIES: Final = {
    "keys": Property.KEYS,
    "message_id": Property.UNIQ_KEY,
    "tags": Property.TAGS,
}
_NUMBERS: Final = ("queue_id", "flag", "reconsume_times", "sys_flag")


def sorted_rows(frame: DataFrame, order_by: Sequence[str]) -> DataFrame:
    """Return the table sorted by these columns; one that no message has is gone after that."""
    missing = [name for name in order_by if name not in frame.columns]
    if missing:
        rule = f"the table has {', '.join(frame.columns)}"
        raise ConfigError("--order-by", ", ".join(missing), rule)
    strange = [name for name in order_by if name not in KINDS and name not in GIVEN]
    return frame.orderBy(*order_by).drop(*strange) if order_by else frame


def message_columns(frame: DataFrame, topic: str | None) -> DataFrame:
    """Return the columns that tasks make records of. ConfigError: the table cannot become messages."""
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    require_columns(kinds, topic=topic)
    made: dict[str, Column] = {
        "topic": F.lit(topic) if topic is not None else F.col("topic"),
        "body": F.col("body").cast("binary"),
        **{name: F.col(name).cast("int") for name in _NUMBERS if name in kinds},
    }
    if "sharding_key" in kinds:
        made["sharding_key"] = F.col("sharding_key").cast("string")
    if "born_time" in kinds:
        made["born_ms"] = _born_ms(F.col("born_time"), kinds["born_time"])
    pieces = _pieces(kinds)
    if pieces:
        made["properties"] = F.concat(*(text for text, _ in pieces)).cast("binary")
        made[PIECES] = _total(count for _, count in pieces)
    return frame.select(*(column.alias(name) for name, column in made.items()))


def require_columns(
    kinds: Mapping[str, DataType],
    *,
    known: Kinds = KINDS,
    given: frozenset[str] = GIVEN,
    topic: str | None,
    topic_option: str = "--topic",
) -> None:
    """Raise ConfigError unless messages can be made of such columns; those in `given` are passed over."""
    needed = ("body",) if topic is not None else ("topic", "body")
    for name in needed:
        if name not in kinds:
            rule = f"there is no column {name}; make one of the others, or give {topic_option}"
            raise ConfigError("columns", ", ".join(kinds), rule if name == "topic" else _no_body())
    strange = [name for name in kinds if name not in known and name not in given]
    if strange:
        rule = f"no message has such columns; they may be any of {', '.join(known)}"
        raise ConfigError("columns", ", ".join(strange), rule)
    for name, kind in kinds.items():
        allowed, words = known.get(name, ((DataType,), ""))
        if not isinstance(kind, allowed):
            raise ConfigError(f"column {name}", kind.simpleString(), f"must be {words}")


def _no_body() -> str:
    return "there is no column body; make one: to_json(struct(*)) AS body takes them all"


def _born_ms(column: Column, kind: DataType) -> Column:
    if isinstance(kind, IntegralType):
        return column.cast("bigint")
    return F.unix_millis(column.cast("timestamp"))


def _pieces(kinds: dict[str, DataType]) -> list[tuple[Column, Column]]:
    """Return the texts that make the property string, each with how many properties it holds."""
    named = {name: kinds[name] for name in _OF_PROPERTIES if name in kinds}
    pieces = []
    if "properties" in kinds:
        taken = [_OF_PROPERTIES[name] for name in named]
        pieces.append(_of_map(_as_map(F.col("properties"), kinds["properties"]), taken))
    for name, kind in named.items():
        column = F.col(name)
        text = F.array_join(column, " ") if isinstance(kind, ArrayType) else column
        pieces.append(_of_text(_OF_PROPERTIES[name], text))
    return pieces


def _as_map(column: Column, kind: DataType) -> Column:
    """Return properties as a map of strings; what JSON is read as is a struct."""
    if isinstance(kind, MapType):
        return column.cast("map<string,string>")
    assert isinstance(kind, StructType)
    names = F.array(*(F.lit(name) for name in kind.names))
    values = F.array(*(column.getField(name).cast("string") for name in kind.names))
    return F.map_from_arrays(names, values)


def _of_map(properties: Column, taken: Iterable[str]) -> tuple[Column, Column]:
    """Return the properties of a map; a column of its own (`taken`) counts more than what stands there."""
    others = list(taken)

    def wanted(name: Column, value: Column) -> Column:
        there = value.isNotNull() & (value != "")
        return there & ~name.isin(others) if others else there

    kept = F.map_filter(properties, wanted)
    pieces = F.transform(F.map_entries(kept), _piece_of_entry)
    count = F.when(F.map_contains_key(kept, ""), NO_NAME).otherwise(F.size(kept))
    nothing = properties.isNull()
    return (
        F.when(nothing, F.lit("")).otherwise(F.array_join(pieces, "")),
        F.when(nothing, F.lit(0)).otherwise(count),
    )


def _piece_of_entry(entry: Column) -> Column:
    name, value = entry.getField("key"), entry.getField("value")
    return F.concat(name, F.lit(NAME_SEPARATOR), value, F.lit(PROPERTY_SEPARATOR))


def _of_text(name: str, text: Column) -> tuple[Column, Column]:
    there = text.isNotNull() & (text != "")
    piece = F.concat(F.lit(name + NAME_SEPARATOR), text, F.lit(PROPERTY_SEPARATOR))
    return F.when(there, piece).otherwise(F.lit("")), F.when(there, F.lit(1)).otherwise(F.lit(0))


def _total(counts: Iterable[Column]) -> Column:
    """Return the sum, NO_NAME where a part of it is that."""
    first, *others = counts  # that of the map, if there is one, comes first
    total = first
    for count in others:
        total = total + count
    return F.when(first < 0, F.lit(NO_NAME)).otherwise(total)
