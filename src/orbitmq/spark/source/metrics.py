"""What a read touched: bytes and records of the log, rows, bad places.

A Python data source has no metrics of its own in Spark (its scan shows the bytes that came from Python), and
the tasks' accumulators do not reach the driver. So each task logs its figures and, with the option
`metricsPath`, writes them to a file of that directory, which driver and executors have to share:

    frame = spark.read.format("orbitmq").option("metricsPath", "/tmp/m").load(store)
    frame.where("topic = 'Orders'").count()
    read_metrics("/tmp/m").log_bytes
"""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from pyspark import TaskContext

from orbitmq.errors import io_error
from orbitmq.format.columns import Bytes, ScanOptions, ScanResult
from orbitmq.format.kernels import Kernels

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ReadMetrics:
    """Figures of one task, or of all tasks of a read."""

    log_bytes: int = (
        0  # of the log that were looked at: records without bodies, and the bodies used
    )
    lookup_bytes: int = 0  # of index files and consume queues, on the driver
    records: int = 0  # that were looked at
    rows: int = 0  # that were given to Spark
    bad_places: int = 0
    bad_bytes: int = 0
    fetched_bytes: int = 0  # of a store at a distance, by tasks
    tasks: int = 0
    found_by: list[str] = field(
        default_factory=list
    )  # what told where to read; none: everything was

    def add(self, other: "ReadMetrics") -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


def read_metrics(path: str | Path) -> ReadMetrics:
    """Return the sum over all tasks that wrote to this directory."""
    total = ReadMetrics()
    try:
        for file in sorted(Path(path).glob("*.json")):
            total.add(ReadMetrics(**json.loads(file.read_text(encoding="utf-8"))))
    except OSError as cause:
        raise io_error(path, "read", cause) from cause
    return total


@contextmanager
def noted(found: ReadMetrics, path: str, name: str) -> Iterator[None]:
    """Log a task's figures and write them to `path` (if any) at the end, whatever the end is."""
    try:
        yield
    finally:
        logger.info("read %s", found)
        if path:
            write_metrics(path, found, name)


def write_metrics(path: str, found: ReadMetrics, name: str) -> None:
    """Write figures to a file of this name; a task that is run again replaces its own."""
    target = Path(path) / f"{name}.json"
    unfinished = target.with_suffix(f".{uuid4().hex}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps(asdict(found)), encoding="utf-8")
        os.replace(unfinished, target)  # noqa: PTH105 - says that it replaces
    except OSError as cause:
        raise io_error(target, "write", cause) from cause


def task_name() -> str:
    """Return a name for the running task, the same if it is run again."""
    context = TaskContext.get()
    if context is None:
        return f"task-{uuid4().hex}"
    return f"stage-{context.stageId()}-task-{context.partitionId()}"


class CountingKernels:
    """Kernels that count the bytes of the log that they are shown. Not thread-safe."""

    def __init__(self, kernels: Kernels, metrics: ReadMetrics) -> None:
        self._kernels, self._metrics = kernels, metrics
        self.name = kernels.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernels, name)

    def scan(
        self, buffer: Bytes, start: int, end: int, base_offset: int, options: ScanOptions
    ) -> ScanResult:
        found = self._kernels.scan(buffer, start, end, base_offset, options)
        rows = found.rows
        bodies = 0 if options.check_crc else int(rows["body_length"].sum(dtype=np.int64))
        self._metrics.log_bytes += int(rows["size"].sum(dtype=np.int64)) - bodies
        self._metrics.records += len(rows)
        return found

    def find_record(
        self, buffer: Bytes, start: int, end: int, base_offset: int, *, check_crc: bool = True
    ) -> int:
        found = self._kernels.find_record(buffer, start, end, base_offset, check_crc=check_crc)
        self._metrics.log_bytes += (found if found >= 0 else end) - start
        return found
