"""`orbitmq spark audit` on real Spark, of a live cluster with members online, and as a command."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from command import call, run
from orbitmq.cli.spark import audit_text
from orbitmq.cli.spark.audit_text import print_audit
from orbitmq.client import Admin, Consumer, Message, Producer, RetryLater, sql
from orbitmq.errors import ConfigError, NoRouteError
from orbitmq.spark import audit
from orbitmq.spark.jobs.audit.report import TABLES, AuditReport
from orbitmq.testing import Broker
from spark.audit_world import (
    SETTINGS,
    Seen,
    audit_here,
    lag_of,
    of_log,
    ordinary,
    traffic_of,
    write_offsets,
    write_store,
)
from spark.export_world import write_conf
from spark.rebuild_world import InProcessSpark

pytestmark = pytest.mark.spark

LEVELS = " ".join(["0s"] * 18)
MESSAGES = 40
TRIES = 17  # the first one, and sixteen retries


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("audit") / "store"
    write_store(root, 200)
    write_offsets(root, {"Orders@shop": {0: 3, 1: 5}, "%RETRY%shop@shop": {0: 1}})
    return root


# --- a live cluster ---


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with messages, one of them sent twice, one a dead letter, and two groups online."""
    settings = {"enablePropertyFilter": "true", "messageDelayLevel": LEVELS}
    with Broker(settings=settings) as running, Admin(running.namesrv) as admin:
        admin.create_topic("Orders", queues=3)
        with Producer(running.namesrv, "makers", trace=True) as producer:
            for number in range(MESSAGES):
                tag, more = "AB"[number % 2], {"n": str(number)}
                found = producer.send(Message("Orders", b"m", tag, [f"k{number % 9}"], more))
            again = {"UNIQ_KEY": found.message_id}
            producer.send(Message("Orders", b"m", "B", [], {"n": "39"}, reserved=again))
        running.wait_dispatched()
        fail_once(running, admin)
        wanted = {"tags": {"Orders": "A || C"}, "expressions": {"Orders": sql("n > 30")}}
        members = [
            Consumer(running.namesrv, group, topics, start_from="first")
            for group, topics in wanted.items()
        ]
        for member in members:
            member.__enter__()
        for member in members:
            for _ in range(2):
                message = member.receive(20)
                assert message is not None
                message.ack()
        yield running
        for member in members:
            member.close()


def fail_once(broker: Broker, admin: Admin) -> None:
    """Let a group consume all messages with tag A, but for one that it cannot."""
    seen: list[str] = []

    def handle(message: Any) -> None:
        seen.append(message.properties["n"])
        if message.properties["n"] == "4":
            raise RetryLater(level=0)

    given = {"start_from": "first", "trace": True}
    with Consumer(broker.namesrv, "failing", {"Orders": "A"}, handle, **given):
        wait_until(lambda: len(set(seen)) == MESSAGES // 2 and seen.count("4") == TRIES)
        wait_until(lambda: "%DLQ%failing" in admin.topics(system=True))
        wait_until(lambda: sum(s.message_count for s in admin.topic_stats("%DLQ%failing")) == 1)


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)  # sleep: between two looks, up to a deadline


def audit_cluster(broker: Broker, **given: Any) -> AuditReport:
    broker.wait_dispatched()
    spark: Any = InProcessSpark()
    return audit(spark, namesrv=broker.namesrv, **given)


@pytest.fixture(scope="module")
def online(broker: Broker) -> AuditReport:
    return audit_cluster(broker)


@pytest.fixture(scope="module")
def records(broker: Broker) -> list[Seen]:
    return of_log(broker.store_path)


@pytest.mark.feature("P12")
def test_a_cluster_is_audited_as_its_store(
    broker: Broker, online: AuditReport, records: list[Seen]
) -> None:
    offline = audit_here(broker.store_path, {})

    found = {(row.topic, row.tag, row.hour_ms): tuple(row[3:]) for row in online.traffic}
    assert found == traffic_of(ordinary(records))
    names = ("topics", "tags", "hours", "sizes", "latencies", "duplicates", "returned")
    for name in (*names, "trace_topics", "trace_groups"):
        assert getattr(online, name) == getattr(offline, name), name
    copies = [(one.by, one.value, one.copies) for one in online.offenders]
    assert copies == [(one.by, one.value, one.copies) for one in offline.offenders]
    (twice,) = [one for one in online.offenders if one.by == "id"]
    assert (twice.copies, {place.broker for place in twice.places}) == (2, {"broker-a"})


@pytest.mark.feature("P12")
def test_lag_of_groups_that_are_online_is_exact_under_their_filters(
    online: AuditReport, records: list[Seen]
) -> None:
    wants: dict[str, Callable[[dict[str, str]], bool]] = {
        "tags": lambda properties: properties.get("TAGS") in ("A", "C"),
        "expressions": lambda properties: int(properties["n"]) > 30,
    }
    for group, wanted in wants.items():
        rows = [row for row in online.lag if (row.group, row.topic) == (group, "Orders")]
        assert {row.known for row in rows} == {"members"}
        assert [row.queue_id for row in rows] == [0, 1, 2]
        for row in rows:
            lag = lag_of(records, "Orders", row.queue_id, row.consumer_offset, wanted)
            assert (row.broker, row.lag, row.lag_is) == ("broker-a", lag, "exact")
        assert sum(row.lag for row in rows) > 0
    failing = [row for row in online.lag if (row.group, row.topic) == ("failing", "Orders")]
    assert {row.known for row in failing} == {""}  # nobody is online


@pytest.mark.feature("P12")
def test_what_members_traced_is_joined_with_their_messages(online: AuditReport) -> None:
    (topic,) = online.trace_topics
    half = MESSAGES // 2
    assert (topic.messages, topic.sent, topic.failed_sends) == (MESSAGES, MESSAGES, 0)
    assert (topic.consumed, topic.failed, topic.never_consumed) == (half - 1, 1, half)
    (group,) = online.trace_groups
    assert (group.group, group.messages, group.consumed) == ("failing", half, half - 1)
    assert (group.attempts, group.failed_attempts, group.unfinished) == (
        *(half - 1 + TRIES, TRIES, 0),
    )
    returned = [(one.kind, one.origin, one.tries, one.messages) for one in online.returned]
    assert returned == [
        *(("retry", "Orders", tries, 1) for tries in range(1, TRIES)),
        ("dead letter", "Orders", TRIES, 1),
    ]


def test_of_a_cluster_only_what_was_named_is_looked_at(broker: Broker) -> None:
    report = audit_cluster(
        broker,
        topics=["Orders"],
        groups=["tags"],
        since="now-1h",
        subscriptions={"tags:Orders": "B"},
    )

    assert {row.known for row in report.lag} == {"given"}  # comes before what members say
    assert ({row.group for row in report.lag}, report.returned) == ({"tags"}, [])
    assert sum(row.messages for row in report.topics) == MESSAGES + 1
    nothing = audit_cluster(broker, topics=["Orders"], until="now-1h")
    assert nothing.topics == []
    with pytest.raises(NoRouteError, match="NoTopic"):
        audit_cluster(broker, topics=["NoTopic"])
    with pytest.raises(ConfigError, match="nobody"):
        audit_cluster(broker, groups=["nobody"])


# --- real Spark ---


@pytest.mark.feature("P12")
def test_tasks_of_spark_find_what_one_process_finds_and_tables_are_frames(
    spark: SparkSession, store: Path
) -> None:
    report = audit(spark, store=store, settings=SETTINGS)

    here = audit_here(store)
    assert report.value() | {"asked": None} == here.value() | {"asked": None}
    frames = {name: report.frame(spark, name) for name in TABLES}
    assert all(frame.schema for frame in frames.values())
    messages = frames["traffic"].groupBy("topic").sum("messages").collect()
    assert {row[0]: row[1] for row in messages} == {row.topic: row.messages for row in here.topics}
    (worst,) = frames["offenders"].orderBy("copies", ascending=False).limit(1).collect()
    assert len(worst.places) > 1
    assert worst.places[0].queue_id in (0, 1, 2)
    with pytest.raises(ConfigError, match="there are topics, traffic"):
        report.frame(spark, "nothing")


@pytest.mark.feature("P12")
def test_the_command_prints_json_and_writes_a_page(store: Path, tmp_path: Path) -> None:
    conf, page = write_conf(tmp_path / "broker.conf"), tmp_path / "audit.html"
    words = ["--from", store, "--config", conf, "--html", page, "--output", "json"]

    done = run("spark", "audit", *words, "--subscription", "shop:Orders=Aa", "--master", "local[2]")

    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    here = audit_here(store, subscriptions=["shop:Orders=Aa"]).value()
    assert value | {"asked": None} == json.loads(json.dumps(here)) | {"asked": None}
    assert list(value) == ["asked", "read", *TABLES]
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []
    assert f"{page} holds the report" in done.stderr


def test_what_cannot_be_is_said_in_one_sentence_before_spark_starts(
    store: Path, tmp_path: Path
) -> None:
    cases: tuple[tuple[tuple[Any, ...], str], ...] = (
        ((), "give a store directory"),
        (("--from", tmp_path / "nowhere"), "no such directory"),
        (("--from", tmp_path), "is no message store"),
        (("--from", store, "--namesrv", "a:1"), "one of them"),
        (("--from", store, "--since", "yesterday"), "write a time as"),
        (("--from", store, "--subscription", "shop=A"), "GROUP:TOPIC=TAGS"),
        (("--from", store, "--html", tmp_path), "is a directory"),
        (("--from", store, "--html", tmp_path / "no" / "page.html"), "no such directory"),
    )

    for arguments, words in cases:
        done = call("spark", "audit", *arguments)
        assert done.returncode == 2 or "store" in words, done.stderr
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_tables_on_a_terminal_have_the_figures(
    online: AuditReport, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "240")

    print_audit(online)

    shown = capsys.readouterr()
    words = " ".join(shown.out.split())
    for text in ("worst duplicates", "lag by queue", "retries and dead letters", "trace by group"):
        assert text in words
    assert f"Orders {MESSAGES + 1} " in words
    assert "sql92:n > 30" in words
    assert f"{MESSAGES // 2} 50.0 %" in words  # never consumed
    assert shown.err == ""


def test_a_long_table_on_a_terminal_says_what_is_left_out(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_text, "ROWS_MAX", 5)

    print_audit(audit_here(store, top=3))

    said = capsys.readouterr().err
    assert "worst duplicates: 1 more rows; --output json has all" in said
    assert '"at most": nobody says' in said
