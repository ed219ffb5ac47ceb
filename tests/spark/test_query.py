"""`orbitmq spark query`: log and lake as one table, each message once, whichever holds it."""

import json
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from command import call
from orbitmq.client import Message, Producer
from orbitmq.errors import ConfigError, JobFailedError, PipelineError, StaleQueryError
from orbitmq.format.properties import encode_properties
from orbitmq.message import AppendRequest
from orbitmq.spark import query
from orbitmq.spark.failures import clear_errors
from orbitmq.spark.jobs.compact import rewrite
from orbitmq.spark.jobs.compact.job import compact
from orbitmq.spark.jobs.export.care import expire
from orbitmq.spark.jobs.export.job import export
from orbitmq.spark.jobs.query.job import Query
from orbitmq.spark.jobs.query.options import QueryOptions
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing import Broker
from orbitmq.units import KiB
from spark.query_world import DAY_MS, FIRST_MS, World, found, rows_here, shared_world
from spark.rebuild_world import InProcessSpark
from spark.table_world import table_rows
from spark.test_export_kills import TABLES, DyingDisk, KilledError

pytestmark = pytest.mark.spark

FORMATS = ("parquet", "delta", "iceberg")
Wanted = Callable[[Any], bool]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, World]:
    """Stores with lakes of all formats, which no test changes; one path looks like a pattern."""
    made = {name: tmp_path_factory.mktemp(name) for name in FORMATS}
    made["parquet"] /= "a \u00fc [1]"  # delta-rs removes no days from tables with such names
    made["parquet"].mkdir()
    return {name: shared_world(directory, name) for name, directory in made.items()}


@pytest.mark.feature("P11")
@pytest.mark.parametrize("format_", FORMATS)
def test_each_message_that_was_ever_sent_is_in_the_view_once(
    format_: str, interpreted: SparkSession, worlds: dict[str, World]
) -> None:
    world = worlds[format_]

    rows = found(query(interpreted, world.store, lake=world.lake, config=world.conf))

    assert rows == sorted(world.sent.values())
    assert len(rows) == 320


SELECTIONS: dict[str, tuple[dict[str, Any], Wanted]] = {
    "a key of more than 64 messages": ({"keys": ["hot"]}, lambda one: "hot" in one.keys),
    "a key whose hash another has": ({"keys": ["Aa"]}, lambda one: "Aa" in one.keys),
    "a key and a topic": (
        {"keys": ["hot"], "topics": ["Orders"]},
        lambda one: "hot" in one.keys and one.topic == "Orders",
    ),
    "keys of which one is nowhere": (
        {"keys": ["order-17", "order-250", "a,b"]},
        lambda one: one.amount in (17, 250),
    ),
    "a tag and a time": (
        {"tags": ["t1"], "since": str(FIRST_MS + DAY_MS), "until": str(FIRST_MS + 2 * DAY_MS)},
        lambda one: one.tags == "t1" and FIRST_MS + DAY_MS <= one.store_ms < FIRST_MS + 2 * DAY_MS,
    ),
    "properties": (
        {"sql92": "amount BETWEEN 80 AND 230 AND TAGS <> 't2'"},
        lambda one: 80 <= one.amount <= 230 and one.tags not in (None, "t2"),
    ),
    "bodies": (
        {"body": r'"name": "n\d*7"|binary 1'},
        lambda one: b'7"' in one.body or b"binary 1" in one.body,
    ),
    "bytes that are no text": ({"body": "^\ufffd"}, lambda one: one.body[:1] == b"\xff"),
    "a topic that no lake has": (
        {"topics": ["%RETRY%group"]},
        lambda one: one.topic == "%RETRY%group",
    ),
}


@pytest.mark.feature("P11")
@pytest.mark.parametrize("name", SELECTIONS)
def test_what_is_selected_is_what_a_full_scan_selects(
    name: str, interpreted: SparkSession, worlds: dict[str, World]
) -> None:
    world, (given, wanted) = worlds["parquet"], SELECTIONS[name]

    rows = found(query(interpreted, world.store, lake=world.lake, config=world.conf, **given))

    assert rows == [one for one in sorted(world.sent.values()) if wanted(one)]
    assert rows
    assert name != "a key of more than 64 messages" or len(rows) == 107


@pytest.mark.feature("P11")
@pytest.mark.parametrize("format_", FORMATS)
def test_a_message_is_found_by_either_id_wherever_it_lies(
    format_: str, interpreted: SparkSession, worlds: dict[str, World]
) -> None:
    world = worlds[format_]
    in_lake, removed, in_log = (
        next(one for one in world.sent.values() if one.amount == number) for number in (95, 51, 310)
    )
    ids = [in_lake.message_id, removed.offset_id.lower(), in_log.offset_id, "7F" * 16, "no id"]

    rows = found(query(interpreted, world.store, lake=world.lake, config=world.conf, ids=ids))

    assert rows == sorted([in_lake, removed, in_log])


@pytest.mark.feature("P11")
def test_sql_asks_the_selected_messages_and_nothing_else_can_be_done_with_it(
    interpreted: SparkSession, worlds: dict[str, World]
) -> None:
    world = worlds["delta"]
    given: dict[str, Any] = {"lake": world.lake, "config": world.conf, "topics": ["Orders"]}
    text = "SELECT queue_id, count(*) AS n FROM messages GROUP BY queue_id ORDER BY queue_id;"

    rows = query(interpreted, world.store, sql=text, **given).collect()

    mine = [one.queue_id for one in world.sent.values() if one.topic == "Orders"]
    assert [tuple(row) for row in rows] == [(0, mine.count(0)), (1, mine.count(1))]
    cases = {
        "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a": "Syntax error",
        "SELECT nope FROM messages": "`nope` cannot be resolved",
        "SELECT * FROM nowhere": "nowhere",
    }
    for wrong, words in cases.items():
        with pytest.raises(ConfigError, match=words) as raised:
            query(interpreted, world.store, sql=wrong, **given)
        assert len(str(raised.value).splitlines()) == 1


@pytest.mark.feature("P11")
def test_what_the_log_has_deleted_is_found_in_the_lake(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    world = World(tmp_path)
    world.send(150)
    world.export()
    world.send(60)
    world.drop_segments(1)
    left = {one.log_offset for one in world.scan()}
    assert min(left) > sorted(world.sent)[40]

    rows = found(query(interpreted, world.store, lake=world.lake, config=world.conf))
    alone = found(query(interpreted, lake=world.lake))
    keyed = query(interpreted, world.store, lake=world.lake, config=world.conf, keys=["order-3"])

    # Topics of brokers themselves are in no lake unless they are named.
    kept = [one for one in world.sent.values() if one.topic[0] != "%" or one.log_offset in left]
    assert rows == sorted(kept)
    assert alone == [one for one in rows if one.amount < 150 and one.topic[0] != "%"]
    assert [one.amount for one in found(keyed)] == [3]


@pytest.mark.feature("P11")
def test_a_table_whose_log_was_deleted_since_fails_instead_of_missing_something(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    world = World(tmp_path)
    world.send(120)
    world.export(topics=["Orders"])
    world.send(60)
    given: dict[str, Any] = {"lake": world.lake, "config": world.conf}
    before = query(interpreted, world.store, **given)
    orders = query(interpreted, world.store, topics=["Orders"], **given)
    wanted = found(orders)

    world.export()
    world.drop_segments(1)

    with pytest.raises(StaleQueryError, match="make the query again"), clear_errors("query"):
        before.count()
    assert found(orders) == wanted  # all that was deleted of this topic is in the lake
    assert found(query(interpreted, world.store, topics=["Orders"], **given)) == wanted


@pytest.mark.feature("P11")
@pytest.mark.crash
@pytest.mark.parametrize("format_", FORMATS)
def test_each_message_is_there_once_at_every_step_of_an_export(
    format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, steps, finished = World(tmp_path), 0, False
    world.send(30)
    world.export(format=format_, topics=["Orders"])
    world.send(30)
    commit = TABLES[format_].commit
    while not finished:
        disk = DyingDisk(steps)

        def dying_commit(*given: Any, disk: DyingDisk = disk) -> None:
            disk.step()
            commit(*given)
            disk.step()

        with monkeypatch.context() as patched:
            patched.setattr(TABLES[format_], "commit", dying_commit)
            try:
                world.export(format=format_, disk=disk)
                finished = True
            except KilledError:
                pass

        assert rows_here(world) == sorted(world.sent), f"after {steps} steps"
        steps += 3
    assert steps > 12


@pytest.mark.feature("P11")
@pytest.mark.crash
@pytest.mark.parametrize("format_", FORMATS)
def test_each_message_is_there_once_while_days_are_removed_from_the_lake(
    format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    world.send(30)
    world.send(30, days=1)
    world.export(format=format_, topics=["Orders", "Payments"])
    whole = len(rows_here(world))
    now_ms = world.clock.now_ms() + DAY_MS
    for steps in (0, 1, 2, 99):
        with monkeypatch.context() as patched:
            _die_after_one_table(patched, format_)
            with pytest.raises(KilledError):
                expire(world.lake, {"*": 1}, now_ms=now_ms, disk=DyingDisk(steps))

        assert rows_here(world) == sorted(world.sent), f"after {steps} steps"
    world.export(format=format_)
    assert rows_here(world) == sorted(world.sent)
    assert whole == 60


def _die_after_one_table(patched: pytest.MonkeyPatch, format_: str) -> None:
    done: list[str] = []
    kind = TABLES[format_]
    expire_table = kind.expire

    def dying(self: Any, table: str, before: str) -> None:
        if done:
            raise KilledError
        done.append(table)
        expire_table(self, table, before)

    patched.setattr(kind, "expire", dying)


@pytest.mark.feature("P11")
def test_files_that_a_delta_table_has_replaced_and_removed_are_not_looked_for(
    tmp_path: Path, interpreted: SparkSession
) -> None:
    from deltalake import DeltaTable

    world = shared_world(tmp_path, "delta")
    for table in ("Orders", "Payments", "Orders~dlq"):
        opened = DeltaTable(world.lake / table)
        opened.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    given: dict[str, Any] = {"lake": world.lake, "config": world.conf}
    assert found(query(interpreted, world.store, **given)) == sorted(world.sent.values())
    hot = found(query(interpreted, world.store, keys=["hot"], **given))
    assert [one.amount for one in hot] == list(range(0, 320, 3))


@pytest.mark.feature("P11", "P18")
@pytest.mark.parametrize("format_", FORMATS)
def test_a_lake_that_is_sorted_by_key_is_searched_by_reading_less_of_it(
    format_: str, interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "SORTED_GROUP_BYTES", 64 * KiB)
    store, lake, chance = tmp_path / "store", tmp_path / "lake", random.Random(3)
    with MessageStore.open(StoreConfig(root=store), background=False) as opened:
        for number in range(300):
            properties = encode_properties({"KEYS": f"{chance.getrandbits(32):08x}-{number}"})
            opened.append(AppendRequest("Orders", 0, chance.randbytes(4 * KiB), properties))
    spark: Any = InProcessSpark()
    export(spark, lake, store=store, format=format_)
    wanted = table_rows(path=store)[37]
    asked = QueryOptions.of(lake=lake, keys=list(wanted["keys"]))

    def read(name: str) -> int:
        looked = Query(interpreted, asked, str(tmp_path / name))
        assert [row.log_offset for row in looked.frame().collect()] == [wanted["log_offset"]]
        figures = looked.figures().lake
        assert figures is not None
        assert figures.read_bytes is not None
        return figures.read_bytes

    before = read("before")
    compact(lake, cluster_by=["keys"], exclusive=True)

    assert read("after") < before / 3


@pytest.mark.feature("P11")
def test_nothing_is_missed_while_a_broker_takes_messages_and_an_export_runs(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    lake, sent, over = tmp_path / "lake", list[int](), threading.Event()
    spark: Any = InProcessSpark()

    def send(producer: Producer, count: int) -> None:
        for _ in range(count):
            number = len(sent)
            producer.send(Message("Live", b"%d" % number, keys=["live", f"k{number}"]))
            sent.append(number)

    with Broker() as broker, Producer(broker.namesrv, "live") as producer:
        send(producer, 100)
        export(spark, lake, store=broker.store_path)

        def work() -> None:
            while not over.is_set():
                send(producer, 20)
                export(spark, lake, store=broker.store_path)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for keys in ([], ["live"], ["live"]):
                before = len(sent)
                rows = query(interpreted, broker.store_path, lake=lake, topics=["Live"], keys=keys)
                numbers = sorted(int(row.body) for row in rows.select("body").collect())
                assert numbers == list(range(len(numbers)))
                assert len(numbers) >= before
        finally:
            over.set()
            thread.join()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.mark.feature("P11")
def test_a_cluster_and_its_lake_are_one_table_too(
    broker: Broker, interpreted: SparkSession, tmp_path: Path
) -> None:
    lake, spark = tmp_path / "lake", InProcessSpark()
    given: dict[str, Any] = {"namesrv": broker.namesrv, "lake": lake}

    def send(start: int, count: int) -> None:
        with Producer(broker.namesrv, "lake") as producer:
            for number in range(start, start + count):
                producer.send(Message("Pull", b"%d" % number, keys=["hot"] * (number % 2)))
        broker.wait_dispatched()

    def numbers(**more: Any) -> list[int]:
        return sorted(int(row.body) for row in query(interpreted, **given, **more).collect())

    send(0, 160)
    export(spark, lake, namesrv=broker.namesrv)  # type: ignore[arg-type]
    send(160, 40)
    assert numbers() == list(range(200))
    assert numbers(keys=["hot"], topics=["Pull"]) == list(range(1, 200, 2))

    expire(lake, {"*": 1})  # nothing is so old
    assert numbers() == list(range(200))
    expire(lake, {"*": 1}, now_ms=10**13)  # all that is there; the brokers have it still
    assert numbers() == list(range(200))
    export(spark, lake, namesrv=broker.namesrv)  # type: ignore[arg-type]
    assert numbers() == list(range(200))

    with pytest.raises(PipelineError, match="by the offsets of queues"):
        query(interpreted, broker.store_path, lake=lake)


@pytest.mark.feature("P11")
def test_a_lake_of_another_store_is_refused(interpreted: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    here, other = World(tmp_path / "a"), World(tmp_path / "b")
    here.send(30)
    here.export()
    other.send(40, days=1)

    with pytest.raises(PipelineError, match="another store"):
        query(interpreted, other.store, lake=here.lake, config=other.conf)
    with pytest.raises(ConfigError, match="no directory that"):
        query(interpreted, here.store, lake=tmp_path / "nowhere", config=here.conf)


# --- the command ---


@pytest.fixture
def shared_session(interpreted: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Let commands use the session of all tests, and leave it running."""
    monkeypatch.setattr("orbitmq.cli.spark.query.open_session", lambda *_: interpreted)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    return interpreted


@pytest.mark.feature("P11", "P16")
def test_the_command_prints_messages_in_order_and_says_how_it_found_them(
    shared_session: SparkSession, worlds: dict[str, World]
) -> None:
    world = worlds["parquet"]

    done = call("spark", "query", *world.arguments(), "--key", "hot", "--output", "json")
    table = call("spark", "query", *world.arguments(), "--key", "hot", "--limit", "3")
    counted = call("spark", "query", *world.arguments(), "--topic", "Orders", "--count")
    none = call("spark", "query", *world.arguments(), "--key", "nobody", "--output", "json")

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = sorted(one for one in world.sent.values() if "hot" in one.keys)
    assert [line["log_offset"] for line in lines] == [one.log_offset for one in wanted]
    assert {line["body"] for line in lines if "body" in line} >= {wanted[0].body.decode()}
    assert sum("body_base64" in line for line in lines) == 11
    assert lines[0]["store_time"] == "2026-05-27T05:00:00.010Z"
    read = next(json.loads(line)["read"] for line in done.stderr.splitlines() if '"read"' in line)
    assert read["log"]["found_by"] == ["index"]
    assert read["lake"]["found_by"] == ["Parquet statistics"]
    assert 0 < read["log"]["read_bytes"] < read["log"]["of_bytes"]
    assert 0 < read["lake"]["files"] <= read["lake"]["of_files"]
    assert "order-0 hot Aa" in table.stdout
    assert "104 more" in table.stderr
    assert "log: index, " in table.stderr
    assert counted.stdout.strip() == str(sum(one.topic == "Orders" for one in world.sent.values()))
    assert "ranges held elsewhere" in counted.stderr
    assert (none.returncode, none.stdout) == (1, "")


@pytest.mark.feature("P11", "P16")
def test_what_a_limit_leaves_out_is_counted_without_a_second_read(
    shared_session: SparkSession, worlds: dict[str, World]
) -> None:
    words = ("spark", "query", *worlds["parquet"].arguments(), "--output", "json")

    some, everything = call(*words, "--limit", "3"), call(*words)

    assert "317 more" in some.stderr
    assert len(some.stdout.splitlines()) == 3
    told = [
        next(json.loads(line)["read"] for line in done.stderr.splitlines() if '"read"' in line)
        for done in (some, everything)
    ]
    assert told[0] == told[1]


@pytest.mark.feature("P11")
def test_the_command_asks_again_when_the_log_was_deleted_meanwhile(
    shared_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, frame, frames = World(tmp_path), Query.frame, list[Query]()
    world.send(150)
    world.export(topics=["Orders"])

    def overtaken(self: Query) -> Any:
        made = frame(self)
        frames.append(self)
        if len(frames) == 1:
            world.export()
            world.drop_segments(1)
        return made

    monkeypatch.setattr(Query, "frame", overtaken)
    given = (*world.arguments(), "--output", "json")
    done = call("spark", "query", *given, "--sql", "SELECT topic FROM messages")

    topics = [json.loads(line)["topic"] for line in done.stdout.splitlines()]
    assert len(frames) == 2
    assert {topic: topics.count(topic) for topic in ("Orders", "Payments")} == {
        "Orders": 50,
        "Payments": 50,
    }


@pytest.mark.feature("P11")
def test_files_of_the_lake_that_are_removed_meanwhile_are_told(
    shared_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, frame = World(tmp_path), Query.frame
    world.send(30)
    world.export()

    def overtaken(self: Query) -> Any:
        made = frame(self)
        for path in world.lake.rglob("*.parquet"):
            path.unlink()
        return made

    monkeypatch.setattr(Query, "frame", overtaken)
    done = call("spark", "query", "--lake", world.lake)

    assert done.returncode == StaleQueryError.exit_code == JobFailedError.exit_code
    assert "was removed since the query began. Make the query again." in done.stderr


@pytest.mark.feature("P11", "P16")
def test_what_cannot_be_asked_is_said_in_one_sentence_before_spark_starts(tmp_path: Path) -> None:
    here = ("--from", tmp_path)
    cases: tuple[tuple[tuple[object, ...], str], ...] = (
        ((), "say where to look"),
        ((*here, "--namesrv", "127.0.0.1:1"), "not both"),
        (("--from", tmp_path / "nowhere"), "no such directory"),
        ((*here, "--lake", "gs://bucket/lake"), "must be a directory"),
        ((*here, "--key", "a b"), "has no spaces"),
        ((*here, "--since", "yesterday"), "startTime"),
        ((*here, "--sql92", "a >"), "sql92"),
        ((*here, "--body", "a(b"), "no regular expression"),
        ((*here, "--sql", "DROP TABLE messages"), "must be a query"),
    )
    for arguments, words in cases:
        done = call("spark", "query", *arguments)
        assert done.returncode == 2, done
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_an_expression_that_only_java_can_judge_is_refused_by_java(
    interpreted: SparkSession, worlds: dict[str, World]
) -> None:
    world = worlds["parquet"]

    with pytest.raises(ConfigError, match="no regular expression: Unknown character property"):
        query(interpreted, world.store, config=world.conf, body=r"\p{Nope}")
