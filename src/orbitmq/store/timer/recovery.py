"""What a start makes of wheel, timer log and checkpoint.

The checkpoint is written last, so everything that it speaks of is on disk. Behind it there may be more:
units that were written after it. As in RocketMQ the timer log is read from one file before the checkpoint
on, and slots are brought up to it; what is better here:

 - a unit whose record the commit log does not have (a power cut) ends the timer log
 - messages whose units are there already are not put into the wheel again
 - a wheel that is missing, damaged or of another precision is made again from the whole timer log
 - where the timer log lost units, their messages are put in again, but none that was delivered
"""

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from orbitmq.format.timer_log import MAGIC_CANCELS, UNIT_BYTES
from orbitmq.format.timer_wheel import WHEEL_SLOTS, WINDOW_SLOTS
from orbitmq.message import TIMER_TOPIC
from orbitmq.store.timer.checkpoint import TimerCheckpointFile
from orbitmq.store.timer.timer_log import TimerLog, Units
from orbitmq.store.timer.wheel import TimerWheel

if TYPE_CHECKING:
    from orbitmq.store.store import MessageStore

_log = logging.getLogger(__name__)

BLANK_SLOTS: Final = (
    60  # RocketMQ's: so much younger than the wheel is long is the oldest slot to read
)
_NOTHING: Final = np.zeros(0, dtype=np.int64)


@dataclass(slots=True)
class Progress:
    """How far timer messages are."""

    read_ms: int
    """Slots before this time are delivered."""
    queue_offset: int
    """Next message of the wheel's topic to be put into the wheel."""
    redo_end: int = 0
    """Messages before this queue offset were put in before; those of slots before `redo_ms` are delivered."""
    redo_ms: int = 0
    known: frozenset[int] = field(default_factory=frozenset)
    """Log offsets of messages from `queue_offset` on that are done: their units are in the timer log."""

    @property
    def known_end(self) -> int:
        return max(self.known, default=0)


class TimerRecovery:
    """One start, step by step."""

    def __init__(
        self,
        store: "MessageStore",
        wheel: TimerWheel,
        log: TimerLog,
        checkpoint: TimerCheckpointFile,
        *,
        file_bytes: int,
        now_ms: int,
    ) -> None:
        self._store, self._wheel, self._timer_log = store, wheel, log
        self._checkpoint, self._file_bytes, self._now_ms = checkpoint, file_bytes, now_ms

    def run(self) -> Progress:
        """Bring all parts into agreement. StoreError: a file cannot be read or is of the wrong length."""
        self._timer_log.load()
        has_checkpoint = self._checkpoint.load()
        value = self._checkpoint.value
        start = self._timer_log.file_start(max(0, value.timer_log_end - self._file_bytes))
        self._find_end(start)
        read_ms = value.read_ms if has_checkpoint and value.read_ms else self._oldest_ms()
        self._mend_wheel(start, read_ms)
        return self._progress(start, read_ms)

    def _oldest_ms(self) -> int:
        """Return from where to read without a checkpoint: from now on, or as far back as RocketMQ goes."""
        precision = self._wheel.precision_ms
        now = self._now_ms // precision * precision
        if not self._timer_log.end:
            return now
        return now - (WINDOW_SLOTS - BLANK_SLOTS) * precision

    def _find_end(self, start: int) -> None:
        timer_log, commit_end = self._timer_log, self._store.max_log_offset
        end = max(timer_log.start, start) if timer_log.files_end > start else timer_log.files_end
        for position, units in timer_log.walk(start):
            inside = units["log_offset"] + units["log_size"] <= commit_end
            count = len(units) if inside.all() else int(np.argmin(inside))
            end = position + count * UNIT_BYTES
            if count < len(units):
                _log.warning("timer log: cut at %d, the commit log has no more", end)
                break
        timer_log.cut(end)

    def _mend_wheel(self, start: int, read_ms: int) -> None:
        wheel, timer_log = self._wheel, self._timer_log
        latest_ms = self._now_ms + WHEEL_SLOTS * wheel.precision_ms
        if not (wheel.load() and wheel.is_within(timer_log.end) and wheel.is_of(latest_ms)):
            if timer_log.end:
                _log.warning("timer wheel: made again from the timer log")
            wheel.clear()
            start = timer_log.start
        for position, units in timer_log.walk(start):
            self._revise(position, units, read_ms)

    def _revise(self, position: int, units: Units, read_ms: int) -> None:
        wheel = self._wheel
        slot_ms = units["write_ms"].astype(np.int64) + units["delay_ms"]
        positions = position + np.arange(len(units), dtype=np.int64) * UNIT_BYTES
        changes = np.where(units["magic"] & MAGIC_CANCELS, -1, 1)
        missing = wheel.lacks(slot_ms, positions) & (slot_ms >= read_ms)
        rows = zip(
            slot_ms[missing].tolist(),
            positions[missing].tolist(),
            changes[missing].tolist(),
            strict=True,
        )
        for slot, at, change in rows:
            wheel.revise(slot, at, change)

    def _progress(self, start: int, read_ms: int) -> Progress:
        value, store = self._checkpoint.value, self._store
        done = min(value.queue_offset, value.master_queue_offset)
        offset = done
        if self._timer_log.end < value.timer_log_end:
            offset = min(done, self._behind_last_unit())
            _log.warning("timer log: ends before its checkpoint, messages from %d on again", offset)
        first = store.min_offset(TIMER_TOPIC, 0)
        offset = min(max(offset, first), max(first, store.max_offset(TIMER_TOPIC, 0)))
        # What a replica has not put into its own wheel, its primary may have delivered.
        delivered = max(done, value.master_queue_offset)
        return Progress(read_ms, offset, delivered, value.read_ms, self._known(start, offset))

    def _behind_last_unit(self) -> int:
        """Return the queue offset behind the message of the last unit; 0: there is none."""
        last = self._timer_log.last_unit()
        record = None if last is None else self._store.record_at(last.log_offset)
        if record is None or record.topic != TIMER_TOPIC:
            return 0
        return record.queue_offset + 1

    def _known(self, start: int, offset: int) -> frozenset[int]:
        units = self._store.units(TIMER_TOPIC, 0, offset, 1)
        if not units:
            return frozenset()
        found = [_NOTHING]
        for _, chunk in self._timer_log.walk(start):
            offsets = chunk["log_offset"].astype(np.int64)
            found.append(offsets[offsets >= units[0].log_offset])
        return frozenset(np.concatenate(found).tolist())
