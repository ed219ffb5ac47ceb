"""`orbitmq spark audit`: every figure is that of a plain look at each record."""

import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import golden_stores
from command import call
from orbitmq.client.trace.records import TraceRecord
from orbitmq.errors import ConfigError, CorruptRecordError, NotAStoreError
from orbitmq.spark.jobs.audit import keyed, sources, tally
from orbitmq.spark.jobs.audit.histogram import Histogram
from orbitmq.spark.jobs.audit.readers import parse_subscription
from orbitmq.spark.jobs.audit.report import AuditReport
from orbitmq.spark.jobs.audit.roles import group_of
from orbitmq.spark.jobs.export import log_source
from orbitmq.units import HOUR_MS, KiB
from spark.audit_world import (
    START_MS,
    Seen,
    append_traces,
    audit_here,
    copies_by_id,
    copies_by_key,
    duplicate_rows,
    lag_of,
    of_log,
    of_manifest,
    offset_id,
    ordinary,
    require_spread,
    sent,
    traffic_of,
    tried,
    visible,
    write_filters,
    write_offsets,
    write_store,
)

pytestmark = pytest.mark.spark

OFFSETS = {
    "Orders@tags": {0: 20, 1: 60, 2: 0},
    "Orders@sql": {0: 5, 1: 500_000},  # one ahead of its queue, one never read
    "Orders@stored": {0: 40, 1: 41, 2: 42},
    "Stock@shop": {0: 3, 1: 1, 2: 10_000},
    "%RETRY%shop@shop": {0: 12},
    "Gone@shop": {0: 7},
    "Orders@CID_RMQ_SYS_TRANS": {0: 0},
}
WANTED = ["tags:Orders=Aa || paid", "sql:Orders=sql92:price > 50 AND TAGS IS NOT NULL"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("audit") / "store"
    write_store(root)
    write_offsets(root, OFFSETS)
    write_filters(root, {"Orders": {"stored": "price between 20 and 60", "bad": "price >"}})
    return root


@pytest.fixture(scope="module")
def records(made: Path) -> list[Seen]:
    return of_log(made)


def audit_cut(root: Path, **given: Any) -> AuditReport:
    """Audit a store in many tasks, whose rows are handed on in many pieces."""
    with pytest.MonkeyPatch.context() as small:
        small.setattr(log_source, "TASK_BYTES_MIN", 10 * KiB)
        small.setattr(log_source, "TASK_BYTES_MAX", 10 * KiB)
        small.setattr(keyed, "ROWS_MAX", 7)
        return audit_here(root, **given)


@pytest.fixture(scope="module")
def cut(made: Path) -> AuditReport:
    return audit_cut(made, subscriptions=WANTED, top=1000)


@pytest.fixture(scope="module")
def whole(made: Path) -> AuditReport:
    return audit_here(made, subscriptions=WANTED, top=1000)


# --- traffic, sizes, latency ---


def require_traffic(report: AuditReport, messages: list[Seen]) -> None:
    wanted = traffic_of(messages)
    found = {(row.topic, row.tag, row.hour_ms): tuple(row[3:]) for row in report.traffic}
    assert found == wanted
    for row in report.topics:
        mine = [one for one in messages if one.topic == row.topic]
        assert (row.messages, row.records) == (sum(one.count for one in mine), len(mine))
        assert row.bytes == sum(one.size for one in mine)
        require_spread(row.size, [one.size for one in mine])
        at_once = [one for one in mine if "REAL_TOPIC" not in one.properties]
        assert row.waited == len(mine) - len(at_once)
        require_spread(row.latency, [one.store_ms - one.born_ms for one in at_once])
    assert {row.topic for row in report.topics} == {one.topic for one in messages}
    tags, hours = Counter[Any](), Counter[Any]()
    for (topic, tag, hour), (count, _, _) in wanted.items():
        tags[topic, tag] += count
        hours[topic, hour] += count
    assert {(row.topic, row.tag): row.messages for row in report.tags} == tags
    assert {(row.topic, row.hour_ms): row.messages for row in report.hours} == hours


@pytest.mark.feature("P12")
def test_traffic_sizes_and_latency_are_those_of_a_plain_count(
    cut: AuditReport, records: list[Seen]
) -> None:
    report = cut

    require_traffic(report, ordinary(records))
    assert {row.topic for row in report.topics} == {"Orders", "Stock", "Rare"}
    assert any(row.latency.early for row in report.topics)
    assert report.read.records == len(records)
    assert report.read.bytes == sum(one.size for one in records)
    sizes = [one.size for one in ordinary(records)]
    assert sum(bar.values for bar in report.sizes) == len(sizes)
    for bar in report.sizes:
        assert bar.values == sum(bar.low <= size < bar.high for size in sizes)
    times = [
        one.store_ms - one.born_ms
        for one in ordinary(records)
        if "REAL_TOPIC" not in one.properties
    ]
    for bar in report.latencies:
        assert bar.values == sum(bar.low <= one < bar.high for one in times)


@pytest.mark.feature("P12")
def test_however_the_log_is_cut_the_report_is_the_same(
    cut: AuditReport, whole: AuditReport
) -> None:
    assert cut.value() | {"asked": None} == whole.value() | {"asked": None}


@pytest.mark.feature("P12")
@pytest.mark.parametrize("name", golden_stores.STORES)
def test_stores_of_rocketmq_are_counted_as_its_own_reader_reads_them(
    name: str, tmp_path: Path
) -> None:
    root = golden_stores.unpack(name, tmp_path)
    records = of_manifest(golden_stores.rows(name, "record"))

    report = audit_here(root, golden_stores.settings(name))

    require_traffic(report, ordinary(records))
    assert {tuple(row) for row in report.duplicates} == duplicate_rows(ordinary(records))
    require_returned(report, records)
    for row in report.lag:
        offset = row.consumer_offset
        if row.known in ("", "retries"):
            lag = lag_of(records, row.topic, row.queue_id, offset, lambda _: True)
            assert row.lag == lag
    assert not report.trace_topics


def test_a_time_range_is_that_of_the_store_times_and_lag_stays_that_of_now(
    made: Path, whole: AuditReport, records: list[Seen]
) -> None:
    times = sorted(one.store_ms for one in records)
    since, until = times[len(times) // 3], times[2 * len(times) // 3]
    inside = [one for one in records if since <= one.store_ms < until]

    report = audit_here(made, since=str(since), until=str(until), subscriptions=WANTED)

    require_traffic(report, ordinary(inside))
    assert {tuple(row) for row in report.duplicates} == duplicate_rows(ordinary(inside))
    require_returned(report, inside)
    assert report.lag == whole.lag


def test_with_since_reading_begins_there_or_where_a_group_goes_on(
    tmp_path: Path, made: Path, records: list[Seen]
) -> None:
    root = shutil.copytree(made, tmp_path / "store")
    half = records[len(records) // 2].store_ms + 3 * HOUR_MS
    ends = Counter(one.queue_id for one in visible(records) if one.topic == "Orders")
    write_offsets(root, {"Orders@ready": dict(ends), "Orders@near": {0: ends[0] - 2, **ends}})

    late = audit_here(root, since=str(half), groups=["ready"])
    write_offsets(root, {"Orders@ready": dict(ends) | {1: 3}})
    early = audit_here(root, since=str(half))

    assert late.read.bytes < early.read.bytes < sum(one.size for one in records)
    assert (sum(row.lag for row in late.lag), late.topics) == (0, early.topics)
    assert sum(row.lag for row in early.lag) == ends[1] - 3


def test_a_queue_that_contradicts_the_log_is_not_believed(
    tmp_path: Path, made: Path, records: list[Seen]
) -> None:
    root = shutil.copytree(made, tmp_path / "store")
    ends = Counter(one.queue_id for one in visible(records) if one.topic == "Orders")
    write_offsets(root, {"Orders@near": dict(ends) | {0: 40}})
    since = str(max(one.store_ms for one in records))
    right = audit_here(root, since=since)
    paths = sorted((root / "consumequeue" / "Orders" / "0").iterdir())
    units = b"".join(path.read_bytes() for path in paths)
    last = units[20 * (ends[0] - 1) : 20 * ends[0]]
    for path in paths:
        path.write_bytes(last * (path.stat().st_size // 20))

    assert sum(row.lag for row in right.lag) == ends[0] - 40
    assert audit_here(root, since=since).lag == right.lag
    shutil.rmtree(root / "consumequeue")
    assert audit_here(root, since=since).lag == right.lag


def test_with_since_a_queue_that_a_group_never_read_counts_from_its_first_message(
    tmp_path: Path, made: Path, records: list[Seen]
) -> None:
    root = shutil.copytree(made, tmp_path / "store")
    ends = Counter(one.queue_id for one in visible(records) if one.topic == "Orders")
    write_offsets(root, {"Orders@new": {0: ends[0], 1: ends[1]}})

    report = audit_here(root, since=str(max(one.store_ms for one in records)))

    assert [row.lag for row in report.lag] == [0, 0, ends[2]]


def test_only_named_topics_and_groups_are_looked_at(made: Path, records: list[Seen]) -> None:
    report = audit_here(made, topics=["Stock,%RETRY%shop"], groups=["shop"])

    wanted = [one for one in visible(records) if one.topic in ("Stock", "%RETRY%shop")]
    require_traffic(report, wanted)
    assert {(row.group, row.topic) for row in report.lag} == {
        ("shop", "Stock"),
        ("shop", "%RETRY%shop"),
    }
    assert {row.group for row in audit_here(made, groups=["tags"]).groups} == {"tags"}


def test_rare_tags_of_a_topic_with_very_many_are_put_together_and_told(
    made: Path, whole: AuditReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tally, "TAGS_MAX", 2)

    report = audit_here(made)

    for before, after in zip(whole.topics, report.topics, strict=True):
        tags = {row.tag: row.messages for row in report.tags if row.topic == after.topic}
        all_tags = {row.tag: row.messages for row in whole.tags if row.topic == after.topic}
        kept = {tag: count for tag, count in tags.items() if tag != tally.MORE_TAGS}
        assert (after.messages, len(kept)) == (before.messages, 2)
        assert kept == {tag: all_tags[tag] for tag in kept}
        assert after.tags_left_out == tags[tally.MORE_TAGS] == before.messages - sum(kept.values())


def test_percentiles_are_exact_below_128_and_never_too_low() -> None:
    values = [0, 1, 5, 63, 64, 100, 127, 128, 129, 1000, 10**6, 2**40, 2**51 + 1]
    for number in range(1, len(values) + 1):
        numbers, histogram = values[:number], Histogram()
        for value in numbers:  # as tasks would, one by one
            one = Histogram()
            one.add(keyed.np.array([value]))
            histogram.merge(one)
        require_spread(histogram.spread(), numbers)
    assert [bar for bar in histogram.bars() if bar.values][:4] == [
        *((0, 1, 1), (1, 2, 1), (4, 8, 1), (32, 64, 1)),
    ]


# --- duplicates ---


@pytest.mark.feature("P12")
def test_duplicates_by_id_and_key_are_those_of_a_plain_count(
    cut: AuditReport, records: list[Seen]
) -> None:
    report = cut
    messages = ordinary(records)
    wanted = duplicate_rows(messages)
    assert {tuple(row) for row in report.duplicates} == wanted
    assert any(row[1] == "id" and row[4] and row[5] for row in wanted)  # there is something to tell
    expected = {
        (topic, by, value, len(places)): places
        for by, found in (("id", copies_by_id(messages)), ("key", copies_by_key(messages)))
        for topic, values in found.items()
        for value, places in values.items()
        if len(places) > 1
    }
    assert {tuple(one[:4]) for one in report.offenders} == set(expected)
    for one in report.offenders:
        places = [tuple(place[1:]) for place in one.places]
        truth = [
            (place.queue_id, place.queue_offset, place.log_offset, place.store_ms)
            for place in expected[tuple(one[:4])]
        ]
        assert places == truth[: keyed.PLACES_SHOWN]


def test_the_worst_are_named_first_and_only_so_many(made: Path, records: list[Seen]) -> None:
    report = audit_here(made, top=3)

    found = copies_by_key(ordinary(records))
    wanted = sorted(
        (-len(places), topic, key) for topic, keys in found.items() for key, places in keys.items()
    )[:3]
    by_key = [(-one.copies, one.topic, one.value) for one in report.offenders if one.by == "key"]
    assert by_key == wanted
    assert [one.by for one in report.offenders] == ["id"] * 3 + ["key"] * 3


# --- lag ---


def wants_tags(properties: dict[str, str]) -> bool:
    return properties.get("TAGS") in ("Aa", "paid")


def wants_sql(properties: dict[str, str]) -> bool:
    return int(properties["price"]) > 50 and "TAGS" in properties


def wants_stored(properties: dict[str, str]) -> bool:
    return 20 <= int(properties["price"]) <= 60


@pytest.mark.feature("P12")
def test_lag_is_exact_under_tags_and_sql_filters(cut: AuditReport, records: list[Seen]) -> None:
    report = cut
    wants = {"tags": wants_tags, "sql": wants_sql, "stored": wants_stored, "shop": lambda _: True}
    assert {row.group for row in report.lag} == set(wants)
    ends: dict[tuple[str, int], int] = defaultdict(int)
    for one in visible(records):
        ends[one.topic, one.queue_id] = max(ends[one.topic, one.queue_id], one.first + one.count)
    for row in report.lag:
        offset = OFFSETS[f"{row.topic}@{row.group}"].get(row.queue_id, 0)
        lag = lag_of(records, row.topic, row.queue_id, offset, wants[row.group])
        end = ends.get((row.topic, row.queue_id))
        assert (row.consumer_offset, row.end_offset, row.lag) == (offset, end, lag)
        assert row.behind == max((end or 0) - offset, 0)
        left = [
            one.store_ms
            for one in visible(records)
            if (one.topic, one.queue_id) == (row.topic, row.queue_id)
            and one.queue_offset >= offset
            and wants[row.group](one.properties)
        ]
        assert row.oldest_ms == min(left, default=None)
    known = {(row.group, row.topic): (row.lag_is, row.known) for row in report.lag if row.lag}
    assert known == {
        ("tags", "Orders"): ("exact", "given"),
        ("sql", "Orders"): ("exact", "given"),
        ("stored", "Orders"): ("exact", "store"),
        ("shop", "Stock"): ("at most", ""),
        ("shop", "%RETRY%shop"): ("exact", "retries"),
    }
    assert len([row for row in report.lag if row.group == "sql"]) == 3  # one was never read
    total = {row.group: (row.lag, row.lag_is) for row in report.groups}
    assert total["tags"] == (sum(r.lag for r in report.lag if r.group == "tags"), "exact")
    assert total["shop"][1] == "at most"


@pytest.mark.feature("P12")
def test_a_batch_that_is_read_in_part_counts_with_the_rest_of_it(tmp_path: Path) -> None:
    root = golden_stores.unpack("batchcq", tmp_path)
    records = of_manifest(golden_stores.rows("batchcq", "record"))
    batch = next(one for one in records if one.count > 3)
    offset = batch.first + 2
    write_offsets(root, {"BatchT@readers": {batch.queue_id: offset}})

    report = audit_here(
        root, golden_stores.settings("batchcq"), subscriptions={"readers:BatchT": "*"}
    )

    (row,) = [row for row in report.lag if row.queue_id == batch.queue_id]
    last = max(o.first + o.count for o in records if o.queue_id == batch.queue_id)
    assert (row.lag, row.end_offset, row.lag_is) == (last - offset, last, "exact")


def test_subscriptions_in_the_settings_of_a_group_are_known(tmp_path: Path, made: Path) -> None:
    root = shutil.copytree(made, tmp_path / "store")
    text = '{"subscriptionGroupTable":{"tags":{"subscriptionDataSet":[{"topic":"Orders",'
    text += '"expressionType":"TAG","expression":"Aa || paid"}, 3]}, "odd": 4, "shop": {},'
    text += '"idle": {"subscriptionDataSet":[{"topic":"Orders","expressionType":"CLASS"}]}}}'
    (root / "config" / "subscriptionGroup.json").write_text(text)

    stored = audit_here(root, groups=["tags"])

    given = audit_here(made, groups=["tags"], subscriptions=WANTED[:1])
    assert [row.lag for row in stored.lag] == [row.lag for row in given.lag]
    assert {row.known for row in stored.lag} == {"store"}
    assert audit_here(root, groups=["idle"]).groups == []  # a group that never read anything


# --- what came back ---


def require_returned(report: AuditReport, records: list[Seen]) -> None:
    wanted: dict[tuple[Any, ...], list[Seen]] = defaultdict(list)
    for one in visible(records):
        for prefix, kind in (("%RETRY%", "retry"), ("%DLQ%", "dead letter")):
            if one.topic.startswith(prefix):
                known = one.properties
                origin = known.get("DLQ_ORIGIN_TOPIC", known.get("RETRY_TOPIC"))
                group = one.topic.removeprefix(prefix)
                wanted[group, kind, origin, one.reconsume_times].append(one)
    found = {tuple(row[:4]): tuple(row[4:]) for row in report.returned}
    assert found == {
        key: (
            len(mine),
            sum(one.size for one in mine),
            min(one.store_ms for one in mine),
            max(one.store_ms for one in mine),
        )
        for key, mine in wanted.items()
    }


@pytest.mark.feature("P12")
def test_retries_and_dead_letters_are_counted_by_group_origin_and_tries(
    cut: AuditReport, records: list[Seen]
) -> None:
    report = cut

    require_returned(report, records)
    (shop,) = [row for row in report.groups if row.group == "shop"]
    topics = Counter(one.topic for one in records)
    assert (shop.retries, shop.dead_letters) == (topics["%RETRY%shop"], topics["%DLQ%shop"])
    dead = [one.store_ms for one in records if one.topic == "%DLQ%shop"]
    assert shop.oldest_dead_ms == min(dead)
    assert {row.origin for row in report.returned if row.kind == "dead letter"} == {"Stock", None}


def test_retry_topics_of_pops_tell_their_group() -> None:
    known = {"shop", "shop_floor", "a"}
    names = ("shop", "shop_floor", "shop+Orders", "shop_Orders", "shop_floor_Orders", "b_Orders")
    groups = [group_of(name, known) for name in names]
    assert groups == ["shop", "shop_floor", "shop", "shop", "shop_floor", "b_Orders"]


# --- traces ---


@pytest.mark.feature("P12")
def test_traces_are_joined_with_the_messages_that_they_tell_of(
    tmp_path: Path, made: Path, records: list[Seen]
) -> None:
    root = shutil.copytree(made, tmp_path / "store")
    stored: dict[str, int] = {}
    for one in ordinary(records):
        if one.topic == "Orders":
            stored.setdefault(one.properties.get("UNIQ_KEY", offset_id(one)), one.store_ms)
    ids = list(stored)
    traces: list[TraceRecord] = []
    for number, unique in enumerate(ids[:40]):
        traces.append(sent(unique, "Orders", cost_ms=number, success=number != 7))
        at = stored[unique] + 10 * number
        if number % 4 != 3:  # else nobody consumed it
            first_ok = number % 5 != 0
            traces += tried(unique, "g1", f"r{number}", at, number % 7, ok=first_ok)
            if not first_ok and number % 10 == 0:
                traces += tried(unique, "g1", f"s{number}", at + 500, 2, ok=True, times=1)
        if number % 8 == 2:
            traces += tried(unique, "g2", f"t{number}", at + 3, 1, ok=True)[:1]  # no end is known
    traces += tried("NOBODY", "g1", "zz", START_MS, 1, ok=True)
    append_traces(root, [*traces, *traces[:20]], START_MS + 100 * HOUR_MS)

    report = audit_cut(root, top=5)

    numbers = range(40)
    taken = [n for n in numbers if n % 4 != 3]
    failed = [n for n in taken if n % 5 == 0]
    mended = [n for n in failed if n % 10 == 0]
    tried_by_g2 = [n for n in numbers if n % 8 == 2]
    (topic,) = report.trace_topics
    assert tuple(topic[:8]) == (
        *("Orders", len(ids), 40, 40, 1),
        *(len(taken) - len(failed) + len(mended), len(failed) - len(mended)),
        len(ids) - len(taken),
    )
    require_spread(topic.send_cost, list(numbers))
    g1, g2 = report.trace_groups
    attempts = len(taken) + len(mended)
    done = len(taken) - len(failed) + len(mended)
    assert tuple(g1[:7]) == ("g1", "Orders", len(taken), done, attempts, len(failed), 0)
    require_spread(g1.latency, [10 * n for n in taken])
    require_spread(g1.cost, [n % 7 for n in taken] + [2] * len(mended))
    assert tuple(g2[:7]) == ("g2", "Orders", len(tried_by_g2), 0, len(tried_by_g2), 0, 8 - 3)
    assert (report.read.trace_records, report.read.trace_ids_unmatched) == (len(traces) + 20, 1)
    left = sorted((stored[u], u) for n, u in enumerate(ids) if n >= 40 or n % 4 == 3)[:5]
    assert [(one.place.store_ms, one.message_id) for one in report.unconsumed] == left
    only = audit_here(root, groups=["tags"])
    assert (only.trace_groups, len(only.trace_topics)) == ([], 1)


def test_a_message_without_an_id_is_known_by_its_place(tmp_path: Path, made: Path) -> None:
    root = shutil.copytree(made, tmp_path / "store")
    bare = next(one for one in ordinary(of_log(root)) if "UNIQ_KEY" not in one.properties)
    append_traces(root, [sent(offset_id(bare), bare.topic)], START_MS + 100 * HOUR_MS)

    report = audit_here(root)

    assert [(row.topic, row.traced, row.sent) for row in report.trace_topics] == [
        (bare.topic, 1, 1)
    ]


# --- what cannot be audited ---


def test_damage_is_told_or_passed_over_and_counted(tmp_path: Path, made: Path) -> None:
    root = shutil.copytree(made, tmp_path / "store")
    records = of_log(root)
    hit = records[10]
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[hit.log_offset : hit.log_offset + 8] = b"\xff" * 8
    path.write_bytes(data)

    with pytest.raises(CorruptRecordError, match="bad-records=skip"):
        audit_here(root)
    report = audit_here(root, bad_records="skip")

    assert report.read.bad_places == 1
    assert report.read.records == len(records) - 1


def test_a_missing_segment_is_told_or_passed_over_and_counted(tmp_path: Path, made: Path) -> None:
    root = shutil.copytree(made, tmp_path / "store")
    sorted((root / "commitlog").iterdir())[1].unlink()

    with pytest.raises(NotAStoreError, match="is missing"):
        audit_here(root)

    assert audit_here(root, bad_records="skip").read.bad_places == 1


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"topics": [","]}, "topic"),
        ({"groups": ["nobody"]}, "nobody"),
        ({"since": "yesterday"}, "since"),
        ({"since": "now", "until": "now-1h"}, "until"),
        ({"subscriptions": ["tags=A"]}, "GROUP:TOPIC"),
        ({"subscriptions": ["tags:Orders=sql92:price >"]}, "price >"),
        ({"subscriptions": ["tags:Orders=||"]}, "no tag"),
        ({"subscriptions": {"nobody:Orders": "A"}}, "nobody"),
        ({"bad_records": "keep"}, "bad-records"),
        ({"top": 0}, "top"),
    ],
)
def test_what_cannot_work_is_told_in_one_sentence(
    given: dict[str, Any], named: str, made: Path
) -> None:
    with pytest.raises(ConfigError, match=named):
        audit_here(made, **given)


def test_a_store_at_a_distance_is_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("orbitmq.spark.start.session.make_context")

    done = call("spark", "audit", "--from", "s3://bucket/store?endpoint=http://127.0.0.1:1")

    assert done.returncode == 2
    assert "s3://bucket/store" in done.stderr
    assert "copy the store to a directory" in done.stderr


def test_a_subscription_is_tags_or_an_expression() -> None:
    assert parse_subscription(" g : T = A || B ")[1].text == "A || B"
    (group, topic), wanted = parse_subscription("g:T=SQL92: a = 'x=1:2'")
    assert (group, topic, wanted.text) == ("g", "T", "sql92:a = 'x=1:2'")


def test_an_empty_store_has_an_empty_report(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()

    report = audit_here(tmp_path)

    assert (report.topics, report.read.records, report.groups) == ([], 0, [])
    assert "There is no message" in report.html()


def test_units_of_queues_are_only_read_where_they_can_be(made: Path) -> None:
    plan = sources.plan_log(made)
    for one in (("g", "../x", ("", 0), 5), ("g", "Orders", ("", 0), 0), ("g", "No", ("", 0), 9)):
        assert sources._unit_log_offset(plan.layout, sources.Standing(*one)) is None
