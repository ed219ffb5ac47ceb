"""Cut consume queues at either end: behind the end of the log, and before its first segment.

A queue's units point ever further into the log, so both ends are found by halving. Padding units point
nowhere; the search steps over them.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.files.disk import Disk
from orbitmq.format.cq_unit import PADDING_SIZE, UNIT_BYTES, UNIT_DTYPE
from orbitmq.store.queues.arrays import UNKNOWN
from orbitmq.store.queues.consume_queue import ConsumeQueues
from orbitmq.store.queues.names import SIMPLE
from orbitmq.store.queues.unit_files import stored_units

_BLOCK_UNITS: Final = 512

Units = npt.NDArray[np.void]  # of UNIT_DTYPE


def correct_min(queues: ConsumeQueues, log_min: int) -> None:
    """Move each queue's min offset to its first unit whose record is still in the log.

    A queue without any keeps its numbering: its min becomes its next offset.
    """
    state = queues.state
    if log_min <= 0:
        return
    with queues.lock:
        candidates = np.flatnonzero((state.min < state.next) & (state.min_log < log_min))
        dead = candidates[state.end_log[candidates] <= log_min]
        state.min[dead] = state.next[dead]
        state.min_log[dead] = UNKNOWN
        living = candidates[state.end_log[candidates] > log_min].tolist()
    for number in living:
        with queues.lock:
            _correct_one(queues, number, log_min)


def _correct_one(queues: ConsumeQueues, number: int, log_min: int) -> None:
    low, high = queues.min_offset(number), queues.next_offset(number)
    units = _units(queues.read_raw(number, low, 1))
    if not (len(units) and _is_live(units, log_min)[0]):
        low = first_unit(queues, number, low, high, log_min)
        units = _units(queues.read_raw(number, low, 1)) if low < high else units[:0]
    queues.state.min[number] = low
    queues.state.min_log[number] = int(units["log_offset"][0]) if len(units) else UNKNOWN


def delete_before(
    queues: ConsumeQueues, log_min: int, pause: Callable[[], None] | None = None
) -> int:
    """Delete whole files of units before `log_min`, never a queue's last one; return how many.

    Min offsets follow first, so that no reader is sent to a file that is gone. `pause` is called after
    each queue that lost files.
    """
    correct_min(queues, log_min)
    deleted = 0
    for number in np.flatnonzero(queues.state.next > queues.file_units).tolist():
        dead = _dead_files(queues, number, log_min)
        if dead:
            queues.forget_files(dead)
            deleted += len(dead)
            if pause is not None:
                pause()
    return deleted


def _dead_files(queues: ConsumeQueues, number: int, log_min: int) -> list[str]:
    dead = []
    for base in _bases_with_pending(queues, number)[:-1]:
        last_unit = (base + queues.file_bytes) // UNIT_BYTES - 1
        if last_unit >= queues.min_offset(number):
            break
        units = _units(queues.read_file(number, last_unit, UNIT_BYTES))
        if len(units) and units["log_offset"][0] >= log_min:
            break
        dead.append(queues.path(number, base))
    return dead


def _bases_with_pending(queues: ConsumeQueues, number: int) -> list[int]:
    """Return where each file of a queue starts, the file of its first live unit among them.

    A queue whose live units are all pending has only dead files, of which one would have to stay. A Java
    broker would look for the min offset there, and only there.
    """
    bases = queues.bases(number)
    if not bases:
        return bases
    files_end = (bases[-1] + queues.file_bytes) // UNIT_BYTES
    if files_end <= queues.min_offset(number) < queues.next_offset(number):
        queues.write_queue(number)
        return queues.bases(number)
    return bases


def delete_topic(queues: ConsumeQueues, topic: str, disk: Disk) -> None:
    """Remove all simple queues of a topic with their files. A queue that comes again starts at 0."""
    numbers = [no for no in queues.names.of_topic(topic) if queues.names.kind(no) == SIMPLE]
    for number in numbers:
        directory = queues.directory(number)
        with queues.lock:
            cut_queue(queues, number, 0)
            queues.state.set(number, low=0, high=0, end_log=0)
            bases = queues.bases(number)
            queues.forget_files(queues.path(number, base) for base in bases)
        if bases:
            disk.remove_directory(directory)


def cut_queue(queues: ConsumeQueues, number: int, first: int) -> None:
    """Cut a queue from queue offset `first` on, in memory and in its files. Hold the lock."""
    state = queues.state
    written = int(state.written[number])
    queues.drop_pending_after(number, first)
    state.next[number] = first
    state.min[number] = min(int(state.min[number]), first)
    state.end_log[number] = end_before(queues, number, first)
    state.min_log[number] = UNKNOWN
    if first < written:
        size = queues.file_bytes
        bases = range(first // queues.file_units * size, written * UNIT_BYTES, size)
        queues.cut_files(number, first, bases)
        state.written[number] = first
        state.flushed[number] = min(int(state.flushed[number]), first)


def cut_behind_end(queues: ConsumeQueues, number: int, bases: list[int] | None = None) -> int:
    """Cut what a queue's files hold behind its end; return how many units that were.

    `bases` is where each file starts, for who has listed them already.
    """
    end = queues.next_offset(number) * UNIT_BYTES
    file_bytes = queues.file_bytes
    bases = queues.bases(number) if bases is None else bases
    bases = [base for base in bases if base + file_bytes > end]
    count = 0
    for base in bases:
        for _, units in stored_units(queues.path(number, base), max(0, end - base), file_bytes):
            raw = np.frombuffer(units, np.uint8)
            if raw.any():
                count += int(raw.reshape(-1, UNIT_BYTES).any(axis=1).sum())
    if count or any(base >= end for base in bases):
        with queues.lock:
            queues.cut_files(number, end // UNIT_BYTES, bases)
    return count


def end_before(queues: ConsumeQueues, number: int, first: int) -> int:
    """Return where the record of the last real unit before `first` ends, 0 if there is none."""
    file_first = max(first - 1, 0) // queues.file_units * queues.file_units
    end = first
    while end > file_first:
        start = max(end - _BLOCK_UNITS, file_first)
        units = _units(queues.read_raw(number, start, end - start))
        real = np.flatnonzero(units["size"] != PADDING_SIZE)
        if len(real):
            last = units[real[-1]]
            return int(last["log_offset"]) + int(last["size"])
        end = start
    return 0


def first_unit(queues: ConsumeQueues, number: int, low: int, high: int, log_offset: int) -> int:
    """Return the first real unit at or behind `log_offset`, `high` if there is none."""
    best = high
    while low < high:
        middle = (low + high) // 2 if high - low > _BLOCK_UNITS else low
        units = _units(queues.read_raw(number, middle, min(_BLOCK_UNITS, high - middle)))
        if not len(units):  # a file is missing: nothing there is live
            low = min((middle // queues.file_units + 1) * queues.file_units, high)
            continue
        live = np.flatnonzero(_is_live(units, log_offset))
        if len(live):
            best = middle + int(live[0])
            if middle == low or (units["size"][: live[0]] != PADDING_SIZE).any():
                return best
            high = middle
        elif (units["size"] != PADDING_SIZE).any() or middle == low:
            low = middle + len(units)
        else:
            # A block of nothing but padding tells nothing: look through what lies before it first.
            found = first_unit(queues, number, low, middle, log_offset)
            if found < middle:
                return found
            low = middle + len(units)
    return best


def _units(data: bytes) -> Units:
    return np.frombuffer(data, dtype=UNIT_DTYPE)


def _is_live(units: Units, log_offset: int) -> npt.NDArray[np.bool_]:
    real: npt.NDArray[np.bool_] = units["size"] != PADDING_SIZE
    behind: npt.NDArray[np.bool_] = units["log_offset"] >= log_offset
    return real & behind
