"""The task of a sink: Arrow batches in, a file of requests out. Nothing is sent here.

A task may fail, run twice, or run at the same time on two machines: its file is that of the attempt, and the
driver sends what the attempts hold whose results Spark took (`deliver`).
"""

import itertools
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from orbitmq.client import Producer
from orbitmq.client.core.config import local_ip, parse_addresses
from orbitmq.errors import JobFailedError
from orbitmq.format.columns import Ints
from orbitmq.message import RETRY_PREFIX
from orbitmq.spark.jobs.load.arrow_columns import column, texts
from orbitmq.spark.jobs.load.encode.kernels import compiled
from orbitmq.spark.jobs.load.queues import NO_KEY, QueueChoice
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles
from orbitmq.spark.sink.columns import Encoded, MessageEncoder
from orbitmq.spark.sink.options import WriteOptions
from orbitmq.spark.sink.staged import Index, Request, StagedWriter
from orbitmq.spark.sink.state import STAGE
from orbitmq.wire.bodies.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What a task tells the driver: the file that it wrote, "" if it had no rows."""

    write: str
    partition: int
    path: str
    messages: int


def stage(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, directory: str, write: str, batch: int
) -> Staged:
    """Write the rows of a partition into a file of this attempt."""
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    _require_seen(directory)
    path, rows = "", 0
    with Queues(options) as queues:
        stager: Stager | None = None
        for one in batches:
            if one.num_rows and stager is None:
                path = AttemptFiles(directory, f"{write}-{batch}", STAGE).new_path()
                stager = Stager(StagedWriter(path), options, queues, partition)
            if one.num_rows and stager is not None:
                stager.add(one)
        if stager is not None:
            rows = stager.finish()
    return Staged(write, partition, path, rows)


def _require_seen(directory: str) -> None:
    if not os.path.isdir(directory):  # noqa: PTH112  (as it came from the driver)
        what = f"the executor on {platform.node()} does not see {directory}, where rows wait"
        raise JobFailedError(
            what, "Give the option stagingPath a directory that all machines share."
        )


class Queues:
    """The queues of topics, asked for once. ClientError, WireError: a topic or the cluster is not there."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._producer: Producer | None = None
        self._known: dict[str, list[MessageQueue]] = {}

    def __enter__(self) -> "Queues":
        return self

    def __exit__(self, *_: object) -> None:
        if self._producer is not None:
            self._producer.close()

    def of(self, topic: str) -> list[MessageQueue]:
        found = self._known.get(topic)
        if found is None:
            if self._producer is None:
                self._producer = Producer(self._options.namesrv, self._options.group)
                self._producer.open()
            found = self._known[topic] = sorted(self._producer.queues(topic))
        return found

    def count(self, topic: str) -> int:
        return len(self.of(topic))


class _Pending:
    """Messages for one queue that are not written yet. Not thread-safe."""

    __slots__ = ("messages", "parts", "row", "size")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.messages = self.size = self.row = 0


class Stager:
    """Makes requests of the rows of one partition. Not thread-safe."""

    def __init__(
        self, out: StagedWriter, options: WriteOptions, queues: Queues, partition: int
    ) -> None:
        self._out, self._options, self._queues, self._partition = out, options, queues, partition
        host = local_ip(parse_addresses(options.namesrv)[0])
        address = bytes(map(int, host.split("."))) if host.count(".") == 3 else bytes(4)
        self._encoder = MessageEncoder(partition, options.message_bytes_max, address)
        self._choice = QueueChoice(partition, queues.count)
        self._numbers: dict[MessageQueue, int] = {}
        self._pending: dict[int, _Pending] = {}
        self._requests: list[Request] = []
        self._rows, self._delayed = 0, False

    def add(self, batch: pa.RecordBatch) -> None:
        """Take some rows. InvalidMessageError: one that no broker would take."""
        numbers, alone = self._placed(batch)
        order = np.argsort(numbers, kind="stable")
        encoded = self._encoder.encode(batch).taken(order)
        self._delayed |= bool(encoded.delayed.any())
        alone = alone[order] | encoded.delayed | (encoded.sizes > self._options.batch_bytes)
        ordered = numbers[order]
        edges = np.flatnonzero((np.diff(ordered) != 0) | alone[1:] | alone[:-1]) + 1
        bounds = [0, *edges.tolist(), len(ordered)]
        for start, end in itertools.pairwise(bounds):
            self._run(encoded, order, int(ordered[start]), start, end, alone=bool(alone[start]))
        self._rows += batch.num_rows

    def finish(self) -> int:
        """Write what is left and the index; return how many messages there are."""
        for number in list(self._pending):
            self._flush(number)
        queues = [(q.topic, q.broker_name, q.queue_id) for q in self._numbers]
        with self._out:
            self._out.finish(Index(self._partition, queues, self._requests, self._delayed))
        return self._rows

    # --- queues ---

    def _placed(self, batch: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Return the number of each row's queue, and whether its topic takes no batches."""
        topics = self._topics(batch)
        placed = self._choice.place(topics, _whole(batch, "queue_id"), self._hashes(batch))
        found = self._choice.found()
        used = np.unique(placed.queues).tolist()
        queues, retry = np.zeros(len(found), np.int64), np.zeros(len(found), bool)
        for number in used:
            topic = found[number].topic
            choices = self._queues.of(topic)
            # A table may come from a topic with more queues: each of them has one here, so order stays.
            queue = choices[found[number].queue_id % len(choices)]
            queues[number] = self._numbers.setdefault(queue, len(self._numbers))
            retry[number] = topic.startswith(RETRY_PREFIX)
        return queues[placed.queues], retry[placed.queues]

    def _topics(self, batch: pa.RecordBatch) -> pa.Array:
        if self._options.topic is None:
            return batch["topic"]
        return pa.array([self._options.topic]).take(pa.array(np.zeros(batch.num_rows, np.int32)))

    def _hashes(self, batch: pa.RecordBatch) -> Ints | None:
        keys = column(batch, "sharding_key")
        if keys is None:
            return None
        found = compiled().hashes(texts(keys.cast(pa.string()).fill_null(""))).astype(np.int64)
        found[keys.is_null().to_numpy(zero_copy_only=False)] = NO_KEY
        return found

    # --- requests ---

    def _run(
        self, encoded: Encoded, order: Ints, number: int, start: int, end: int, *, alone: bool
    ) -> None:
        """Take messages of one queue that lie one behind the other; cut them into requests."""
        ends = texts(encoded.messages).ends
        data = texts(encoded.messages).data
        if alone:
            self._flush(number)
        while start < end:
            pending = self._pending.setdefault(number, _Pending())
            if not pending.messages:
                pending.row = self._rows + int(order[start])
            room = ends[start] + self._options.batch_bytes - pending.size
            fit = int(np.searchsorted(ends[start + 1 : end + 1], room, side="right"))
            fit = min(fit, self._options.batch_rows - pending.messages)
            if fit <= 0 and pending.messages:
                self._flush(number)
                continue
            upto = start + max(fit, 1)
            # A copy: a part of the batch would keep all of it in memory until its queue has enough.
            pending.parts.append(data[int(ends[start]) : int(ends[upto])].tobytes())
            pending.messages += upto - start
            pending.size += int(ends[upto] - ends[start])
            start = upto
        if alone:
            self._flush(number, alone=True)

    def _flush(self, number: int, *, alone: bool = False) -> None:
        pending = self._pending.pop(number, None)
        if pending is None or not pending.messages:
            return
        position = self._out.add(memoryview(b"".join(pending.parts)))
        self._requests.append(
            Request(number, position, pending.size, pending.messages, pending.row, alone)
        )


def _whole(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    found = column(batch, name)
    return None if found is None else found.cast(pa.int64())
