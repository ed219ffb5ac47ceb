"""How a read of the log is shared out among tasks."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from orbitmq.files.layout import StoreLayout
from orbitmq.log_read import LogPlan, windows
from orbitmq.message import AppendRequest
from orbitmq.spark.columns.groups import Aggregate, Groups
from orbitmq.spark.columns.query import Query
from orbitmq.spark.source import log_table
from orbitmq.spark.source.in_place import AT, LENGTH, mark_of
from orbitmq.spark.source.log_table import usual_split_bytes
from orbitmq.spark.source.metrics import ReadMetrics
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.schemas import MESSAGE_SCHEMA
from orbitmq.spark.source.selection import RowSelection
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.units import GiB, MiB


@pytest.mark.parametrize(
    ("log_bytes", "split_bytes"),
    [(0, 64 * MiB), (1 * GiB, 64 * MiB), (4 * GiB, 128 * MiB), (100 * GiB, 256 * MiB)],
)
def test_a_long_log_has_longer_splits(tmp_path: Path, log_bytes: int, split_bytes: int) -> None:
    plan = LogPlan(StoreLayout(tmp_path), (), 0, log_bytes)

    assert usual_split_bytes(plan) == split_bytes
    assert usual_split_bytes(plan, 0, 2 * GiB) <= 64 * MiB
    assert usual_split_bytes(plan, log_bytes - 4 * GiB) == min(split_bytes, 128 * MiB)


@pytest.mark.parametrize(
    ("log_bytes", "split_bytes"),
    [(0, 64 * MiB), (1 * GiB, 128 * MiB), (4 * GiB, 512 * MiB), (100 * GiB, 1 * GiB)],
)
def test_a_count_has_longer_ones(tmp_path: Path, log_bytes: int, split_bytes: int) -> None:
    plan = LogPlan(StoreLayout(tmp_path), (), 0, log_bytes)

    assert usual_split_bytes(plan, for_figures=True) == split_bytes


@pytest.mark.parametrize(
    ("cores", "tasks", "for_figures"), [(0, 32, 8), (1, 4, 2), (2, 8, 4), (20, 80, 40)]
)
def test_a_query_has_so_many_tasks_for_each_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, tasks: int, for_figures: int
) -> None:
    monkeypatch.setattr(log_table, "SPLIT_BYTES", 1_000)
    with MessageStore.open(StoreConfig(root=tmp_path), background=False) as store:
        store.append_many([AppendRequest("Orders", 0, bytes(1_000))] * 200)
    options, schema = {"path": str(tmp_path)}, MESSAGE_SCHEMA.json()
    rows = Query(options=options, now_ms=0, schema=schema, cores=cores)
    figures = replace(rows, groups=Groups(["topic"], [Aggregate("count")]))

    assert (len(rows.tasks()), len(figures.tasks())) == (tasks, for_figures)


def test_a_task_hands_on_its_figures_as_one_batch(tmp_path: Path) -> None:
    with MessageStore.open(StoreConfig(root=tmp_path), background=False) as store:
        for topic, queue_id in (("Orders", 1), ("Bills", 0), ("Orders", 3)):
            store.append_many([AppendRequest(topic, queue_id, b"hello")] * 10_000)
    made = [Aggregate("count"), Aggregate("min", "queue_id"), Aggregate("max", "queue_id")]
    asked = Query(
        options={"path": str(tmp_path)},
        now_ms=0,
        schema=MESSAGE_SCHEMA.json(),
        groups=Groups(["topic"], [*made, Aggregate("count", "tags")]),
    )

    (task,) = (one["task"] for one in asked.tasks())
    (batch,) = asked.rows(task, "", ReadMetrics(tasks=1))

    assert batch.schema.equals(asked.arrow_schema())
    found = {tuple(row.values()) for row in batch.to_pylist()}
    assert found == {("Orders", 20_000, 1, 3, 0), ("Bills", 10_000, 0, 0, 0)}


@pytest.mark.parametrize("window_bytes", [3_000, 20_000, 16 * MiB])
@pytest.mark.parametrize("in_place", [False, True])
def test_batches_hold_their_bodies_when_the_window_has_moved_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window_bytes: int, in_place: bool
) -> None:
    bodies = [bytes([number]) * 1_500 for number in range(200)]
    with MessageStore.open(StoreConfig(root=tmp_path), background=False) as store:
        store.append_many([AppendRequest("Orders", 0, body) for body in bodies])
    monkeypatch.setattr(windows, "WINDOW_BYTES", window_bytes)
    options = ReadOptions.parse({"path": str(tmp_path), "splitBytes": "1g"}, now_ms=0)
    table = log_table.LogTable(options, MESSAGE_SCHEMA, in_place=in_place)

    (task,) = table.partitions()
    batches = list(table.batches(task, "", ReadMetrics(tasks=1)))

    assert [body for batch in batches for body in _bodies(batch, in_place)] == bodies
    assert (len(batches) > 1) == (window_bytes < 16 * MiB)


def test_a_body_longer_than_the_window_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(StoreConfig(root=tmp_path), background=False) as store:
        store.append_many([AppendRequest("Orders", 0, bytes(2 * MiB))] * 3)
    monkeypatch.setattr(windows, "WINDOW_BYTES", 1 * MiB)
    options = ReadOptions.parse({"path": str(tmp_path), "splitBytes": "1g"}, now_ms=0)
    table = log_table.LogTable(options, MESSAGE_SCHEMA)
    (task,) = table.partitions()

    for batch in table.batches(task, "", ReadMetrics(tasks=1)):
        for row in range(batch.num_rows):
            assert batch.slice(row, 1).column("body")[0].as_py() == bytes(2 * MiB)
    chunks = log_table._TaskRun(
        table._columns, RowSelection(options, ()), ReadMetrics(tasks=1)
    )._chunks(task)
    assert all(chunk.window is None for chunk in chunks)


def _bodies(batch: pa.RecordBatch, in_place: bool) -> list[bytes]:
    if not in_place:
        return batch.column("body").to_pylist()
    stretch = json.loads(mark_of(batch))
    with Path(stretch["path"]).open("rb") as file:
        file.seek(stretch["start"])
        data = file.read(stretch["length"])
    places = zip(batch.column(AT).to_pylist(), batch.column(LENGTH).to_pylist(), strict=True)
    return [data[at : at + length] for at, length in places]
