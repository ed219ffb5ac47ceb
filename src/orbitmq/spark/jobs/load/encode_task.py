"""The task that makes records of the rows of one partition: Arrow batches in, a file of records out.

Queue and log offsets in it count from the partition's first row; `place_task` writes those of the store.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from orbitmq.errors import InvalidMessageError
from orbitmq.files.disk import Disk
from orbitmq.format.columns import Bytes, Ints
from orbitmq.spark.jobs.load.arrow_columns import column, numbers, require_properties, texts
from orbitmq.spark.jobs.load.columns import PIECES, REFUSED_FLAGS
from orbitmq.spark.jobs.load.encode.kernels import compiled
from orbitmq.spark.jobs.load.encode.layout import MESSAGE, Columns, Texts, record_sizes
from orbitmq.spark.jobs.load.facts import ENTRY, PartFacts, to_bytes
from orbitmq.spark.jobs.load.queues import NO_KEY, QueueChoice
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles
from orbitmq.spark.progress import StageCounter
from orbitmq.spark.shared_paths import require_seen

FACTS: Final = "facts"
FACTS_SCHEMA: Final = f"{FACTS} binary"


@dataclass(frozen=True, slots=True)
class Encode:
    """Makes records of partitions. Travels to executors."""

    files: AttemptFiles | None  # None: a dry run
    counter: StageCounter | None
    queue_count: int
    body_bytes_max: int
    record_bytes_max: int
    store_ms: int
    hosts: bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.files is not None:
            require_seen(self.files.directory)
        context = TaskContext.get()
        with _Encoder(self, context.partitionId() if context is not None else 0) as encoder:
            for batch in batches:
                if batch.num_rows:
                    encoder.add(batch)
            facts = encoder.facts()
        if facts.records:
            yield pa.RecordBatch.from_pydict({FACTS: [to_bytes(facts)]})


class _Encoder:
    """Makes the records of one partition. Not thread-safe."""

    def __init__(self, work: Encode, partition: int) -> None:
        self._work, self._partition = work, partition
        self._choice = QueueChoice(partition, lambda _: work.queue_count)
        self._kernels = compiled()
        self._records = _Output(work.files)
        self._entries = _Output(work.files)
        self._count = 0

    def __enter__(self) -> "_Encoder":
        return self

    def __exit__(self, *_: object) -> None:
        self._records.close()
        self._entries.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Write the records of some rows."""
        topics, bodies = batch["topic"], batch["body"]
        self._require(batch)
        placed = self._choice.place(topics, column(batch, "queue_id"), self._hashes(batch))
        messages = np.zeros(batch.num_rows, dtype=MESSAGE)
        messages["queue_id"], messages["queue_offset"] = placed.queue_ids, placed.offsets
        messages["born_ms"] = numbers(batch, "born_ms", self._work.store_ms)
        for name in ("flag", "reconsume_times"):
            messages[name] = numbers(batch, name, 0)
        columns = Columns(messages, texts(topics), texts(bodies), _properties(batch))
        sizes = record_sizes(columns)
        self._require_sizes(sizes)
        out = np.empty(int(sizes.sum()), dtype=np.uint8)
        self._kernels.encode(out, columns, self._work.store_ms, self._work.hosts)
        self._records.write(out)
        entries = np.empty(batch.num_rows, dtype=ENTRY)
        entries["size"], entries["queue"] = sizes, placed.queues
        self._entries.write(entries.view(np.uint8))
        self._count += batch.num_rows
        if self._work.counter is not None:
            self._work.counter.add(len(out), batch.num_rows)

    def facts(self) -> PartFacts:
        return PartFacts(
            self._partition,
            self._count,
            self._records.length,
            self._records.path,
            self._entries.path,
            self._choice.found(),
        )

    def _hashes(self, batch: pa.RecordBatch) -> Ints | None:
        keys = column(batch, "sharding_key")
        if keys is None:
            return None
        hashes = self._kernels.hashes(texts(keys.fill_null(""))).astype(np.int64)
        hashes[keys.is_null().to_numpy(zero_copy_only=False)] = NO_KEY
        return hashes

    # --- what no broker would take ---

    def _require(self, batch: pa.RecordBatch) -> None:
        if (numbers(batch, "sys_flag", 0) & REFUSED_FLAGS).any():
            raise InvalidMessageError(
                "a row is a half message, a rollback or an inner batch (sys_flag): leave such rows out"
            )
        lengths = texts(batch["body"]).lengths
        if batch["body"].null_count or not lengths.all():
            raise InvalidMessageError("a row has no body: brokers refuse that; leave it out")
        if int(lengths.max()) > self._work.body_bytes_max:
            raise InvalidMessageError(
                f"a body has {int(lengths.max())} bytes, allowed are {self._work.body_bytes_max}"
                " (maxMessageSize)"
            )
        if PIECES in batch.schema.names:
            require_properties(texts(batch["properties"]), numbers(batch, PIECES, 0))

    def _require_sizes(self, sizes: Ints) -> None:
        if int(sizes.max()) > self._work.record_bytes_max:
            raise InvalidMessageError(
                f"a record has {int(sizes.max())} bytes, allowed are {self._work.record_bytes_max}"
                " (maxMessageSize, mappedFileSizeCommitLog)"
            )


class _Output:
    """A file of this attempt, written from its start; none in a dry run. Not synced: it is gone before the
    job is over, and so is the job after a power cut."""

    def __init__(self, files: AttemptFiles | None) -> None:
        self.path = files.new_path() if files is not None else ""
        self.length = 0
        self._disk = Disk()
        self._fd = self._disk.open(self.path, create=True) if self.path else None

    def write(self, data: Bytes) -> None:
        if self._fd is not None:
            self._disk.write_at(self.path, self._fd, self.length, data.data)
        self.length += len(data)

    def close(self) -> None:
        if self._fd is not None:
            self._disk.close(self.path, self._fd)


def _properties(batch: pa.RecordBatch) -> Texts:
    found = column(batch, "properties")
    if found is None:
        return Texts(np.empty(0, np.uint8), np.zeros(batch.num_rows + 1, np.int64))
    return texts(found)
