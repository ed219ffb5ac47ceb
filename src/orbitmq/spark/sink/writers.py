"""What Spark sees of the sink: a writer for a batch, one for a stream.

Spark makes them on the driver, sends them to tasks (`write`), and calls `commit` or `abort` on the driver
when all tasks have ended. Tasks only stage rows; the commit sends them (`deliver`).
"""

import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from orbitmq.errors import ConfigError, JobFailedError
from orbitmq.files.disk import Disk
from orbitmq.spark.sink.columns import require_sent_columns
from orbitmq.spark.sink.deliver import deliver
from orbitmq.spark.sink.options import WriteOptions
from orbitmq.spark.sink.state import Staging
from orbitmq.spark.sink.task import Staged, stage

QUERY_KEY: Final = "sql.streaming.queryId"
BATCH_KEY: Final = "streaming.sql.batchId"
"""Where Spark tells tasks of a stream whose they are."""
ONLY_BATCH: Final = 0

Messages = Sequence[WriterCommitMessage | None]


class BatchSink(DataSourceArrowWriter):
    """Sends a table. Travels to tasks."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        _require(options, schema, overwrite)
        self._options = options
        self._write = options.write_id or uuid.uuid4().hex
        given = options.staging(stream=False)
        name = f"orbitmq-sink-{os.getuid()}-{self._write}"
        self._root = given or str(Path(tempfile.gettempdir()) / name)
        if not given:
            Path(self._root).mkdir(mode=0o700, exist_ok=True)  # bodies are nobody else's business
        self._staging().make()

    def _staging(self) -> Staging:
        return Staging(Path(self._root), self._write, Disk())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        staging = self._staging()
        if staging.is_known(ONLY_BATCH):
            return _passed_over(iterator, self._write)
        return stage(iterator, self._options, str(staging.attempts), self._write, ONLY_BATCH)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        deliver(self._staging(), ONLY_BATCH, _parts(messages), self._options)
        self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _remove_unused(self._staging(), ONLY_BATCH)
        self._forget()

    def _forget(self) -> None:
        """Leave nothing of a write that cannot be repeated."""
        staging = self._staging()
        if not self._options.staging_path:
            staging.remove_root()
        elif not self._options.write_id:
            staging.remove()


class StreamSink(DataSourceStreamArrowWriter):
    """Sends the batches of a streaming query. Travels to tasks; made anew for each batch."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        _require(options, schema, overwrite)
        self._options, self._root = options, options.staging(stream=True)
        self._staging("").make()

    def _staging(self, query: str) -> Staging:
        return Staging(Path(self._root), query, Disk())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        query, batch = _told()
        staging = self._staging(query)
        if staging.is_known(batch):
            return _passed_over(iterator, query)
        return stage(iterator, self._options, str(staging.attempts), query, batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        parts = _parts(messages)
        if parts:
            deliver(self._staging(parts[0].write), batchId, parts, self._options)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for query in {message.write for message in messages if isinstance(message, Staged)}:
            _remove_unused(self._staging(query), batchId)


def _require(options: WriteOptions, schema: StructType, overwrite: bool) -> None:
    if overwrite:
        raise ConfigError("mode", "overwrite", "messages of a topic stay; use mode append")
    require_sent_columns(schema, options.topic)


def _told() -> tuple[str, int]:
    """Return the query and the batch that this task belongs to."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_KEY) if context is not None else None
    batch = context.getLocalProperty(BATCH_KEY) if context is not None else None
    if not query or not batch:
        what = "this Spark does not tell its tasks which batch of which query they work for"
        raise JobFailedError(
            what, "Write with foreachBatch, and a writeId made of its batch number."
        )
    return query, int(batch)


def _passed_over(batches: Iterator[pa.RecordBatch], write: str) -> Staged:
    """Read rows that were staged before, by an earlier run of their batch: those are sent."""
    for _ in batches:
        pass
    return Staged(write, 0, "", 0)


def _parts(messages: Messages) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _remove_unused(staging: Staging, batch: int) -> None:
    """Remove rows that no commit will send; those of a batch that was begun stay."""
    state = staging.load()
    is_begun = state is not None and state.batch == batch and not state.done
    staging.remove_rows(
        batch, frozenset(state.files) if state is not None and is_begun else frozenset()
    )
