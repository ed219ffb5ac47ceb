"""`write` and `writeStream` with format("orbitmq"): every row is a message of a topic, once and as given."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from orbitmq.client import Admin, Message, Producer
from orbitmq.errors import (
    ConfigError,
    InvalidMessageError,
    JobFailedError,
    NoRouteError,
    OrbitError,
)
from orbitmq.message import SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.spark.failures import clear_errors
from orbitmq.spark.source.source import OrbitmqSource
from orbitmq.testing import Broker
from spark.sink_world import (
    SCHEMA,
    Row,
    Write,
    content,
    frame_of,
    fresh_topic,
    messages_of,
    require_each_once,
    row,
    rows,
    schema_of,
)
from spark.stream_world import wait_until

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"autoCreateTopicEnable": "false"}) as running:
        yield running


def write(frame: DataFrame, broker: Broker, **options: str) -> None:
    with clear_errors("write"):
        frame.write.format("orbitmq").mode("append").options(
            namesrv=broker.namesrv, **options
        ).save()


# --- a batch ---


@pytest.mark.feature("P9")
def test_each_row_is_a_message_with_all_its_parts_in_order_by_sharding_key(
    spark: SparkSession, broker: Broker
) -> None:
    one, other = fresh_topic(broker, "Parts"), fresh_topic(broker, "Others", queues=3)
    given = [row(number, one if number % 4 else other) for number in range(500)]
    frame = frame_of(spark, given).coalesce(2)

    write(frame, broker, batchRows="7")

    broker.wait_dispatched()
    for topic in (one, other):
        require_each_once(broker.namesrv, topic, [r for r in given if r.topic == topic])


@pytest.mark.feature("P9")
def test_a_table_that_was_read_is_sent_as_it_is_to_another_topic(
    spark: SparkSession, broker: Broker
) -> None:
    origin, target = fresh_topic(broker, "Origin"), fresh_topic(broker, "Target")
    with Producer(broker.namesrv, "before") as producer:
        for number in range(40):
            message = Message(origin, b"m%d" % number, f"t{number % 3}", [f"k{number}"])
            message.properties, message.flag = {"own": str(number)}, number
            producer.send(message, key=number)
        producer.send(Message(origin, b"was delayed", delay_level=1))
    broker.wait_dispatched()
    wait_until(lambda: _counts(broker, origin) == [41])
    read = {"namesrv": broker.namesrv, "topics": origin}

    write(spark.read.format("orbitmq").options(**read).load(), broker, topic=target)

    broker.wait_dispatched()
    before, after = messages_of(broker.namesrv, origin), messages_of(broker.namesrv, target)
    assert [(m.queue_id, content(m)) for m in after] == [(m.queue_id, content(m)) for m in before]
    assert not {m.message_id for m in before} & {m.message_id for m in after}


@pytest.mark.feature("P9")
def test_rows_with_a_delay_wait_at_the_broker_and_large_ones_go_alone(
    spark: SparkSession, broker: Broker
) -> None:
    topic = fresh_topic(broker, "Later", queues=1)
    ends = _counts(broker, SCHEDULE_TOPIC, TIMER_TOPIC)
    frame = spark.sql(
        "SELECT concat('row ', id, repeat('x', if(id = 2, 5000, 0))) body, "
        "if(id = 4, 17, null) delay_level, if(id = 5, 3600000L, null) delay_ms, "
        "if(id = 6, now() + interval 1 hour, null) deliver_time FROM range(0, 8, 1, 1)"
    )

    write(frame, broker, topic=topic, batchBytes="2k")

    broker.wait_dispatched()
    found = [message.body[:5] for message in messages_of(broker.namesrv, topic)]
    assert found == [b"row 0", b"row 1", b"row 2", b"row 3", b"row 7"]
    after = _counts(broker, SCHEDULE_TOPIC, TIMER_TOPIC)
    assert (after[0] - ends[0], after[1] - ends[1]) == (1, 2)


def _counts(broker: Broker, *topics: str) -> list[int]:
    with Admin(broker.namesrv) as admin:
        return [sum(s.max_offset for s in admin.topic_stats(topic)) for topic in topics]


@pytest.mark.feature("P9")
def test_a_write_with_an_id_is_sent_once_and_one_without_as_often_as_it_is_run(
    broker: Broker, tmp_path: Path
) -> None:
    topic, given = fresh_topic(broker, "Twice"), rows(30, "Twice")
    options = {"stagingPath": str(tmp_path), "writeId": "monday"}
    other = Write(broker.namesrv, stagingPath=str(tmp_path), writeId="monday-0").tasks(given)
    for _ in range(2):
        Write(broker.namesrv, **options).tasks(given).commit()
    broker.wait_dispatched()
    require_each_once(broker.namesrv, topic, given)

    Write(broker.namesrv, stagingPath=str(tmp_path)).tasks(given).commit()
    other.commit()

    broker.wait_dispatched()
    assert len(messages_of(broker.namesrv, topic)) == 90
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert names == {
        "attempts",
        *(f"monday{end}" for end in (".json", ".lock", "-0.json", "-0.lock")),
    }


@pytest.mark.feature("P9")
def test_attempts_that_failed_or_were_not_taken_leave_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    topic, given = fresh_topic(broker, "Attempts"), rows(40, "Attempts")
    write = Write(broker.namesrv, stagingPath=str(tmp_path))
    write.task(given[:20])  # it was lost with its executor, or another attempt was faster
    with pytest.raises(InvalidMessageError, match="partition 0, row 25: has no body"):
        write.task(given[:20], [*given[20:25], Row(topic, b"")])
    write.tasks(given)

    write.commit()

    broker.wait_dispatched()
    require_each_once(broker.namesrv, topic, given)
    assert list((tmp_path / "attempts").iterdir()) == []
    aborted = Write(broker.namesrv, stagingPath=str(tmp_path)).tasks(given)
    aborted.writer.abort(aborted.parts)
    assert list((tmp_path / "attempts").iterdir()) == []
    assert len(messages_of(broker.namesrv, topic)) == 40


def test_without_a_staging_path_nothing_stays_in_the_temporary_directory(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    topic, given = fresh_topic(broker, "Temporary"), rows(5, "Temporary")

    done = Write(broker.namesrv).tasks(given)
    assert len(list(tmp_path.rglob(".part-*"))) == 2
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o700]
    done.commit()

    assert list(tmp_path.iterdir()) == []
    broker.wait_dispatched()
    require_each_once(broker.namesrv, topic, given)


# --- a stream ---


@pytest.fixture(scope="module")
def source() -> Iterator[Broker]:
    """A broker that a stream reads from."""
    with Broker() as running:
        fresh_topic(running, "In", queues=2)
        yield running


def send(source: Broker, start: int, end: int) -> None:
    with Producer(source.namesrv, "in") as producer:
        for number in range(start, end):
            producer.send(Message("In", b"order %d" % number))
    source.wait_dispatched()


def run_stream(spark: SparkSession, source: Broker, sink: dict[str, str], per: int = 20) -> None:
    """Bring what is new of the topic In to the sink, in batches."""
    read = {"namesrv": source.namesrv, "topics": "In", "maxRowsPerTrigger": str(per)}
    new = spark.readStream.format("orbitmq").options(**read).load()
    query = new.writeStream.format("orbitmq").options(**sink).trigger(availableNow=True).start()
    with clear_errors("stream"):
        query.awaitTermination()


@pytest.mark.feature("P9")
def test_a_stream_goes_on_from_its_checkpoint_and_a_repeated_batch_leaves_no_duplicate(
    interpreted: SparkSession, source: Broker, broker: Broker, tmp_path: Path
) -> None:
    topic, checkpoint = fresh_topic(broker, "Out"), tmp_path / "checkpoint"
    sink = {"namesrv": broker.namesrv, "topic": topic, "checkpointLocation": str(checkpoint)}
    send(source, 0, 50)
    run_stream(interpreted, source, sink)
    # As if it had been killed between the send and Spark's own note of it: the batch comes again.
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        path.unlink(missing_ok=True)
    send(source, 50, 60)

    run_stream(interpreted, source, sink, per=7)

    broker.wait_dispatched()
    found = sorted(int(m.body.split()[1]) for m in messages_of(broker.namesrv, topic))
    assert found == list(range(60))
    state = next((checkpoint / "orbitmq-sink").glob("*.json"))
    last = json.loads(state.read_bytes())
    assert (last["done"], last["files"]) == (True, [])
    assert list((checkpoint / "orbitmq-sink" / "attempts").iterdir()) == []


# --- what cannot be ---


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        ("body binary, colour string", {"topic": "T"}, "colour.*no message has such columns"),
        ("body int", {"topic": "T"}, "column body.*must be binary or a string"),
        ("topic string", {}, "there is no column body"),
        ("body binary", {}, "there is no column topic.*the option topic"),
        ("body binary, properties map<string,int>", {"topic": "T"}, "CAST.*map<string,string>"),
        ("body binary, delay_level string", {"topic": "T"}, "delay_level.*whole number"),
        (SCHEMA, {"namesrv": ""}, "name the cluster"),
        (SCHEMA, {"topics": "T"}, "did you mean topic"),
        (SCHEMA, {"path": "/tmp"}, "unknown option"),
        (SCHEMA, {"topic": "a b"}, "only letters"),
        (SCHEMA, {"batchRows": "0"}, "1 or more"),
        (SCHEMA, {"batchBytes": "8m"}, "not be more than maxMessageBytes"),
        (SCHEMA, {"writeId": "a"}, "stagingPath.*is needed with writeId"),
        (SCHEMA, {"writeId": "a/b"}, "letters, digits"),
        (SCHEMA, {"stagingPath": "s3://bucket/a"}, "all machines have mounted"),
    ],
)
def test_columns_and_options_that_cannot_work_are_refused_in_one_sentence(
    columns: str, options: dict[str, str], sentence: str
) -> None:
    given = {"namesrv": "127.0.0.1:1", **options}
    with pytest.raises(OrbitError, match=sentence) as caught:
        OrbitmqSource(options=given).writer(schema_of(columns), False)
    assert isinstance(caught.value, ConfigError | InvalidMessageError)
    assert "\n" not in str(caught.value)


def test_a_topic_is_not_overwritten_and_a_stream_needs_a_place_for_its_rows(
    tmp_path: Path,
) -> None:
    schema, given = schema_of(SCHEMA), {"namesrv": "127.0.0.1:1"}
    with pytest.raises(ConfigError, match="use mode append"):
        OrbitmqSource(options=given).writer(schema, True)
    with pytest.raises(ConfigError, match="no option checkpointLocation"):
        OrbitmqSource(options=given).streamWriter(schema, False)
    with pytest.raises(ConfigError, match="repeatable by its checkpoint"):
        OrbitmqSource(options={**given, "writeId": "a"}).streamWriter(schema, False)
    with pytest.raises(ConfigError, match="all machines have mounted"):
        OrbitmqSource(options={**given, "checkpointLocation": "hdfs://a/b"}).streamWriter(
            schema, False
        )
    options = {**given, "checkpointLocation": str(tmp_path)}
    writer = OrbitmqSource(options=options).streamWriter(schema, False)
    with pytest.raises(JobFailedError, match="does not tell its tasks"):
        writer.write(iter([]))


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (Row("Bad", b"x" * 3000), "row 12: has a body of 3000 bytes, allowed are 2048"),
        (Row("Bad", b"b", properties={"a": "x\x02y"}), "row 10 or behind it.*0x01 and 0x02"),
        (Row("Bad", b"b", properties={"": "y"}), "a property has an empty name"),
        (Row("rmq_sys_x", b"b"), "topic rmq_sys_x is the broker's own"),
        (Row("Not there", b"b"), "only letters"),
    ],
)
def test_a_row_that_no_broker_takes_is_named_before_anything_is_sent(
    broker: Broker, tmp_path: Path, bad: Row, sentence: str
) -> None:
    fresh_topic(broker, "Bad")
    options = {"stagingPath": str(tmp_path), "maxMessageBytes": "2k", "batchBytes": "2k"}
    write = Write(broker.namesrv, **options)
    given = rows(20, "Bad")

    with pytest.raises(InvalidMessageError, match=sentence):
        write.task(given[:10], [*given[10:12], bad])

    write.writer.abort([None])
    assert list((tmp_path / "attempts").iterdir()) == []
    assert messages_of(broker.namesrv, "Bad") == []


def test_two_delays_and_a_null_key_are_refused(broker: Broker, tmp_path: Path) -> None:
    fresh_topic(broker, "Bad")
    schema = "body string, keys array<string>, delay_level int, delay_ms int"
    options = {"namesrv": broker.namesrv, "topic": "Bad", "stagingPath": str(tmp_path)}
    writer: Any = OrbitmqSource(options=options).writer(schema_of(schema), False)
    good = {"body": ["a", "b"], "keys": [["k"], []], "delay_level": [1, 0], "delay_ms": [0, 5]}
    for change, sentence in (
        ({"delay_ms": [9, 5]}, "row 0: set one of delay_level"),
        ({"delay_level": [1, -1]}, "row 1: delay_level must not be negative"),
        ({"keys": [["k"], [None]]}, "null among its keys"),
    ):
        batch = pa.record_batch({**good, **change})
        with pytest.raises(InvalidMessageError, match=sentence):
            writer.write(iter([batch]))
    assert writer.write(iter([pa.record_batch(good)])).messages == 2


def test_a_topic_or_a_cluster_that_is_not_there_is_one_sentence_through_spark(
    interpreted: SparkSession, broker: Broker
) -> None:
    frame = interpreted.range(1).selectExpr("cast(id as string) body")
    with pytest.raises(
        NoRouteError, match=r"topic Missing: no name server .* knows it\. Create"
    ) as e:
        write(frame, broker, topic="Missing")
    assert "\n" not in str(e.value)
    with pytest.raises(OrbitError, match=r"127\.0\.0\.1:9") as e, clear_errors("write"):
        frame.write.format("orbitmq").mode("append").options(
            namesrv="127.0.0.1:9", topic="T"
        ).save()
    assert "\n" not in str(e.value)
    with pytest.raises(ConfigError, match="use mode append"), clear_errors("write"):
        frame.write.format("orbitmq").mode("overwrite").options(
            namesrv=broker.namesrv, topic="T"
        ).save()
    with pytest.raises(ConfigError, match="colour"):
        write(frame.selectExpr("body", "1 colour"), broker, topic="T")


def test_an_executor_that_does_not_see_the_staged_rows_says_so(
    broker: Broker, tmp_path: Path
) -> None:
    write = Write(broker.namesrv, stagingPath=str(tmp_path))
    shutil.rmtree(tmp_path / "attempts")
    with pytest.raises(JobFailedError, match=r"does not see .*attempts.*stagingPath"):
        write.task(rows(1))


def test_rows_of_a_queue_that_the_target_has_not_go_to_one_that_it_has_in_order(
    broker: Broker, tmp_path: Path
) -> None:
    topic = fresh_topic(broker, "Narrow", queues=3)
    options = {"namesrv": broker.namesrv, "topic": topic, "stagingPath": str(tmp_path)}
    schema = schema_of("body string, queue_id int")
    writer: Any = OrbitmqSource(options=options).writer(schema, False)
    queues = [number * 5 % 8 for number in range(40)]
    batch = pa.record_batch({"body": [str(n) for n in range(40)], "queue_id": queues})

    writer.commit([writer.write(iter([batch.slice(0, 17), batch.slice(17)]))])

    broker.wait_dispatched()
    for queue in range(3):
        found = [m.body for m in messages_of(broker.namesrv, topic) if m.queue_id == queue]
        wanted = [str(n).encode() for n in range(40) if queues[n] % 3 == queue]
        assert found == wanted
