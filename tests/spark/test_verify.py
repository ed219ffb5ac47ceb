"""`orbitmq spark verify` on real Spark: report, table, command, and a store that a broker has open."""

import itertools
import json
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from command import run
from golden_stores import GOLDEN, damage, settings, unpack
from orbitmq.errors import NotAStoreError, StoreError
from orbitmq.message import AppendRequest
from orbitmq.spark.jobs.verify.job import FINDING_SCHEMA, verify
from orbitmq.spark.progress import JobProgress, StageProgress
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.store.verify.check import check_store

pytestmark = pytest.mark.spark

FAULTS = ("flip-early", "flip-late-clean", "tail-size-only", "cq-zero-unit", "index-chain-self")
OWN = {"maxHashSlotNum": "1000", "maxIndexNum": "4000"}


@pytest.mark.feature("P6")
@pytest.mark.parametrize("store", ["mixed", "batchcq"])
def test_a_store_of_a_real_broker_has_no_findings(
    spark: SparkSession, store: str, tmp_path: Path
) -> None:
    root = unpack(store, tmp_path)

    report = verify(spark, root, settings(store), split_bytes=200_000)

    assert report.findings == ()
    assert report.records == check_store(root, settings(store)).records


@pytest.mark.feature("P6")
def test_findings_are_those_of_a_check_also_as_a_table(spark: SparkSession, tmp_path: Path) -> None:
    root = unpack("crashed", tmp_path)
    for variant in FAULTS:
        damage(root, variant)
    wanted = check_store(root, settings("crashed"))
    shown: list[StageProgress] = []

    with JobProgress(spark, show=shown.append) as progress:
        report = verify(spark, root, settings("crashed"), progress, split_bytes=30_000)

    assert len(wanted.findings) >= len(FAULTS)
    assert report.findings == wanted.findings
    assert (report.left_out, report.lagging) == (wanted.left_out, wanted.lagging)
    assert (report.records, report.log_start, report.log_end) == (
        wanted.records,
        wanted.log_start,
        wanted.log_end,
    )
    table = report.findings_frame(spark)
    assert table.schema == FINDING_SCHEMA
    assert [
        (row.kind, row.file, row.position, row.cause, row.advice) for row in table.collect()
    ] == [
        (found.kind, str(found.path), found.position, found.cause, found.advice)
        for found in wanted.findings
    ]
    assert [progress.stage for progress in shown if progress.finished] == ["index", "log", "queues"]
    assert [p.bytes == p.total_bytes for p in shown if p.finished] == [True] * 3


def test_no_findings_while_a_broker_appends(spark: SparkSession, tmp_path: Path) -> None:
    config = StoreConfig(
        root=tmp_path / "s",
        segment_bytes=256 * 1024,
        cq_file_bytes=2000,
        index_slots=1000,
        index_items=4000,
    )
    over = threading.Event()
    with MessageStore.open(config) as store:

        def append() -> None:
            for number in itertools.count():
                if number >= 200 and over.wait(0.0005):
                    return
                store.append(
                    AppendRequest("T", number % 4, b"b" * 200, b"KEYS\x01k%d\x02" % number)
                )

        writer = threading.Thread(target=append)
        writer.start()
        try:
            while store.max_offset("T", 3) < 50:
                over.wait(0.01)
            # Appended is not dispatched: without any queue file a guess would be RocketMQ's default.
            settings = {**OWN, "mappedFileSizeConsumeQueue": "2000"}
            reports = [verify(spark, config.root, settings, split_bytes=50_000) for _ in range(2)]
        finally:
            over.set()
            writer.join()

    assert [report.findings for report in reports] == [(), ()]
    assert all(report.live for report in reports)
    assert 0 < reports[0].records < reports[1].records


def test_what_is_no_store_is_one_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match="is no message store"):
        verify(spark, tmp_path / "nowhere")


def test_an_error_in_a_task_comes_back_as_ours(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = unpack("timer", tmp_path)
    from orbitmq.spark.jobs.verify import runner

    cut = runner.cut_view

    def cut_and_lose(log, split_bytes):
        splits = cut(log, split_bytes)
        return [split._replace(path=split.path + "-gone") for split in splits]

    monkeypatch.setattr(runner, "cut_view", cut_and_lose)

    with pytest.raises(StoreError, match="-gone"):
        verify(spark, root, settings("timer"))


@pytest.mark.feature("P6")
def test_the_command_says_what_store_check_says(tmp_path: Path) -> None:
    root = damage(unpack("crashed", tmp_path), "flip-late-clean")
    options = [root, "--config", GOLDEN / "crashed.conf", "--output", "json"]

    found = run("spark", "verify", *options, "--master", "local[2]")

    wanted = run("store", "check", *options)
    assert found.returncode == wanted.returncode == 1, found.stderr
    assert json.loads(found.stdout) == json.loads(wanted.stdout)
    stages = [json.loads(line)["stage"] for line in found.stderr.splitlines() if line[:1] == "{"]
    assert set(stages) == {"index", "log", "queues"}


def test_the_command_refuses_what_is_no_store_before_spark_starts(tmp_path: Path) -> None:
    found = run("spark", "verify", tmp_path)

    assert found.returncode == 4
    assert "is no message store" in found.stderr
    assert "Java" not in found.stderr
