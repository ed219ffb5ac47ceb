"""Due: delivers the slots whose time has come, one after another.

A slot's units are linked from the last to the first, so they are walked back first; that finds the units
that cancel others, too. Then the messages are delivered, the oldest first. Both is done in turns, and
progress moves behind a slot when all of it is done.
"""

import logging
from array import array
from typing import TYPE_CHECKING, Final

import numpy as np

from orbitmq.errors import FormatError
from orbitmq.format.properties import find_property
from orbitmq.format.record import Record, properties_of
from orbitmq.format.timer_log import MAGIC_CANCELS, MAGIC_ROLLED, NO_POSITION, TimerUnit
from orbitmq.message import AppendRequest, Property
from orbitmq.store.timer.appends import append_due
from orbitmq.store.timer.metrics import TimerMetrics
from orbitmq.store.timer.recovery import Progress
from orbitmq.store.timer.run import LEAST, RUN_MAX, Places, WaitingRun
from orbitmq.store.timer.timer_log import TimerLog
from orbitmq.store.timer.waiting import cancel_key, delivery, read_record, rolled
from orbitmq.store.timer.wheel import TimerWheel
from orbitmq.units import KiB

if TYPE_CHECKING:
    from orbitmq.store.store import MessageStore

_log = logging.getLogger(__name__)

FEW: Final = 64  # are delivered one by one in one turn
TURN_BYTES: Final = 512 * KiB  # of messages that are delivered in one turn


class Due:
    """The slots that are due, and the one that is at work. Belongs to one thread."""

    def __init__(
        self,
        store: "MessageStore",
        wheel: TimerWheel,
        log: TimerLog,
        metrics: TimerMetrics,
        progress: Progress,
    ) -> None:
        self._store, self._wheel, self._timer_log, self._metrics = store, wheel, log, metrics
        self._progress = progress
        self._slot_ms: int | None = None  # the slot at work
        self._walk_at = NO_POSITION
        self._positions = array("q")  # its units, the oldest last
        self._cancelled: dict[str, str] = {}  # which messages, and the topic that counts them
        self._run = WaitingRun(store)
        self.count = 0  # messages delivered since the start
        self.slots = 0

    @property
    def active_ms(self) -> int:
        """The last slot whose units have been read."""
        before = self._progress.read_ms - self._wheel.precision_ms
        return before if self._slot_ms is None else self._slot_ms

    def turn(self, write_ms: int, now_ms: int, count_max: int) -> int | None:
        """Do a piece of what is due before `write_ms`; 0: nothing is, None: the store takes nothing now."""
        if self._slot_ms is None and not self._begin(write_ms):
            return 0
        if self._walk_at != NO_POSITION:
            return self._walk()
        done = self._deliver(now_ms, count_max)
        if done is None or self._positions:
            return done
        self._end()
        return done or 1  # also a slot of which nothing is delivered is work

    def _begin(self, write_ms: int) -> bool:
        progress = self._progress
        slot_ms = self._wheel.next_slot(progress.read_ms, write_ms)
        if slot_ms is None:
            progress.read_ms = max(progress.read_ms, write_ms)
            return False
        progress.read_ms = self._slot_ms = slot_ms
        self._walk_at = self._wheel.last(slot_ms)
        return True

    def _walk(self) -> int:
        assert self._slot_ms is not None
        positions, marks, left = self._timer_log.walk_slot(
            self._store.kernels, self._walk_at, self._slot_ms
        )
        cancels = marks & (MAGIC_CANCELS | MAGIC_ROLLED) == MAGIC_CANCELS
        for position in positions[cancels].tolist():
            unit = self._timer_log.unit(position)
            if unit is not None:
                self._note_cancelled(unit)
        self._positions.frombytes(positions[~cancels].tobytes())
        if left is None:
            at = int(positions[-1]) if len(positions) else self._walk_at
            _log.error("timer log: no unit of slot %s at %d or before", self._slot_ms, at)
        self._walk_at = NO_POSITION if left is None else left
        return len(positions) or 1

    def _note_cancelled(self, unit: TimerUnit) -> None:
        raw = self._store.record_of(unit.log_offset, unit.log_size)
        try:
            properties = b"" if raw is None else properties_of(raw)
        except FormatError:
            properties = b""
        key = find_property(properties, Property.TIMER_CANCELS)
        if key:
            self._cancelled[key] = find_property(properties, Property.REAL_TOPIC) or ""

    def _deliver(self, now_ms: int, count_max: int) -> int | None:
        by_many = self._run.is_quick and len(self._positions) >= LEAST
        done = self._deliver_many(now_ms, count_max) if by_many else 0
        return done or self._deliver_few(now_ms, min(count_max, FEW))

    def _deliver_many(self, now_ms: int, count_max: int) -> int:
        """Deliver the oldest by kernels, if they are simple; return how many."""
        count = min(count_max, RUN_MAX, len(self._positions))
        positions = np.array(self._positions[-count:], dtype=np.int64)[::-1]
        units = self._timer_log.units(positions)
        if units is None:
            return 0
        offsets, sizes = units["log_offset"].astype(np.int64), units["log_size"].astype(np.int64)
        is_other = (units["magic"] & MAGIC_ROLLED != 0) | (np.cumsum(sizes) - sizes > TURN_BYTES)
        count = int(np.argmax(is_other)) if is_other.any() else len(units)
        places = Places(offsets, sizes, units["write_ms"].astype(np.int64))
        run = self._run
        try:
            count = run.read(places.first(count), now_ms, check_crc=True)
            wanted = self._before_cancelled() if self._cancelled else count
            if wanted < count:
                count = run.read(places.first(wanted), now_ms, check_crc=True)
            if not count or not self._store.append_due_nowait(run):
                return 0
        finally:
            run.release()
        del self._positions[-count:]
        self.count += count
        for queue in run.queues:
            self._metrics.add(queue.topic, -queue.messages)
        return count

    def _before_cancelled(self) -> int:
        """Return how many of the run come before the first that is cancelled."""
        for index, (topic, key) in enumerate(self._run.names()):
            if cancel_key(topic, key) in self._cancelled:
                return index
        return self._run.count

    def _deliver_few(self, now_ms: int, count_max: int) -> int | None:
        requests: list[AppendRequest] = []
        asked: list[int] = []
        left_bytes, handled, positions = TURN_BYTES, 0, self._positions
        while positions and len(requests) < count_max and left_bytes > 0:
            position = positions.pop()
            handled += 1
            unit = self._timer_log.unit(position)
            request = None if unit is None else self._request(unit, now_ms)
            if request is not None:
                requests.append(request)
                asked.append(position)
                left_bytes -= len(request.body)
        if not requests:
            return handled
        done = append_due(self._store, requests)
        later = [position for position, is_done in zip(asked, done, strict=True) if not is_done]
        positions.extend(reversed(later))
        for request, is_done in zip(requests, done, strict=True):
            if is_done:
                self.count += 1
                topic = find_property(request.properties, Property.REAL_TOPIC) or ""
                self._metrics.add(topic, -1)
        return None if later else handled

    def _request(self, unit: TimerUnit, now_ms: int) -> AppendRequest | None:
        """Return what is to be appended for a unit; None: nothing."""
        record = read_record(self._store.record_of(unit.log_offset, unit.log_size))
        if record is None:
            _log.error("timer message at log offset %d is gone, passed over", unit.log_offset)
            return None
        if unit.is_rolled:
            return rolled(record, unit.write_ms, now_ms)
        if self._cancelled and self._is_cancelled(record):
            return None
        request = delivery(record, unit.write_ms, now_ms)
        if request is None:
            _log.error("timer message at log offset %d says no topic, passed over", unit.log_offset)
        return request

    def _is_cancelled(self, record: Record) -> bool:
        topic = find_property(record.properties, Property.REAL_TOPIC) or ""
        key = cancel_key(topic, record.unique_key or "")
        if key not in self._cancelled:
            return False
        self._cancelled[key] = ""  # found: nothing is to be counted again
        return True

    def _end(self) -> None:
        assert self._slot_ms is not None
        for topic in self._cancelled.values():
            if topic:  # it was counted, and cancelled nothing
                self._metrics.add(topic, 1)
        self._cancelled = {}
        self._progress.read_ms = self._slot_ms + self._wheel.precision_ms
        self._slot_ms = None
        self.slots += 1
