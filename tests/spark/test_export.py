"""`orbitmq spark export`: topics as tables, each message once, whoever reads them."""

import importlib
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from command import call
from orbitmq.errors import ConfigError, CorruptRecordError, PipelineError
from orbitmq.files.disk import Disk
from orbitmq.message import SysFlag
from orbitmq.spark import export
from orbitmq.spark.jobs.export.covered import Covered, Span, advanced, joined
from orbitmq.spark.jobs.export.job import ExportJobs, From
from orbitmq.spark.jobs.export.names import table_name
from orbitmq.spark.jobs.export.notes import Notes
from orbitmq.spark.jobs.export.options import ExportOptions
from orbitmq.spark.jobs.export.report import ExportReport
from orbitmq.spark.progress import JobProgress
from spark.export_world import (
    FORMATS,
    SETTINGS,
    TOPICS,
    append,
    append_body,
    duckdb_answer,
    export_here,
    lake_rows,
    leftovers,
    log_rows,
    require_each_once,
)
from spark.rebuild_world import InProcessSpark

pytestmark = pytest.mark.spark
VISIBLE = TOPICS[:2]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    append(tmp_path / "store", 400)
    return tmp_path / "store"


@pytest.mark.feature("P10", "P18")
@pytest.mark.parametrize("format_", FORMATS)
def test_every_row_is_there_once_for_readers_of_the_format(
    format_: str, spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"

    first = export(spark, lake, store=store, settings=SETTINGS, format=format_)
    append(store, 100, seed=8)
    second = export(spark, lake, store=store, settings=SETTINGS, format=format_)
    third = export(spark, lake, store=store, settings=SETTINGS, format=format_)

    wanted = {topic: log_rows(store, topic) for topic in VISIBLE}
    require_each_once(lake, format_, wanted)
    if format_ == "parquet":
        assert spark.read.parquet(str(lake / "Orders")).count() == len(wanted["Orders"])
    assert first.rows + second.rows == sum(map(len, wanted.values()))
    assert second.rows < first.rows
    assert (third.rows, third.files, third.commit) == (0, 0, 2)
    assert not leftovers(lake)


@pytest.mark.feature("P10")
def test_files_lie_by_topic_and_day_and_the_manifest_names_them(
    store: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"

    report = export_here(store, lake, topics=["Orders", "%RETRY%group"])

    manifest = Notes(lake, Disk()).last()
    assert manifest is not None
    files = sorted(str(path.relative_to(lake)) for path in lake.rglob("*.parquet"))
    assert sorted(file.path for file in manifest.files) == files
    assert {path.split("/")[0] for path in files} == {"Orders", "~25RETRY~25group"}
    assert all(path.split("/")[1].startswith("day=20") for path in files)
    assert manifest.end_offset == report.end_offset
    offsets = [row[0] for row in log_rows(store, "Orders")]
    mine = [file for file in manifest.files if file.topic == "Orders"]
    assert min(file.first_log_offset for file in mine) == offsets[0]
    assert max(file.last_log_offset for file in mine) == offsets[-1]
    days = duckdb_answer(
        "select count(*) from read_parquet("
        f"'{lake}/Orders/**/*.parquet', hive_partitioning=true) where day = store_time::date"
    )
    assert days == [(len(offsets),)]


@pytest.mark.feature("P18")
@pytest.mark.parametrize("format_", FORMATS)
def test_a_lake_that_began_late_is_filled_in_from_the_first_message(
    format_: str, store: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    rows = log_rows(store, "Orders")
    middle = rows[len(rows) // 2][0]

    export_here(store, lake, format=format_, from_offset=middle)
    assert lake_rows(lake, format_, "Orders") == rows[len(rows) // 2 :]
    append(store, 30, seed=9)
    export_here(store, lake, format=format_)
    assert lake_rows(lake, format_, "Orders") == log_rows(store, "Orders")[len(rows) // 2 :]
    export_here(store, lake, format=format_, from_offset=0, topics=["Orders"])
    export_here(store, lake, format=format_, from_offset=0, topics=["Orders"])
    assert lake_rows(lake, format_, "Orders") == log_rows(store, "Orders")
    export_here(store, lake, format=format_, since="0")

    require_each_once(lake, format_, {topic: log_rows(store, topic) for topic in VISIBLE})


@pytest.mark.feature("P18")
def test_a_time_is_where_a_lake_begins(store: Path, tmp_path: Path) -> None:
    export_here(store, tmp_path / "none", since="now-0s")
    export_here(store, tmp_path / "all", since="now-1h")

    assert lake_rows(tmp_path / "none", "parquet", "Orders") == []
    assert lake_rows(tmp_path / "all", "parquet", "Orders") == log_rows(store, "Orders")


@pytest.mark.feature("P10")
def test_a_topic_that_is_asked_for_later_is_brought_from_its_first_message(
    store: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"

    export_here(store, lake, topics=["Orders"])
    assert lake_rows(lake, "parquet", "Payments") == []
    append(store, 30, ("Orders", "Payments", "New"), seed=9)
    export_here(store, lake, topics=["Payments"])
    export_here(store, lake)

    require_each_once(
        lake, "parquet", {topic: log_rows(store, topic) for topic in (*VISIBLE, "New")}
    )
    assert lake_rows(lake, "parquet", "%RETRY%group") == []
    export_here(store, lake, topics=["%RETRY%group"])
    assert lake_rows(lake, "parquet", "%RETRY%group") == log_rows(store, "%RETRY%group")


@pytest.mark.feature("P18")
@pytest.mark.parametrize("format_", FORMATS)
def test_a_body_that_cannot_be_unpacked_goes_to_the_dlq_and_stops_nobody(
    format_: str, store: Path, tmp_path: Path
) -> None:
    lake, good = tmp_path / "lake", log_rows(store, "Orders")
    append_body(store, "Orders", b"no zlib", SysFlag.COMPRESSED.value)

    report = export_here(store, lake, format=format_)

    assert lake_rows(lake, format_, "Orders") == good
    (bad,) = lake_rows(lake, format_, "Orders", dlq=True)
    assert bad[1:4] == ("Orders", 0, 67)
    assert bad[-1] == b"no zlib"
    assert report.topics["Orders"].misfits == report.misfits == 1
    reasons = duckdb_answer(f"select reason from read_parquet('{lake}/Orders~dlq/**/*.parquet')")
    assert "cannot be unpacked" in reasons[0][0]


@pytest.mark.feature("P10")
def test_another_store_or_format_is_refused_and_changes_nothing(
    store: Path, tmp_path: Path
) -> None:
    lake, other, short = tmp_path / "lake", tmp_path / "other", tmp_path / "short"
    export_here(store, lake)
    before = lake_rows(lake, "parquet", "Orders")
    append(other, 900, seed=99)
    append(short, 10, seed=98)

    for root, words in ((other, "another store"), (short, "the log ends at")):
        with pytest.raises(PipelineError, match=words):
            export_here(root, lake)
    with pytest.raises(ConfigError, match="are parquet"):
        export_here(store, lake, format="delta")
    with pytest.raises(ConfigError, match="no message of it"):
        export_here(store, tmp_path / "misspelled", topics=["Ordrs"])

    assert lake_rows(lake, "parquet", "Orders") == before
    assert not leftovers(lake)


@pytest.mark.feature("P10")
def test_what_was_deleted_before_it_was_exported_is_told_or_passed_over(
    store: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    export_here(store, lake)
    held = len(log_rows(store, "Orders"))
    append(store, 900, seed=3)
    segments = sorted((store / "commitlog").iterdir())
    rows = log_rows(store, "Orders")
    first_kept = int(segments[-2].name)
    for segment in segments[:-2]:
        segment.unlink()

    with pytest.raises(PipelineError, match="deleted before it was exported"):
        export_here(store, lake)
    export_here(store, lake, bad_records="skip")

    kept = [row for number, row in enumerate(rows) if number < held or row[0] >= first_kept]
    assert lake_rows(lake, "parquet", "Orders") == kept


@pytest.mark.feature("P10")
def test_a_damaged_record_stops_an_export_or_is_left_out_alone(store: Path, tmp_path: Path) -> None:
    lake, rows = tmp_path / "lake", log_rows(store, "Orders")
    victim = next(row for row in rows[3:] if len(row[-1]) > 20)
    segment = min((store / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[data.index(victim[-1]) + 5] ^= 0xFF
    segment.write_bytes(data)

    with pytest.raises(CorruptRecordError, match="checksum"):
        export_here(store, lake)
    assert not leftovers(lake)
    report = export_here(store, lake, bad_records="skip")

    assert report.bad_places == 1
    assert lake_rows(lake, "parquet", "Orders") == [row for row in rows if row != victim]


@pytest.mark.feature("P16")
def test_what_cannot_be_is_said_in_one_sentence_before_spark_starts(
    store: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    cases: tuple[tuple[tuple[Any, ...], str], ...] = (
        (("--from", tmp_path / "nowhere", "--to", lake), "no such directory"),
        (("--from", tmp_path, "--to", lake), "is no message store"),
        (("--to", lake), "give a store directory"),
        (("--from", store, "--namesrv", "a:1", "--to", lake), "one of them"),
        (("--from", store, "--to", "gs://bucket/lake"), "a directory that all machines see"),
        (("--from", store, "--to", lake, "--since", "yesterday"), "write a time as"),
        (("--from", store, "--to", lake, "--since", "now", "--from-offset", "0"), "not both"),
        (("--from", store, "--to", lake, "--topic", " , "), "names no topic"),
        (("--from", store, "--to", lake, "--follow", "--dry-run"), "leave --follow out"),
    )

    for arguments, words in cases:
        done = call("spark", "export", *arguments)
        assert done.returncode == 2 or "store" in words, done.stderr
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not lake.exists()


@pytest.mark.feature("P10")
def test_a_dry_run_counts_and_writes_nothing(store: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"

    report = export_here(store, lake, dry_run=True)

    rows = {topic: len(log_rows(store, topic)) for topic in VISIBLE}
    assert {name: topic.rows for name, topic in report.topics.items()} == rows
    assert report.left_out == len(log_rows(store, "%RETRY%group"))
    assert not lake.exists()


@pytest.mark.feature("P10")
def test_a_follower_brings_what_comes_until_it_is_stopped(store: Path, tmp_path: Path) -> None:
    lake, over = tmp_path / "lake", threading.Event()
    rounds: list[int] = []

    def show(report: ExportReport) -> None:
        rounds.append(report.rows)
        if len(rounds) < 3:
            append(store, 20, ("Orders",), seed=len(rounds))
        else:
            over.set()

    spark: Any = InProcessSpark()
    with JobProgress(spark) as progress:
        options = ExportOptions.of(lake)
        jobs = ExportJobs(spark, From.of(store, "", SETTINGS), options, progress)
        jobs.follow(over, show, 0.0)

    assert rounds[1:] == [20, 20]
    assert lake_rows(lake, "parquet", "Orders") == log_rows(store, "Orders")


@pytest.mark.feature("P10")
def test_a_follower_looks_at_its_source_every_so_many_seconds_whatever_a_round_takes(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, waits = [100.0], list[float]()

    class Over(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return len(waits) == 2

    def show(_: ExportReport) -> None:
        now[0] += 3.0 if not waits else 30.0  # so long did the round take

    clock = SimpleNamespace(monotonic=lambda: now[0], time_ns=time.time_ns)
    monkeypatch.setattr("orbitmq.spark.jobs.export.job.time", clock)
    spark: Any = InProcessSpark()
    with JobProgress(spark) as progress:
        options = ExportOptions.of(tmp_path / "lake")
        jobs = ExportJobs(spark, From.of(store, "", SETTINGS), options, progress)
        jobs.follow(Over(), show, 5.0)

    assert waits == [2.0, 0.0]


def test_the_benchmark_of_exports_runs_and_gets_right_results(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "bench")
    bench, logs = importlib.import_module("lake_export"), importlib.import_module("spark_log")
    log = logs.Log(tmp_path / "log", 200, files=bench.SMOKE_FILES)
    log.make()

    found = bench.measure(bench.Sides(spark, log, tmp_path), 1)

    assert found.keys() == {"spark", *FORMATS}
    assert all(row["bytes"] > 200 * log.body_bytes for row in found.values())


def test_ranges_grow_at_both_ends_and_nothing_is_read_twice() -> None:
    held = Span(100, 200)

    assert advanced(None, None, 10, 50) == ([Span(10, 50)], Span(10, 50))
    assert advanced(None, 20, 10, 50) == ([Span(20, 50)], Span(20, 50))
    assert advanced(None, 90, 10, 50) == ([], Span(50, 50))
    assert advanced(held, None, 10, 200) == ([], held)
    assert advanced(held, None, 10, 300) == ([Span(200, 300)], Span(100, 300))
    assert advanced(held, 150, 10, 200) == ([], held)
    assert advanced(held, 0, 10, 300) == ([Span(10, 100), Span(200, 300)], Span(10, 300))
    assert joined([Span(5, 9), Span(0, 5), Span(20, 30)]) == [Span(0, 9), Span(20, 30)]
    covered = Covered({("a",): held, ("t", "b", 0): Span(0, 1)}, None)
    assert Covered.from_json(json.loads(json.dumps(covered.to_json()))) == covered


def test_names_of_tables_are_names_of_directories() -> None:
    names = ["Orders", "%DLQ%g", "a|b", "../../etc", "", "a/b", "x" * 300, "x" * 301, "é"]

    tables = [table_name(name) for name in names]

    assert tables[:3] == ["Orders", "~25DLQ~25g", "a~7Cb"]
    assert len(set(tables)) == len(names)
    assert all(name and "/" not in name and "." not in name for name in tables)
    assert max(map(len, tables)) < 240
    assert table_name("Orders", dlq=True) == "Orders~dlq"
