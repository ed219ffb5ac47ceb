"""Stores to be exported, and lakes as readers that nobody here wrote see them."""

import os
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
from deltalake import DeltaTable

from orbitmq.format.properties import encode_properties
from orbitmq.message import AppendRequest
from orbitmq.spark.jobs.export.iceberg import NAMESPACE, open_catalog
from orbitmq.spark.jobs.export.job import export
from orbitmq.spark.jobs.export.names import table_name
from orbitmq.spark.jobs.export.report import ExportReport
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.units import KiB
from spark.rebuild_world import InProcessSpark
from spark.table_world import table_rows

TOPICS = ("Orders", "Payments", "%RETRY%group")
SETTINGS = {"mappedFileSizeCommitLog": str(64 * KiB)}
FORMATS = ("parquet", "delta", "iceberg")
Row = tuple[Any, ...]
COLUMNS = ("log_offset", "topic", "queue_id", "queue_offset", "message_id", "tags", "body")
SEED = int(os.environ.get("ORBITMQ_EXPORT_SEED", "7"))


def config_of(root: Path) -> StoreConfig:
    return StoreConfig(root=root, segment_bytes=64 * KiB, cq_file_bytes=2000, index_enabled=False)


def write_conf(path: Path) -> Path:
    """Write a broker.conf with the sizes of the store's files."""
    path.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    return path


def append(root: Path, count: int, topics: Iterable[str] = TOPICS, seed: int = SEED) -> None:
    """Append messages to a store, which is made if it is not there."""
    chance, names = random.Random(seed), tuple(topics)
    with MessageStore.open(config_of(root), background=False) as store:
        for number in range(count):
            store.append(message(chance, names[number % len(names)], number))


def message(chance: random.Random, topic: str, number: int) -> AppendRequest:
    properties = {"UNIQ_KEY": f"{chance.getrandbits(96):024X}", "KEYS": f"a{number} b"}
    if number % 3:
        properties["TAGS"] = f"tag{number % 5}"
    body = chance.randbytes(chance.randrange(300))
    return AppendRequest(topic, number % 2, body, encode_properties(properties))


def append_body(root: Path, topic: str, body: bytes, sys_flag: int = 0) -> None:
    with MessageStore.open(config_of(root), background=False) as store:
        store.append(AppendRequest(topic, 0, body, sys_flag=sys_flag))


def export_here(root: Path | str, lake: Path | str, **given: Any) -> ExportReport:
    """Export without Spark."""
    spark: Any = InProcessSpark()
    return export(spark, lake, store=root, settings=SETTINGS, **given)


def log_rows(root: Path, topic: str) -> list[Row]:
    """Return what a plain read of the log says of a topic."""
    rows = table_rows(path=root, topics=topic)
    return [tuple(row[name] for name in COLUMNS) for row in rows]


def lake_rows(lake: Path, format_: str, topic: str, *, dlq: bool = False) -> list[Row]:
    """Return the rows of a topic's table, as readers of its format see them, in log order."""
    found = [sorted(rows) for rows in _readers(lake, format_, table_name(topic, dlq=dlq))]
    for other in found[1:]:
        assert other == found[0]
    return found[0]


def _readers(lake: Path, format_: str, table: str) -> Iterable[list[Row]]:
    if not (lake / table).exists():
        yield []
        return
    match format_:
        case "delta":
            yield _of_arrow(pa.table(DeltaTable(lake / table).to_pyarrow_table()))
            yield polars.scan_delta(str(lake / table)).select(COLUMNS).collect().rows()
        case "iceberg":
            catalog = open_catalog(lake)
            opened = catalog.load_table((NAMESPACE, table))
            yield _of_arrow(opened.scan(selected_fields=COLUMNS).to_arrow())
            catalog.close()
        case _:
            yield _of_duckdb(f"read_parquet('{lake}/{table}/**/*.parquet', hive_partitioning=true)")


def _of_arrow(table: pa.Table) -> list[Row]:
    return [tuple(row[name] for name in COLUMNS) for row in table.select(COLUMNS).to_pylist()]


def _of_duckdb(table: str) -> list[Row]:
    with duckdb.connect() as connection:
        return connection.execute(f"select {', '.join(COLUMNS)} from {table}").fetchall()


def duckdb_answer(question: str) -> list[Row]:
    with duckdb.connect() as connection:
        return connection.execute(question).fetchall()


def require_each_once(lake: Path, format_: str, wanted: Mapping[str, list[Row]]) -> None:
    """Compare every row of all tables; a lake without a table holds none of it."""
    for topic, rows in wanted.items():
        assert lake_rows(lake, format_, topic) == rows, topic


def leftovers(lake: Path) -> list[str]:
    """Return what no export may leave behind: files of attempts, a commit that is not done."""
    names = [str(path.relative_to(lake)) for path in (lake / "_orbitmq").rglob("*")]
    return [name for name in names if ".part-" in name or "pending" in name or "attempts" in name]
