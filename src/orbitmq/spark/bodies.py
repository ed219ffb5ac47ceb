"""Bodies as values: `decode` adds a column `value` that is made of each body by a schema.

JSON is decoded by Spark's own expressions, so nothing of it runs in Python; Avro and protobuf are decoded in
Python workers, in Arrow batches (`decoders`). A body that does not fit is no
failure: its value is null, and `error` says why.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from orbitmq.errors import ConfigError
from orbitmq.spark.source.schemas import BODY, ERROR

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from orbitmq.spark.decoders.worker import Read

VALUE: Final = "value"
VARIANT: Final = "variant"
SAMPLE: Final = 1_000
_CORRUPT: Final = "__corrupt"
_MADE: Final = "__made"
_STRICT: Final = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
"""Spark's parser takes more than JSON unless it is told not to."""
_SCHEMA_RULE: Final = "must be columns, as 'id bigint, name string', or a StructType, or 'variant'"

_FORMATS: Final = ("json", "avro", "protobuf")

Schema = Any
"""Of JSON columns as text, a StructType or "variant"; of Avro its text; of protobuf (descriptors, name)."""
Place = str | tuple[str, str]
"""Which messages a schema is for: those of a topic, or of a topic with a tag."""


def decode(
    frame: "DataFrame",
    schema: "Schema | Mapping[Place, Schema] | None" = None,
    *,
    sample: int = SAMPLE,
    format: str = "json",  # noqa: A002  Spark's word for it
) -> "DataFrame":
    """Return a table of messages with a column `value`: what the bodies say, by a schema.

    `schema` is columns ("id bigint, name string", or a StructType), or "variant"; for `format="avro"` the
    JSON text of a record; for "protobuf" a pair of a descriptor set (bytes, or its path) and the name of a
    message; or a table of those by topic or (topic, tag). Without one, the schema of JSON is found in the
    first `sample` messages, which are read for it.
    With a table of schemas `value` has a field for each of its keys, `topic` or `topic:tag`; the other fields
    are null, and so is the value of a message that no key is for. A key with a tag comes first.

    The columns of the frame stay as they are, but for `error`: it also says why a body has no value.
    ConfigError: a schema or a frame that cannot work.
    """
    if format not in _FORMATS:
        raise ConfigError("format", format, f"must be one of {', '.join(_FORMATS)}")
    body = _body(frame, format)
    if schema is None:
        schema = _found(frame, body, sample, format)
    entries = list(_entries(frame, schema, format))
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


def _body(frame: "DataFrame", form: str) -> "Column":
    """Return the body as a decoder wants it: as a string for JSON (null: it is no UTF-8), else as bytes."""
    from pyspark.sql.functions import col, try_validate_utf8

    kind = frame.schema[BODY].dataType.simpleString() if BODY in frame.columns else "missing"
    wanted = ("binary", "string") if form == "json" else ("binary",)
    if kind not in wanted:
        rule = f"decode needs a column body of type {' or '.join(wanted)}"
        raise ConfigError("frame", f"{BODY}: {kind}", rule)
    is_text = kind == "string" or form != "json"
    return col(BODY) if is_text else try_validate_utf8(col(BODY).cast("string"))


def _by_name(entries: list["_Entry"], values: list["Column"]) -> "Column":
    from pyspark.sql.functions import struct, when

    fields = [value.alias(entry.name) for entry, value in zip(entries, values, strict=True)]
    return when(reduce(or_, [value.isNotNull() for value in values]), struct(*fields))


class _Decoder(Protocol):
    """How bodies of one schema become values, in columns of Spark."""

    def made(self, body: "Column") -> "Column":
        """Return the step that costs; it is done once."""

    def value(self, made: "Column") -> "Column": ...

    def reason(self, made: "Column", body: "Column") -> "Column":
        """Return why there is no value of a body; null: there is one."""


@dataclass(frozen=True, slots=True)
class _Json:
    """Bodies decoded by Spark's own parser."""

    schema: "StructType | None"  # None: a variant

    def made(self, body: "Column") -> "Column":
        from pyspark.sql.functions import from_json, try_parse_json

        if self.schema is None:
            return try_parse_json(body)
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, **_STRICT}
        return from_json(body, _with_corrupt(self.schema), options)

    def value(self, made: "Column") -> "Column":
        from pyspark.sql.functions import when

        if self.schema is None:
            return made
        # Spark keeps the fields that it could read; half a value is none.
        return when(made[_CORRUPT].isNull(), made.dropFields(_CORRUPT))

    def reason(self, made: "Column", body: "Column") -> "Column":
        from pyspark.sql.functions import lit, try_parse_json, when

        fault = lit("the body is no JSON" if self.schema is None else "the body is empty")
        nothing = when(body.isNull(), lit("the body is no UTF-8")).otherwise(fault)
        found = when(made.isNull(), nothing)
        if self.schema is None:
            return found
        misfit = lit(f"the body does not fit the schema {self.schema.simpleString()}")
        no_json = when(try_parse_json(body).isNull(), lit("the body is no JSON"))
        return found.when(made[_CORRUPT].isNotNull(), no_json.otherwise(misfit))


@dataclass(frozen=True, slots=True)
class _InWorkers:
    """Bodies decoded by Python, a batch at a time."""

    kind: "StructType"
    make: Callable[[], "Read"]  # travels to workers, where it makes what reads a body
    what: str

    def made(self, body: "Column") -> "Column":
        from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]
        from pyspark.sql.types import StringType, StructField, StructType

        kind, make, what = self.kind, self.make, self.what

        def decoded_batch(bodies):  # type: ignore[no-untyped-def]  # Spark would read what stands here
            from orbitmq.spark.decoders.worker import decoded

            return decoded(bodies, make(), kind, what)

        pair = StructType([StructField(VALUE, kind), StructField(ERROR, StringType())])
        made: Column = arrow_udf(decoded_batch, pair)(body)
        return made

    def value(self, made: "Column") -> "Column":
        return made[VALUE]

    def reason(self, made: "Column", _body: "Column") -> "Column":
        return made[ERROR]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A decoder, and the messages that it is for."""

    decoder: _Decoder
    name: str = VALUE
    condition: "Column | None" = None

    def made(self, body: "Column") -> "Column":
        from pyspark.sql.functions import when

        return self.decoder.made(body if self.condition is None else when(self.condition, body))

    def value(self, number: int) -> "Column":
        from pyspark.sql.functions import col

        return self.decoder.value(col(f"{_MADE}{number}"))

    def reason(self, number: int, body: "Column") -> "Column":
        """Return why there is no value; null: there is one, or no body."""
        from pyspark.sql.functions import col, lit, when

        concerned = lit(True) if self.condition is None else self.condition
        found = self.decoder.reason(col(f"{_MADE}{number}"), body)
        return when(concerned & col(BODY).isNotNull(), found)


def _with_corrupt(schema: "StructType") -> "StructType":
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([*schema.fields, StructField(_CORRUPT, StringType())])


def _entries(
    frame: "DataFrame", schema: "Schema | Mapping[Place, Schema]", form: str
) -> Iterator[_Entry]:
    if not isinstance(schema, Mapping):
        yield _Entry(_decoder(schema, form))
        return
    if not schema:
        raise ConfigError("schema", schema, "names no topic")
    for place, of_place in schema.items():
        condition = _condition(frame, place, schema.keys())
        yield _Entry(_decoder(of_place, form), _name(place), condition)


def _decoder(schema: Schema, form: str) -> _Decoder:
    try:
        match form:
            case "avro":
                return _avro(schema)
            case "protobuf":
                return _protobuf(schema)
            case _:
                return _Json(_checked(schema))
    except ModuleNotFoundError as error:
        rule = f"the package {error.name} is missing; pip install 'orbitmq[bodies]'"
        raise ConfigError("format", form, rule) from None


def _avro(schema: Schema) -> _Decoder:
    from orbitmq.spark.decoders import avro

    if not isinstance(schema, str):
        raise ConfigError("schema", schema, "must be the JSON text of an Avro schema")
    return _InWorkers(avro.kind(schema), partial(avro.decoder, schema), "Avro")


def _protobuf(schema: Schema) -> _Decoder:
    from orbitmq.spark.decoders import protobuf

    match schema:
        case (bytes() as descriptors, str() as name):
            pass
        case (str() | Path() as path, str() as name):
            descriptors = _file(Path(path))
        case _:
            rule = "must be a pair: a descriptor set (bytes or its path), the name of a message"
            raise ConfigError("schema", schema, rule)
    make = partial(protobuf.decoder, descriptors, name)
    return _InWorkers(protobuf.kind(descriptors, name), make, f"protobuf message {name}")


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError("schema", str(path), f"cannot be read: {error.strerror}") from None


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


def _checked(schema: Schema) -> "StructType | None":
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


def _found(frame: "DataFrame", body: "Column", sample: int, form: str) -> "StructType":
    """Return the schema that fits the first messages."""
    if form != "json":
        raise ConfigError("schema", None, f"give the schema; {form} does not tell its own")
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
