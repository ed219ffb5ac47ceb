"""Bodies as text, as JSON, as values by a schema; and words for those that are something else."""

import io
import json
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructType

from log_builder import LogBuilder, write_log
from orbitmq.errors import ConfigError
from orbitmq.message import SysFlag
from orbitmq.spark import decode
from orbitmq.spark.decoders import avro, protobuf
from orbitmq.spark.decoders.worker import decoded
from orbitmq.spark.source.body_text import as_variant
from orbitmq.spark.source.metrics import read_metrics
from orbitmq.spark.source.schemas import table_schema
from orbitmq.spark.source.source import OrbitmqSource
from orbitmq.units import MiB
from spark.reading_world import rows_of, table
from spark.stream_world import WAIT_S, Batches

pytestmark = pytest.mark.feature("P3.options")

LONG = json.dumps({"id": 7, "name": "n" * 500}).encode()
BODIES: list[tuple[str, str, bytes]] = [
    ("Orders", "paid", b'{"id": 1, "name": "a"}'),
    ("Orders", "", b'{"name": "\xc3\xa9"}'),
    ("Orders", "paid", b'{"id": "one"}'),
    ("Orders", "new", b"\xff\xfe"),
    ("Orders", "new", b""),
    ("Orders", "", b'{"id": 1'),
    ("Orders", "", b'[{"id": 1}]'),
    ("Stock", "", b'{"id": 5, "count": 2.5}'),
    ("Stock", "", b'{"id": 5} {"id": 6}'),
    ("Stock", "", b"plain words \xe2\x82\xac"),
    ("Stock", "paid", b"{'id': 1}"),
    ("Other", "", b'{"id": 9}'),
    ("Other", "", b'{"id": NaN}'),
    ("Orders", "paid", LONG),
]
COMPRESSED = len(BODIES) - 1


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = LogBuilder()
    for number, (topic, tag, body) in enumerate(BODIES):
        packed = number == COMPRESSED
        builder.append(
            topic,
            body=zlib.compress(body) if packed else body,
            sys_flag=SysFlag.COMPRESSED.value if packed else 0,
            **({"TAGS": tag} if tag else {}),
        )
    return write_log(builder, tmp_path_factory.mktemp("bodies") / "store")


def _text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _refuse(word: str) -> None:
    raise ValueError(word)


def _json(body: bytes) -> str | None:
    text = _text(body)
    try:
        json.loads(text or "", parse_constant=_refuse)
    except ValueError:
        return None
    return text


def _expected(form: str) -> list[str | None]:
    return [{"text": _text, "json": _json}[form](body) for _, _, body in BODIES]


def _in_order(frame: DataFrame, *columns: str) -> list[Any]:
    rows = frame.select("log_offset", *columns).collect()
    return [row.asDict(recursive=True) for row in sorted(rows)]


def _load(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("orbitmq").options(**options).load(str(path))


@pytest.mark.spark
@pytest.mark.parametrize("reader", ["auto", "rows"])
def test_both_readers_show_bodies_as_text_and_as_json(
    interpreted: SparkSession, store: Path, reader: str
) -> None:
    frames = {
        form: _load(interpreted, store, bodyAs=form, reader=reader) for form in ("text", "json")
    }
    found = {form: _in_order(frame, "body", "error") for form, frame in frames.items()}

    for form, rows in found.items():
        assert dict(frames[form].dtypes)["body"] == "string"
        assert [row["body"] for row in rows] == _expected(form)
        assert all((row["body"] is None) == (row["error"] is not None) for row in rows)
        assert rows[3]["error"] == "the body is no UTF-8 (byte 0)"
    assert found["json"][8]["error"] == "the body is no JSON: trailing characters (byte 11)"


NUMBERS = [
    *("0", "-1", "127", "128", "-128", "-129", "32768", "-32769", "2147483648", "-2147483649"),
    *("9223372036854775807", "-9223372036854775809", "1" * 38, "1" * 39, "9" * 400, "-1e400"),
    *("1.0", "-0.0", "0.000", "123456789.5", "0.1234567891", "12345678.9", "1234567890.12345678"),
    *("1" * 20 + "." + "1" * 18, "1" * 20 + "." + "1" * 19, "0." + "0" * 37 + "1", "1e5", "2.5E-7"),
]
FIELDS = {f"field-{number}": number for number in range(300)}
VARIANTS = [
    *NUMBERS,
    *("true", "false", "null", '""', "{}", "[]", "[[], {}]", '"\\u20ac \\ud83d\\ude00"'),
    *(json.dumps("x" * length) for length in (63, 64, 70_000)),
    *(json.dumps(value) for value in (list(range(300)), FIELDS, {"b": FIELDS, "a": [FIELDS]})),
    # Java sorts the second name before the third, Python behind it.
    '{"a": {"b": 1}, "\U0001f600": 2, "\uff5e": 3, "b": [{"a": null}, "x"]}',
    json.dumps({"long": ["x" * 70_000, 1], "more": {"b": 2.5}}),
]
NO_VARIANTS = {
    '{"a": 1, "b": 2, "a": 3}': "the field 'a' is there twice",
    "[" * 600 + "]" * 600: "it is nested too deeply",
    '{"a": NaN}': "the body is no JSON: invalid character (byte 6)",
    "1" * 5_000: "a number has thousands of digits",
    r'{"a": "\ud800 is half of a character"}': "the body is no JSON: ",
}


@pytest.mark.spark
@pytest.mark.parametrize("reader", ["auto", "rows"])
def test_both_readers_show_the_variants_that_spark_makes(
    interpreted: SparkSession, tmp_path: Path, reader: str
) -> None:
    builder = LogBuilder(segment_bytes=MiB)
    for text in (*VARIANTS, *NO_VARIANTS):
        builder.append("Json", body=text.encode())
    store = write_log(builder, tmp_path / "store")
    frame = _load(interpreted, store, bodyAs="variant", reader=reader)
    texts = _load(interpreted, store, reader=reader).selectExpr(
        "log_offset", "try_parse_json(string(body)) as body"
    )

    found, expected = _in_order(frame, "body", "error"), _in_order(texts, "body")

    assert dict(frame.dtypes)["body"] == "variant"
    for text, row, other in zip(VARIANTS, found, expected, strict=False):
        assert (row["body"].value, row["error"]) == (other["body"].value, None), text[:50]
        assert row["body"].metadata == other["body"].metadata
    for row, words in zip(found[len(VARIANTS) :], NO_VARIANTS.values(), strict=True):
        assert row["body"] is None
        assert words in row["error"]


def test_a_body_that_is_longer_than_a_variant_has_none() -> None:
    bodies = [json.dumps("x" * length).encode() for length in (2**24 - 6, 2**24 - 5)]

    variants, errors = as_variant(pa.array(bodies, type=pa.binary()))

    assert [variants[0].is_valid, variants[1].is_valid] == [True, False]
    assert errors.to_pylist()[0] is None
    assert "longer than 16777215 bytes" in errors.to_pylist()[1]


def _columns(*names: str) -> StructType:
    whole = table_schema(False, "text")
    return StructType([whole[name] for name in names])


def test_what_is_wrong_with_a_body_does_not_depend_on_the_other_columns(store: Path) -> None:
    whole = rows_of(table(store, _columns("body", "error"), bodyAs="json"))
    alone = rows_of(table(store, _columns("error"), bodyAs="json"))

    assert [row["body"] for row in whole] == _expected("json")
    assert [row["error"] for row in alone] == [row["error"] for row in whole]


def test_no_body_is_read_where_neither_body_nor_error_is_wanted(
    store: Path, tmp_path: Path
) -> None:
    read = {}
    for name in ("topic", "error", "body"):
        figures = tmp_path / name
        rows_of(table(store, _columns(name), bodyAs="text", metricsPath=figures))
        read[name] = read_metrics(figures).log_bytes

    assert read["topic"] < read["error"] == read["body"]


def test_a_stream_has_bodies_as_text_too(store: Path) -> None:
    source = OrbitmqSource(options={"path": str(store), "bodyAs": "text"})
    found = Batches(source.streamReader(source.schema())).all()

    assert [row["body"] for row in found] == _expected("text")


def test_includebody_false_leaves_text_and_error_empty(store: Path) -> None:
    names = _columns("body", "error")
    found = rows_of(table(store, names, bodyAs="json", includeBody="false"))

    assert found == [{"body": None, "error": None}] * len(BODIES)


@pytest.mark.parametrize(
    ("options", "schema", "words"),
    [
        ({"bodyAs": "variant"}, "body string", "has the type variant; the option bodyAs"),
        ({"bodyAs": "xml"}, "body string", "must be binary, text, json or variant"),
        ({"bodyAs": "text", "decompress": "false"}, "body string", "leave decompress=false out"),
        ({}, "body string", "has the type binary; the option bodyAs can change it"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    store: Path, options: dict[str, str], schema: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        table(store, _columns("body"), **options)


SCHEMA = "id int, name string"
NO_UTF8, EMPTY, NO_JSON = "the body is no UTF-8", "the body is empty", "the body is no JSON"
MISFIT = "the body does not fit the schema struct<id:int,name:string>"
DECODED: list[tuple[tuple[Any, Any] | None, str | None]] = [
    ((1, "a"), None),
    ((None, "é"), None),
    (None, MISFIT),
    (None, NO_UTF8),
    (None, EMPTY),
    (None, NO_JSON),
    (None, MISFIT),
    ((5, None), None),
    ((5, None), None),  # Spark does not look at what is behind a value
    (None, NO_JSON),
    (None, NO_JSON),
    ((9, None), None),
    (None, NO_JSON),
    ((7, "n" * 500), None),
]


@pytest.mark.spark
def test_values_are_decoded_by_a_schema(interpreted: SparkSession, store: Path) -> None:
    found = decode(_load(interpreted, store), SCHEMA)
    rows = _in_order(found, "body", "value", "error")

    values = [row["value"] and (row["value"]["id"], row["value"]["name"]) for row in rows]
    assert list(zip(values, [row["error"] for row in rows], strict=True)) == DECODED
    assert [row["body"] for row in rows] == [body for _, _, body in BODIES]
    assert found.columns == [*_load(interpreted, store).columns[:-1], "value", "error"]


@pytest.mark.spark
def test_what_the_source_said_of_a_body_stays(interpreted: SparkSession, store: Path) -> None:
    rows = _in_order(
        decode(_load(interpreted, store, bodyAs="json"), SCHEMA), "body", "value", "error"
    )

    assert [row["body"] for row in rows] == _expected("json")
    assert rows[8]["value"] is None
    assert rows[8]["error"] == "the body is no JSON: trailing characters (byte 11)"
    assert rows[2]["error"] == MISFIT
    assert rows[0]["value"] == {"id": 1, "name": "a"}


@pytest.mark.spark
def test_schemas_by_topic_and_tag_are_fields_of_the_value(
    interpreted: SparkSession, store: Path
) -> None:
    schemas = {"Orders": "name string", ("Orders", "paid"): "id int", "Stock": "variant"}

    rows = _in_order(decode(_load(interpreted, store), schemas), "topic", "tags", "value", "error")

    assert rows[0]["value"] == {"Orders": None, "Orders:paid": {"id": 1}, "Stock": None}
    assert rows[1]["value"] == {"Orders": {"name": "é"}, "Orders:paid": None, "Stock": None}
    assert rows[2]["error"] == "the body does not fit the schema struct<id:int>"
    assert rows[7]["value"]["Stock"].toPython() == {"id": 5, "count": 2.5}
    assert [row["error"] for row in rows[9:11]] == [NO_JSON, NO_JSON]
    assert {(row["value"], row["error"]) for row in rows if row["topic"] == "Other"} == {
        (None, None)
    }


@pytest.mark.spark
def test_a_schema_is_found_in_the_first_messages(interpreted: SparkSession, store: Path) -> None:
    frame = _load(interpreted, store, topics="Stock,Other")

    assert dict(decode(frame).dtypes)["value"] == "struct<count:double,id:bigint>"
    with pytest.raises(
        ConfigError, match="none of these messages has a body that is a JSON object"
    ):
        decode(frame.where("false"))
    with pytest.raises(ConfigError, match="must be 1 or more"):
        decode(frame, sample=0)


@pytest.mark.spark
def test_a_stream_is_decoded_by_a_schema_and_not_by_a_sample(
    interpreted: SparkSession, store: Path
) -> None:
    stream = interpreted.readStream.format("orbitmq").load(str(store))

    assert decode(stream, "variant").isStreaming
    with pytest.raises(ConfigError, match="a stream has no sample to read; give its schema"):
        decode(stream)


def _streamed(frame: DataFrame, name: str, root: Path) -> list[Any]:
    """Run a stream over what is there; return its rows."""
    writer = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(root / name)).start()
    assert query.awaitTermination(WAIT_S)
    return _in_order(frame.sparkSession.table(name), *frame.columns[1:])


@pytest.mark.feature("P8")
@pytest.mark.spark
def test_a_running_stream_decodes_bodies_and_has_variants(
    interpreted: SparkSession, store: Path, tmp_path: Path
) -> None:
    reader = interpreted.readStream.format("orbitmq")
    decoded_stream = decode(reader.load(str(store)), SCHEMA).select("log_offset", "value", "error")
    variants = reader.option("bodyAs", "variant").load(str(store))
    as_text = variants.selectExpr("log_offset", "to_json(body) body", "error")

    rows = _streamed(decoded_stream, "decoded", tmp_path)
    texts = _streamed(as_text, "variants", tmp_path)

    values = [row["value"] and (row["value"]["id"], row["value"]["name"]) for row in rows]
    assert list(zip(values, [row["error"] for row in rows], strict=True)) == DECODED
    expected = [text and json.loads(text) for text in _expected("json")]
    assert [row["body"] and json.loads(row["body"]) for row in texts] == expected
    assert all((row["body"] is None) == (row["error"] is not None) for row in texts)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("columns", "given", "words"),
    [
        (["body"], {"schema": "id what"}, "must be columns, as 'id bigint, name string'"),
        (["body"], {"schema": "int"}, "must be columns"),
        (["body"], {"schema": 5}, "must be columns"),
        (["body"], {"schema": {}}, "names no topic"),
        (["body"], {"schema": {"Orders": "id int"}}, "need the column topic"),
        (["body", "topic"], {"schema": {("Orders", "paid"): "id int"}}, "need the column tags"),
        (["topic"], {"schema": "id int"}, "needs a column body of type binary or string"),
        (["body"], {"schema": "id int", "format": "xml"}, "must be one of json, avro, protobuf"),
        (["body"], {"format": "avro"}, "give the schema; avro does not tell its own"),
        (["body"], {"schema": 5, "format": "avro"}, "must be the JSON text of an Avro schema"),
        (["body"], {"schema": "shop.Order", "format": "protobuf"}, "must be a pair"),
        (["body"], {"schema": ("/nowhere", "O"), "format": "protobuf"}, "cannot be read: No such"),
    ],
)
def test_what_cannot_be_decoded_is_refused_in_one_sentence(
    interpreted: SparkSession, store: Path, columns: list[str], given: dict[str, Any], words: str
) -> None:
    frame = _load(interpreted, store).select(*columns)

    with pytest.raises(ConfigError, match=words) as caught:
        decode(frame, **given)

    assert "\n" not in str(caught.value)


AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "id_text", "type": {"type": "string", "logicalType": "uuid"}},
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Line",
                        "fields": [{"name": "sku", "type": "string"}],
                    },
                },
            },
            {"name": "last", "type": ["null", "Line"]},
        ],
    }
)
AT = datetime(2026, 11, 18, tzinfo=UTC)
ORDER = {"id": 0, "name": None, "at": AT, "id_text": "x", "lines": [{"sku": "a"}], "last": None}


def _avro(**order: Any) -> bytes:
    plain = json.loads(AVRO)
    plain["fields"][3]["type"] = "string"
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(plain), order)
    return stream.getvalue()


def _descriptors() -> tuple[bytes, Any]:
    """Return a descriptor set as protoc writes it, and the class of its message shop.Order."""
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="order.proto", package="shop", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    states = file.enum_type.add(name="State")
    states.value.add(name="NEW", number=0)
    states.value.add(name="PAID", number=1)
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=kinds.TYPE_STRING, label=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=kinds.TYPE_UINT64, label=1)
    order.field.add(name="words", number=2, type=kinds.TYPE_STRING, label=3)
    order.field.add(name="line", number=3, type=kinds.TYPE_MESSAGE, type_name=".shop.Line", label=1)
    order.field.add(name="state", number=4, type=kinds.TYPE_ENUM, type_name=".shop.State", label=1)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=1)
    of_entry = {"type": kinds.TYPE_MESSAGE, "type_name": ".shop.Order.CountsEntry", "label": 3}
    order.field.add(name="counts", number=5, **of_entry)
    loop = file.message_type.add(name="Loop")
    loop.field.add(name="self", number=1, type=kinds.TYPE_MESSAGE, type_name=".shop.Loop", label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    return files.SerializeToString(), message


DESCRIPTORS, Order = _descriptors()


@pytest.mark.spark
def test_avro_and_protobuf_are_decoded_in_workers(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    order = Order(id=2**64 - 1, words=["a", "b"], state=1, counts={"x": 3})
    builder = LogBuilder()
    for body in (_avro(**ORDER), b"\0\0\0\0\x07" + _avro(**ORDER), b"zz", _avro(**ORDER) + b"x"):
        builder.append("Avro", body=body)
    for body in (
        order.SerializeToString(),
        Order(state=7, line={"sku": "q"}).SerializeToString(),
        b"\xff",
    ):
        builder.append("Proto", body=body)
    frame = _load(interpreted, write_log(builder, tmp_path / "store"))
    (tmp_path / "set").write_bytes(DESCRIPTORS)

    records = _in_order(decode(frame, {"Avro": AVRO}, format="avro"), "value", "error")
    schema = (str(tmp_path / "set"), "shop.Order")
    proto = _in_order(decode(frame, {"Proto": schema}, format="protobuf"), "value", "error")

    naive = ORDER | {"at": records[0]["value"]["Avro"]["at"]}
    assert [row["value"] and row["value"]["Avro"] for row in records[:4]] == [
        naive,
        naive,
        None,
        None,
    ]
    assert naive["at"].timestamp() == AT.timestamp()
    assert "IndexError" in records[2]["error"]
    assert "1 bytes are left behind the record" in records[3]["error"]
    assert {(row["value"], row["error"]) for row in (*records[4:], *proto[:4])} == {(None, None)}
    assert proto[4]["value"]["Proto"] == {
        "id": 2**64 - 1,
        "words": ["a", "b"],
        "line": None,
        "state": "PAID",
        "counts": {"x": 3},
    }
    assert proto[5]["value"]["Proto"] == {
        "id": 0,
        "words": [],
        "line": {"sku": "q"},
        "state": "7",
        "counts": {},
    }
    assert proto[6]["error"].startswith("the body is no protobuf message shop.Order of this schema")


def test_a_value_that_spark_cannot_hold_is_an_error_of_its_row() -> None:
    bodies = pa.array([b"1", b"2", None], type=pa.binary())

    found = decoded(bodies, lambda body: int(body) + 2**31 - 2, IntegerType(), "number").to_pylist()

    assert found[0] == {"value": 2**31 - 1, "error": None}
    assert found[1]["value"] is None
    assert found[1]["error"].startswith("the value of the body does not fit into Spark's types")
    assert found[2] == {"value": None, "error": None}


RECORD = '{"type": "record", "name": "R", "fields": [{"name": "x", "type": %s}]}'


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("no", "is no schema of Avro"),
        ('"long"', "must be a record of Avro"),
        (RECORD % '["int", "string"]', "a union of several types has no counterpart"),
        (RECORD % '["null", "R"]', "the type R, which holds itself"),
        (RECORD % '"what"', "is no schema of Avro"),
    ],
)
def test_avro_that_has_no_counterpart_is_refused(schema: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        avro.kind(schema)


@pytest.mark.parametrize(
    ("descriptors", "name", "words"),
    [
        (DESCRIPTORS, "shop.No", "no message of this name"),
        (DESCRIPTORS, "shop.Loop", "holds itself"),
        (b"zz", "shop.Order", "no whole descriptor set"),
    ],
)
def test_protobuf_that_has_no_counterpart_is_refused(
    descriptors: bytes, name: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        protobuf.kind(descriptors, name)
