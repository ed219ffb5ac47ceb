"""Bodies as values: `decode` adds a column `value` that is made of each body by a schema.

JSON is decoded by Spark's own expressions, so nothing of it runs in Python. A body that does not fit is no
failure: its value is null, and `error` says why.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from orbitmq.errors import ConfigError
from orbitmq.spark.source.schemas import BODY, ERROR

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

VALUE: Final = "value"
VARIANT: Final = "variant"
SAMPLE: Final = 1_000
_CORRUPT: Final = "__corrupt"
_MADE: Final = "__made"
_STRICT: Final = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
"""Spark's parser takes more than JSON unless it is told not to."""
_SCHEMA_RULE: Final = "must be columns, as 'id bigint, name string', or a StructType, or 'variant'"

Place = str | tuple[str, str]
"""Which messages a schema is for: those of a topic, or of a topic with a tag."""


def decode(
    frame: "DataFrame",
    schema: "str | StructType | Mapping[Place, str | StructType] | None" = None,
    *,
    sample: int = SAMPLE,
    format: str = "json",  # noqa: A002  Spark's word for it
) -> "DataFrame":
    """Return a table of messages with a column `value`: what the bodies say, by a schema.

    `schema` is columns ("id bigint, name string", or a StructType), or "variant", or a table of those by
    topic or (topic, tag). Without one it is found in the first `sample` messages, which are read for it.
    With a table of schemas `value` has a field for each of its keys, `topic` or `topic:tag`; the other fields
    are null, and so is the value of a message that no key is for. A key with a tag comes first.

    The columns of the frame stay as they are, but for `error`: it also says why a body has no value.
    ConfigError: a schema or a frame that cannot work.
    """
    if format != "json":
        raise ConfigError("format", format, "must be json")
    body = _body_text(frame)
    entries = list(_entries(frame, _found(frame, body, sample) if schema is None else schema))
    made = frame
    for number, entry in enumerate(entries):
        made = made.withColumn(f"{_MADE}{number}", entry.made(body))
    values = [entry.value(number) for number, entry in enumerate(entries)]
    reasons = [entry.reason(number, body) for number, entry in enumerate(entries)]
    value = _by_name(entries, values) if isinstance(schema, Mapping) else values[0]
    return made.select(*_columns(frame, value, reasons))


def _columns(frame: "DataFrame", value: "Column", reasons: list["Column"]) -> list["Column"]:
    from pyspark.sql.functions import coalesce, col

    kept = [col(f"`{name}`") for name in frame.columns if name not in (VALUE, ERROR)]
    known = [col(ERROR)] if ERROR in frame.columns else []
    return [*kept, value.alias(VALUE), coalesce(*known, *reasons).alias(ERROR)]


def _body_text(frame: "DataFrame") -> "Column":
    """Return the body as a string; null: it is no UTF-8."""
    from pyspark.sql.functions import col, try_validate_utf8

    kind = frame.schema[BODY].dataType.simpleString() if BODY in frame.columns else "missing"
    if kind not in ("binary", "string"):
        rule = "decode needs a column body of type binary or string"
        raise ConfigError("frame", f"{BODY}: {kind}", rule)
    return try_validate_utf8(col(BODY).cast("string")) if kind == "binary" else col(BODY)


def _by_name(entries: list["_Entry"], values: list["Column"]) -> "Column":
    from pyspark.sql.functions import struct, when

    fields = [value.alias(entry.name) for entry, value in zip(entries, values, strict=True)]
    return when(reduce(or_, [value.isNotNull() for value in values]), struct(*fields))


@dataclass(frozen=True, slots=True)
class _Entry:
    """A schema, and the messages that it is for."""

    schema: "StructType | None"  # None: a variant
    name: str = VALUE
    condition: "Column | None" = None

    def made(self, body: "Column") -> "Column":
        """Return what Spark's parser makes of the bodies: the step that costs, done once."""
        from pyspark.sql.functions import from_json, try_parse_json, when

        text = body if self.condition is None else when(self.condition, body)
        if self.schema is None:
            return try_parse_json(text)
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, **_STRICT}
        return from_json(text, _with_corrupt(self.schema), options)

    def value(self, number: int) -> "Column":
        from pyspark.sql.functions import col, when

        made = col(f"{_MADE}{number}")
        if self.schema is None:
            return made
        # Spark keeps the fields that it could read; half a value is none.
        return when(made[_CORRUPT].isNull(), made.dropFields(_CORRUPT))

    def reason(self, number: int, body: "Column") -> "Column":
        """Return why there is no value; null: there is one, or no body."""
        from pyspark.sql.functions import col, lit, try_parse_json, when

        made = col(f"{_MADE}{number}")
        fault = lit("the body is no JSON" if self.schema is None else "the body is empty")
        nothing = when(body.isNull(), lit("the body is no UTF-8")).otherwise(fault)
        found = when(made.isNull(), nothing)
        if self.schema is not None:
            misfit = lit(f"the body does not fit the schema {self.schema.simpleString()}")
            no_json = when(try_parse_json(body).isNull(), lit("the body is no JSON"))
            found = found.when(made[_CORRUPT].isNotNull(), no_json.otherwise(misfit))
        concerned = lit(True) if self.condition is None else self.condition
        return when(concerned & col(BODY).isNotNull(), found)


def _with_corrupt(schema: "StructType") -> "StructType":
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([*schema.fields, StructField(_CORRUPT, StringType())])


def _entries(
    frame: "DataFrame", schema: "str | StructType | Mapping[Place, str | StructType]"
) -> Iterator[_Entry]:
    if not isinstance(schema, Mapping):
        yield _Entry(_checked(schema))
        return
    if not schema:
        raise ConfigError("schema", schema, "names no topic")
    for place, of_place in schema.items():
        yield _Entry(_checked(of_place), _name(place), _condition(frame, place, schema.keys()))


def _name(place: Place) -> str:
    return place if isinstance(place, str) else ":".join(place)


def _condition(frame: "DataFrame", place: Place, places: Iterable[Place]) -> "Column":
    from pyspark.sql.functions import coalesce, col, lit

    needed = {"topic"} if isinstance(place, str) else {"topic", "tags"}
    if missing := needed - set(frame.columns):
        rule = f"schemas by topic or tag need the column {min(missing)}"
        raise ConfigError("frame", ", ".join(frame.columns), rule)
    if not isinstance(place, str):
        topic, tag = place
        return (col("topic") == topic) & (col("tags") == tag)
    special = [one[1] for one in places if not isinstance(one, str) and one[0] == place]
    if not special:
        return col("topic") == place
    return (col("topic") == place) & ~coalesce(col("tags").isin(special), lit(False))


def _checked(schema: "str | StructType") -> "StructType | None":
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    if isinstance(schema, StructType):
        return schema
    if not isinstance(schema, str):
        raise ConfigError("schema", schema, _SCHEMA_RULE)
    if schema.strip().lower() == VARIANT:
        return None
    try:
        read = StructType.fromDDL(schema)
    except PySparkException:
        read = None
    if not isinstance(read, StructType):
        raise ConfigError("schema", schema, _SCHEMA_RULE)
    return read


def _found(frame: "DataFrame", body: "Column", sample: int) -> "StructType":
    """Return the schema that fits the first messages."""
    if frame.isStreaming:
        raise ConfigError("schema", None, "a stream has no sample to read; give its schema")
    if sample < 1:
        raise ConfigError("sample", sample, "must be 1 or more")
    texts = frame.select(body.alias(VALUE)).where(f"{VALUE} is not null").limit(sample)
    reader = frame.sparkSession.read.options(mode="DROPMALFORMED", **_STRICT)
    schema = reader.json(texts).schema
    if not schema.fields:
        rule = "none of these messages has a body that is a JSON object; give a schema"
        raise ConfigError("sample", sample, rule)
    return schema
