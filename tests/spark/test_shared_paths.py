"""Paths that travel to executors: absolute from the driver on, and one sentence where they are not there."""

import errno
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

from golden_stores import settings, unpack
from log_builder import LogBuilder, write_log
from orbitmq.errors import StoreError, StoreIOError
from orbitmq.log_read import Split
from orbitmq.log_read.segment import ZEROS_BYTES, written_end
from orbitmq.spark import shared_paths
from orbitmq.spark.jobs.rebuild.job import RebuildOptions, rebuild
from orbitmq.spark.jobs.verify.job import verify
from orbitmq.spark.progress import JobProgress, StageProgress
from orbitmq.spark.shared_paths import absolute_settings, require_seen
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.schemas import MESSAGE_SCHEMA
from orbitmq.spark.source.segment import open_segment
from orbitmq.spark.streams.store import StoreStreamReader
from orbitmq.units import MiB
from spark.rebuild_world import InProcessSpark, made_files
from spark.table_world import read_tasks, table_reader

SEGMENT = 8 * MiB


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a store of 20 records in a segment whose zeros are data to the file system."""
    builder = LogBuilder(segment_bytes=SEGMENT)
    for number in range(20):
        builder.append(body=b"x" * 100, KEYS=f"k{number}")
    return write_log(builder, tmp_path / "driver" / "store")


@pytest.fixture
def executor(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in the driver's directory; return another one."""
    monkeypatch.chdir(root.parent)
    other = tmp_path / "executor"
    other.mkdir()
    return other


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_paths.TaskContext, "get", object)


@pytest.mark.feature("P15")
def test_a_table_of_a_relative_path_is_read_in_any_working_directory(
    root: Path, executor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = table_reader(path="store", metricsPath="figures")
    tasks = reader.partitions()

    monkeypatch.chdir(executor)
    rows = read_tasks(reader, tasks)

    assert len(rows) == 20
    assert list((root.parent / "figures").glob("*.json"))


@pytest.mark.feature("P15")
def test_a_rebuild_of_relative_paths_runs_in_any_working_directory(
    executor: Path, tmp_path: Path
) -> None:
    store = unpack("timer", tmp_path / "driver")
    expected = made_files(store)
    spark = InProcessSpark(executor)

    options = RebuildOptions(to=Path("made"))
    report = rebuild(spark, Path(store.name), settings("timer"), options)  # type: ignore[arg-type]

    assert report.root == tmp_path / "driver" / "made"
    assert made_files(report.root) == expected


@pytest.mark.spark
@pytest.mark.feature("P15")
def test_a_relative_path_is_verified_by_workers_elsewhere(
    spark: SparkSession, executor: Path, tmp_path: Path
) -> None:
    store = unpack("timer", tmp_path / "driver")

    report = verify(spark, Path(store.name), settings("timer"))

    assert report.findings == ()
    assert report.records > 0


def test_directories_of_the_log_in_a_broker_conf_are_absolute_too(
    root: Path, executor: Path
) -> None:
    given = {
        "storePathCommitLog": "a, /b",
        "readOnlyCommitLogStorePaths": "c",
        "flushInterval": "1",
    }
    conf = root.parent / "broker.conf"
    conf.write_text("storePathCommitLog=a\n")

    here = root.parent
    assert absolute_settings(given) == {
        "storePathCommitLog": f"{here}/a,/b",
        "readOnlyCommitLogStorePaths": f"{here}/c",
        "flushInterval": "1",
    }
    options = ReadOptions.parse({"path": "store", "config": "broker.conf"})
    assert options.settings == {"storePathCommitLog": f"{here}/a"}
    assert options.config == str(conf)


@pytest.mark.feature("P15")
@pytest.mark.usefixtures("in_task")
def test_an_executor_without_the_store_says_so(root: Path) -> None:
    there = root / "commitlog" / f"{0:020d}"
    away = f"/nowhere{there}"

    with pytest.raises(StoreError, match=r"on \S+ does not see this directory.*at the same path"):
        open_segment(away, 0)
    with pytest.raises(StoreError, match="through the brokers"):
        require_seen("/nowhere/store")
    require_seen(root)
    assert len(open_segment(str(there), 0).data) == SEGMENT


@pytest.mark.usefixtures("in_task")
def test_a_segment_that_was_deleted_is_told_from_a_store_that_is_not_there(root: Path) -> None:
    gone = root / "commitlog" / f"{SEGMENT:020d}"

    with pytest.raises(StoreIOError, match="was deleted since") as caught:
        open_segment(str(gone), SEGMENT)

    assert caught.value.errno == errno.ENOENT


@pytest.mark.usefixtures("in_task")
def test_a_stream_that_may_skip_does_not_skip_a_store_that_its_executor_does_not_see(
    root: Path,
) -> None:
    options = ReadOptions.parse({"path": str(root), "badRecords": "skip"})
    reader = StoreStreamReader(options, MESSAGE_SCHEMA)
    deleted = Split(str(root / "commitlog" / f"{SEGMENT:020d}"), SEGMENT, SEGMENT, SEGMENT + 9, 99)
    away = deleted._replace(path=f"/nowhere{deleted.path}")

    assert list(reader.read(InputPartition(deleted))) == []
    with pytest.raises(StoreError, match="does not see this directory"):
        list(reader.read(InputPartition(away)))


@pytest.mark.feature("P16")
def test_progress_of_a_rebuild_counts_what_was_written(root: Path) -> None:
    shown: list[StageProgress] = []
    spark = InProcessSpark()

    with JobProgress(spark, show=shown.append) as progress:  # type: ignore[arg-type]
        rebuild(spark, root, progress=progress)  # type: ignore[arg-type]

    scan = next(stage for stage in shown if stage.stage == "scan" and stage.finished)
    assert 0 < scan.total_bytes <= ZEROS_BYTES


@pytest.mark.spark
@pytest.mark.feature("P16")
def test_progress_of_a_verification_counts_what_was_written(
    spark: SparkSession, root: Path
) -> None:
    shown: list[StageProgress] = []
    index = {"maxHashSlotNum": "10", "maxIndexNum": "100000"}
    rebuild(InProcessSpark(), root, index)  # type: ignore[arg-type]

    with JobProgress(spark, show=shown.append) as progress:
        verify(spark, root, index, progress)

    totals = {stage.stage: stage.total_bytes for stage in shown if stage.finished}
    assert 0 < totals["log"] <= ZEROS_BYTES
    assert totals["index"] == 40 + 10 * 4 + 21 * 20  # header, slots, entries from 1 to 20


@pytest.mark.parametrize("last", [0, 1, ZEROS_BYTES - 1, ZEROS_BYTES, 5 * ZEROS_BYTES + 7])
def test_what_was_written_ends_close_behind_its_last_byte(last: int) -> None:
    data = np.zeros(6 * ZEROS_BYTES + 11, dtype=np.uint8)
    assert written_end(data, len(data)) == 0

    data[last] = 1

    assert last < written_end(data, len(data)) <= last + ZEROS_BYTES
