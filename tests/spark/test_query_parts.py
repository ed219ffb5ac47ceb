"""The parts of a query over log and lake, without Spark: what the log leaves out, what is found in files."""

from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import ConfigError, StaleQueryError
from orbitmq.spark.jobs.query.figures import QueryFigures, SideFigures
from orbitmq.spark.jobs.query.lake import Lake, read_lake
from orbitmq.spark.jobs.query.lake_search import candidates, find
from orbitmq.spark.source.held import Held, HeldSpan
from orbitmq.spark.source.metrics import read_metrics
from orbitmq.spark.source.options import ReadOptions
from spark.query_world import FIRST_MS, World, offsets_of
from spark.rebuild_world import InProcessSpark
from spark.table_world import table_rows

pytestmark = pytest.mark.spark

SPARK: Any = InProcessSpark()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A store with messages of three days, most of them in a lake."""
    made = World(tmp_path_factory.mktemp("parts"))
    for _ in range(3):
        made.send(60, days=1)
        made.export(topics=["Orders", "Payments"])
    made.send(20)
    return made


@pytest.fixture(scope="module")
def lake(world: World) -> Lake:
    return read_lake(world.lake)


def wanted(**given: str) -> ReadOptions:
    return ReadOptions.parse({"path": "/", **given})


@pytest.mark.feature("P11")
def test_what_is_first_and_last_in_a_file_is_found_in_it(world: World, lake: Lake) -> None:
    for part in lake.files:
        offsets = list(offsets_of(part.path))
        for one in (world.sent[offset] for offset in (offsets[0], offsets[-1])):
            for given in (
                {"keys": f"order-{one.amount}"},
                {"ids": str(one.message_id).lower()},
                {"ids": one.offset_id},
            ):
                hits = find(SPARK, lake.root, lake.files, wanted(**given))

                assert hits.log_offsets == [one.log_offset], given
                assert hits.parts == [part]


@pytest.mark.feature("P11")
def test_files_that_cannot_hold_a_key_are_not_read(lake: Lake) -> None:
    none = find(SPARK, lake.root, lake.files, wanted(keys="zzz"))
    one = find(SPARK, lake.root, lake.files, wanted(keys="order-72"))
    shared = find(SPARK, lake.root, lake.files, wanted(keys="hot"))

    assert (none.parts, none.log_offsets) == ([], [])
    assert 0 < none.read_bytes < one.read_bytes <= shared.read_bytes
    assert len(one.parts) == 1
    assert len(shared.log_offsets or ()) == 60


@pytest.mark.feature("P11")
def test_manifests_leave_out_files_by_topic_and_time_but_none_too_many(lake: Lake) -> None:
    third = sorted(lake.files, key=lambda part: part.first_ms or 0)[-1]
    assert third.last_ms is not None
    assert third.first_ms is not None
    day = [part for part in lake.files if part.first_ms and part.first_ms > third.first_ms - 10_000]

    assert len(lake.files) == 6
    assert len(candidates(lake.files, wanted(topics="Orders"))) == 3
    assert third in candidates(lake.files, wanted(startTime=str(third.last_ms)))
    assert third not in candidates(lake.files, wanted(startTime=str(third.last_ms + 1)))
    assert third in candidates(lake.files, wanted(endTime=str(third.first_ms + 1)))
    assert third not in candidates(lake.files, wanted(endTime=str(third.first_ms)))
    since = str(third.first_ms - 10_000)
    assert candidates(lake.files, wanted(startTime=since)) == day
    assert len(day) == 2


@pytest.mark.feature("P11")
def test_the_log_of_topics_that_the_lake_has_is_not_read_again(
    world: World, lake: Lake, tmp_path: Path
) -> None:
    without = lake.held({(): 0}).to_text()
    given: dict[str, object] = {"path": world.store, "config": world.conf, "topics": "Orders"}

    rows = table_rows(**given, without=without, metricsPath=tmp_path / "some")
    table_rows(**given, metricsPath=tmp_path / "all")

    some, everything = read_metrics(tmp_path / "some"), read_metrics(tmp_path / "all")
    mine = [one for one in world.sent.values() if one.topic == "Orders"]
    assert [row["log_offset"] for row in rows] == [one.log_offset for one in mine[60:]]
    assert some.found_by == ["ranges held elsewhere"]
    assert some.log_bytes < everything.log_bytes / 4


def test_ranges_are_the_same_after_their_way_as_text() -> None:
    held = Held(
        {
            ("Orders",): (HeldSpan(0, 9), HeldSpan(9, 20, FIRST_MS)),
            ("a", "b", 3): (HeldSpan(5, 5),),
        },
        (HeldSpan(2, 4),),
        {(): 7, ("a", "b", 3): 1},
    )

    again = ReadOptions.parse({"path": "/", "without": held.to_text()}).without

    assert again == held
    for text in ("{}", "no JSON", '{"spans":[["a",1]],"others":[],"firsts":[]}'):
        with pytest.raises(ConfigError, match="without"):
            ReadOptions.parse({"path": "/", "without": text})


def test_what_was_deleted_since_is_missed_unless_all_of_it_is_held() -> None:
    held = Held({("Orders",): (HeldSpan(0, 50), HeldSpan(50, 90, FIRST_MS))}, firsts={(): 10})
    orders = held.stretches(["Orders"])

    assert orders == [(0, 50)]
    assert held.stretches([]) == held.stretches(["Orders", "Payments"]) == []
    held.require_all_there((), 10, [], "log")
    held.require_all_there((), 50, orders, "log")
    for start, stretches in ((51, orders), (11, [])):
        with pytest.raises(StaleQueryError, match=f"from 10 to {start}"):
            held.require_all_there((), start, stretches, "log")


def test_lists_may_be_json_where_a_text_has_a_comma() -> None:
    assert wanted(keys='["a,b", "c", "a,b"]').keys == ("a,b", "c")
    assert wanted(keys="[a, b]").keys == ("[a", "b]")
    with pytest.raises(ConfigError, match="names nothing"):
        wanted(keys="[]")


def test_a_line_says_what_was_read_of_how_much() -> None:
    from orbitmq.cli.spark.query_text import figures_text

    log = SideFigures(found_by=("store times", "index"), read_bytes=1024, of_bytes=4096)
    lake = SideFigures(found_by=(), read_bytes=None, of_bytes=1, files=2, of_files=3)
    brokers = SideFigures(found_by=(), read_bytes=10, of_bytes=None)

    assert figures_text(QueryFigures(log=log, lake=lake)) == (
        "log: store times and index, 1.0 KiB of 4.0 KiB read (25.00%); "
        "lake: full scan, 2 of 3 files, bytes not counted"
    )
    assert figures_text(QueryFigures(log=brokers, lake=None)) == "log: full scan, 10 B read"
