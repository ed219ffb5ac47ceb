"""Bring the consume queues of a store into memory: from the snapshot, or from the files alone."""

import os
from collections.abc import Iterable
from typing import Final

import numpy as np

from orbitmq.files.listing import QueueFiles
from orbitmq.format.cq_unit import PADDING_SIZE, UNIT, UNIT_BYTES, UNIT_DTYPE
from orbitmq.format.snapshot import QueueState
from orbitmq.store.queues.consume_queue import ConsumeQueues
from orbitmq.store.queues.names import SIMPLE

FILES_BACK: Final = 2
"""Recovery starts so many files before the last one."""

_FIRST_READ_UNITS: Final = 256
_READ_UNITS_MAX: Final = 64 * 1024


def load_states(queues: ConsumeQueues, states: Iterable[QueueState]) -> None:
    """Take the simple queues of a snapshot as they are; no file is opened."""
    simple = [state for state in states if state.kind == SIMPLE]
    numbers = [queues.names.add(state.topic, state.queue_id, SIMPLE) for state in simple]
    with queues.lock:
        state = queues.state
        state.grow(len(queues.names))
        state.min[numbers] = [row.min_offset for row in simple]
        state.next[numbers] = [row.next_offset for row in simple]
        state.end_log[numbers] = [row.end_log_offset for row in simple]
        state.written[numbers] = state.next[numbers]
        state.flushed[numbers] = state.next[numbers]


def check_states(queues: ConsumeQueues, problems_max: int = 10) -> list[str]:
    """Look whether the last unit of each queue is in its file; return what is wrong, [] if nothing.

    One small read per queue: this runs at every start.
    """
    problems: list[str] = []
    for number in queues.numbers():
        following = queues.next_offset(number)
        if following == 0:
            continue
        path, position = queues.place(number, following - 1)
        problem = _last_unit_problem(path, position, queues.end_log_offset(number))
        if problem is not None:
            problems.append(f"{path}: {problem}")
            if len(problems) >= problems_max:
                break
    return problems


def _last_unit_problem(path: str, position: int, end_log: int) -> str | None:
    # Straight system calls: the cache of open files would turn over 80 000 times.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as cause:
        return str(cause.strerror)
    try:
        data = os.pread(fd, UNIT_BYTES, position)
    except OSError as cause:
        return str(cause.strerror)
    finally:
        os.close(fd)
    if len(data) < UNIT_BYTES:
        return "is too short for the queue's last unit"
    log_offset, size, _ = UNIT.unpack(data)
    if size != PADDING_SIZE and log_offset + size != end_log:
        return f"the last unit ends at log offset {log_offset + size}, not {end_log}"
    return None


def load_queue(queues: ConsumeQueues, number: int, files: QueueFiles) -> None:
    """Take one queue from its files, which stay as they are. Hold the lock.

    RocketMQ's own rule: start at the third-last file, go on while units are valid.
    """
    if not files.file_count:
        queues.state.set(number, low=0, high=0, end_log=0)
        return
    file_bytes = queues.file_bytes
    first = files.first_base // UNIT_BYTES
    start = max(files.first_base, files.last_base - FILES_BACK * file_bytes) // UNIT_BYTES
    files_end = (files.last_base + file_bytes) // UNIT_BYTES
    end, end_log = _valid_end(queues, number, start, files_end)
    low = min(_skip_padding(queues, number, first), end)
    queues.state.set(number, low=low, high=end, end_log=end_log)


def _valid_end(queues: ConsumeQueues, number: int, start: int, files_end: int) -> tuple[int, int]:
    """Return where the valid units end and where the last one's record ends."""
    position, end_log = start, 0
    count = _FIRST_READ_UNITS
    while position < files_end:
        in_file = queues.file_units - position % queues.file_units
        count = min(count, in_file)
        data = queues.read_file(number, position, count * UNIT_BYTES)
        units = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_BYTES)
        valid = (units["log_offset"] >= 0) & (units["size"] > 0)
        good = len(units) if valid.all() else int(valid.argmin())
        real = np.flatnonzero(units["size"][:good] != PADDING_SIZE)
        if len(real):
            last = units[real[-1]]
            end_log = int(last["log_offset"]) + int(last["size"])
        position += good
        if good < count:
            break
        count = min(2 * count, _READ_UNITS_MAX)
    return position, end_log


def _skip_padding(queues: ConsumeQueues, number: int, first: int) -> int:
    """Return the first unit of the first file that is no padding; the file's end if there is none."""
    position, count = first, 1  # the first unit nearly always tells
    file_end = (first // queues.file_units + 1) * queues.file_units
    while position < file_end:
        data = queues.read_file(number, position, count * UNIT_BYTES)
        sizes = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_BYTES)["size"]
        real = np.flatnonzero(sizes != PADDING_SIZE)
        if len(real) or len(sizes) < count:
            return position + (int(real[0]) if len(real) else len(sizes))
        position += count
        count = min(_FIRST_READ_UNITS, file_end - position)
    return file_end
