"""Small facts about a store directory that a check needs. Reads only."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError, StoreError
from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.listing import list_segments
from orbitmq.files.state_file import read_state
from orbitmq.format import batch_unit
from orbitmq.format.cq_unit import PADDING_SIZE
from orbitmq.format.index_file import HEADER_BYTES, IndexHeader, decode_header
from orbitmq.format.kernels import Kernels
from orbitmq.format.property_crc import CRC_TAIL_BYTES
from orbitmq.message import Property, QueueType
from orbitmq.store.dispatch import Chunk
from orbitmq.store.recovery.queue_counts import Queue, resolve_all
from orbitmq.store.recovery.queue_units import stored_units

_CRC_MARK: Final = np.frombuffer(f"{Property.CRC32}\x01".encode(), dtype=np.uint8)


def is_open_elsewhere(lock: Path) -> bool:
    """Tell whether a process holds the store's lock, without touching the lock file.

    To open it would not do: a process that closes any descriptor of the file gives up its own lock.
    """
    try:
        status = lock.stat()
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    for line in lines:
        fields = line.split()
        place = next((field for field in fields if field.count(":") == 2), "")
        named_device, _, inode = place.rpartition(":")
        # A file system on top of another one (overlay) shows the number of the one below.
        if inode == str(status.st_ino) and (named_device == device or os.major(status.st_dev) == 0):
            return True
    return False


def batch_topics(layout: StoreLayout) -> set[bytes]:
    """Return the topics whose queues are batch queues: by topics.json, and by the directories."""
    found = {
        queue.topic.encode()
        for queue in layout.list_queues(QueueKind.BATCH, on_problem=lambda problem: None)
    }
    try:
        table = read_state(layout.config("topics.json")).get("topicConfigTable", {})
    except StoreError:
        return found  # the check names the broken file
    if isinstance(table, dict):
        for topic, config in table.items():
            attributes = config.get("attributes") if isinstance(config, dict) else None
            if (
                isinstance(attributes, dict)
                and attributes.get("queue.type") == QueueType.BATCH.value
            ):
                found.add(topic.encode())
    return found


class BatchRows:
    """Tells which rows belong to batch queues. Not thread-safe."""

    def __init__(self, kernels: Kernels, topics: set[bytes]) -> None:
        self._topics = topics
        self._table = kernels.queue_table()
        self._names: list[Queue] = []
        self._is_batch: list[bool] = []

    def of(self, chunk: Chunk) -> npt.NDArray[np.bool_]:
        if not self._topics:
            return np.zeros(len(chunk.rows), dtype=bool)
        numbers = resolve_all(self._table, self._names, chunk.buffer, chunk.rows)
        for topic, _ in self._names[len(self._is_batch) :]:
            self._is_batch.append(topic in self._topics)
        found: npt.NDArray[np.bool_] = np.array(self._is_batch, dtype=bool)[numbers]
        return found


def queues_end(layout: StoreLayout) -> int:
    """Return where the newest record ends that a unit points to: so far a Java broker dispatched."""
    end = 0
    for queue in layout.list_queues(QueueKind.SIMPLE, on_problem=lambda problem: None):
        if not queue.file_count:
            continue
        directory = layout.queue_directory(QueueKind.SIMPLE, queue.topic, queue.queue_id)
        for file in reversed(list_segments(directory, on_problem=lambda problem: None)):
            last = last_unit_end(file.path, file.length)
            if last is not None:
                end = max(end, last)
                break
    return end


def last_unit_end(path: Path, length: int, kind: QueueKind = QueueKind.SIMPLE) -> int | None:
    """Return where the record of a queue file's last unit ends; None if the file has no unit."""
    if kind is QueueKind.BATCH:
        return _last_batch_end(path)
    last = None
    for _, units in stored_units(str(path), 0, length):
        real = np.flatnonzero((units["size"] > 0) & (units["size"] != PADDING_SIZE))
        if len(real):
            unit = units[real[-1]]
            last = int(unit["log_offset"]) + int(unit["size"])
    return last


def _last_batch_end(path: Path) -> int | None:
    data = path.read_bytes()
    whole = len(data) // batch_unit.UNIT_BYTES
    units = np.frombuffer(data, batch_unit.UNIT_DTYPE, whole)
    real = np.flatnonzero(units["size"] > 0)
    if not len(real):
        return None
    return int(units["log_offset"][real[-1]]) + int(units["size"][real[-1]])


def index_headers(layout: StoreLayout) -> Iterator[IndexHeader]:
    """Yield the headers of the index files that have one."""
    if not layout.index_directory.is_dir():
        return
    for path in sorted(layout.index_directory.iterdir()):
        try:
            with path.open("rb") as file:
                yield decode_header(file.read(HEADER_BYTES))
        except (FormatError, OSError):
            continue


def has_property_crc(chunk: Chunk) -> npt.NDArray[np.bool_]:
    """Return which records end with a property CRC."""
    rows = chunk.rows
    tails = rows["properties_at"] + rows["properties_length"] - CRC_TAIL_BYTES
    found: npt.NDArray[np.bool_] = rows["properties_length"] >= CRC_TAIL_BYTES
    # One byte first: hardly any store has them.
    found &= chunk.buffer[np.where(found, tails, 0)] == _CRC_MARK[0]
    candidates = np.flatnonzero(found)
    marks = chunk.buffer[tails[candidates].astype(np.int64)[:, None] + np.arange(len(_CRC_MARK))]
    found[candidates] = (marks == _CRC_MARK).all(axis=1)
    return found
