"""Batches of the dispatch job without Spark: planned, read and written as in a query, task by task."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dispatch_job import filled_files, live_files_of_log
from orbitmq.errors import JobFailedError
from orbitmq.format.kernels import compiled
from orbitmq.spark.jobs.dispatch import source as dispatch_source
from orbitmq.spark.jobs.dispatch.job import BATCH_BYTES, DispatchJob, DispatchOptions
from orbitmq.spark.jobs.dispatch.source import TailReader
from orbitmq.store.config import DispatchMode, StoreConfig
from orbitmq.store.spark_dispatch.writer import DispatchWriter
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import make_request
from orbitmq.units import KiB, MiB

pytestmark = pytest.mark.feature("P7")

BATCH = 1 * MiB
TASKS = 3


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    """Return a closed store with 3 MiB in many segments that nobody has dispatched."""
    config = StoreConfig(
        root=tmp_path / "store",
        segment_bytes=256 * KiB,
        cq_file_bytes=4000,
        index_slots=500,
        index_items=2000,
        dispatch=DispatchMode.SPARK,
    )
    with MessageStore.open(config, background=False) as store:
        store.append_many(
            [make_request(n, f"T{n % 3}", keys=f"k{n}", body_bytes=1000) for n in range(2500)]
        )
    return config


@pytest.fixture
def job(config: StoreConfig, monkeypatch: pytest.MonkeyPatch) -> DispatchJob:
    monkeypatch.setattr(dispatch_source, "SMALL_BYTES", 100 * KiB)  # so that tasks share a batch
    context = SimpleNamespace(defaultParallelism=TASKS)
    session: Any = SimpleNamespace(sparkContext=context)
    return DispatchJob(session, config.root, DispatchOptions(batch_bytes=BATCH))


@pytest.fixture
def writer(config: StoreConfig) -> Iterator[DispatchWriter]:
    with DispatchWriter(config.root, compiled()) as writer:
        yield writer


class Frame:
    """The rows of a batch as the driver gets them: in any order."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def collect(self) -> list[Any]:
        return self.rows[::-1]


def batches(reader: TailReader) -> Iterator[Frame]:
    """Yield the batches that a query would have, each read by tasks."""
    start = reader.initialOffset()
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        rows = []
        for partition in reader.partitions(start, end):
            task = pickle.loads(pickle.dumps(reader))
            rows += [
                SimpleNamespace(**row)
                for batch in task.read(partition)
                for row in batch.to_pylist()
            ]
        yield Frame(rows)
        start = end


def test_batches_make_the_files_of_live_dispatch(
    config: StoreConfig, job: DispatchJob, writer: DispatchWriter, tmp_path: Path
) -> None:
    found = list(batches(TailReader(job._tail(writer))))
    assert len(found) >= 3
    assert all(len({row.split_start for row in frame.rows}) > 1 for frame in found[:-1])
    for frame in found:
        spans = [(row.split_start, row.split_end) for row in frame.rows]
        assert max(end for _, end in spans) - min(start for start, _ in spans) <= BATCH

        before = writer.offset
        job._dispatch(writer, frame)  # type: ignore[arg-type]

        done = writer.handover.dispatched_offset()
        assert done is not None
        assert before < writer.offset == done.log_offset

    progress = job._progress(writer)
    assert (progress.records, progress.behind_bytes, progress.store) == (2500, 0, "closed")
    assert progress.batches == len(found)
    made, expected = filled_files(config.root), live_files_of_log(config, tmp_path / "live")
    assert made.keys() == expected.keys()
    assert [name for name in made if made[name] != expected[name]] == []


def test_a_batch_of_which_a_task_gave_nothing_is_not_written(
    config: StoreConfig, job: DispatchJob, writer: DispatchWriter
) -> None:
    frame = next(batches(TailReader(job._tail(writer))))
    missing = sorted({row.split_start for row in frame.rows})[1]
    frame.rows = [row for row in frame.rows if row.split_start != missing]
    before = filled_files(config.root)

    with pytest.raises(JobFailedError, match="nobody read the log"):
        job._dispatch(writer, frame)  # type: ignore[arg-type]

    assert writer.offset == 0
    assert filled_files(config.root) == before


def test_a_new_opening_of_the_store_ends_the_stream(
    config: StoreConfig, job: DispatchJob, writer: DispatchWriter
) -> None:
    reader = TailReader(job._tail(writer))
    start = reader.initialOffset()
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) != start

    MessageStore.open(config, background=False).close()

    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start


def test_the_usual_batch_is_128_mib() -> None:
    assert DispatchOptions().batch_bytes == BATCH_BYTES == 128 * MiB
    assert not DispatchOptions().once
