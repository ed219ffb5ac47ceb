"""Schedule: delivers delayed messages when they are due.

The store keeps a delayed message in SCHEDULE_TOPIC_XXXX, one queue per delay level. All messages of a
level wait equally long, so each queue is delivered in order, and how far it is is one queue offset.

Progress is saved as config/delayOffset.json, but never ahead of the disk: what is saved was delivered
by appends that are flushed. After a crash some messages are delivered once more, none is lost.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from orbitmq.broker.context import BrokerContext
from orbitmq.errors import FormatError, StateFileError
from orbitmq.format.record import Record, decode_record
from orbitmq.message import (
    SCHEDULE_TOPIC,
    AppendRequest,
    AppendResult,
    AppendStatus,
    GetStatus,
    Property,
    SysFlag,
)
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.offsets import DelayOffsets
from orbitmq.wire.bodies.topic_config import DataVersion

logger = logging.getLogger(__name__)

DELAY_FILE: Final = "delayOffset.json"
READ_COUNT: Final = 32  # the store gives no more at once
TURN_COUNT: Final = 512  # messages delivered before others get their turn
RETRY_MS: Final = 100  # when the store takes nothing
IDLE_MS: Final = 1 * SECOND_MS

_HOPELESS: Final = (AppendStatus.MESSAGE_ILLEGAL, AppendStatus.PROPERTIES_SIZE_EXCEEDED)
_ELSEWHERE: Final = (
    GetStatus.OFFSET_TOO_SMALL,
    GetStatus.OFFSET_OVERFLOW_BADLY,
    GetStatus.OFFSET_FOUND_NULL,
    GetStatus.MESSAGE_WAS_REMOVING,
    GetStatus.NO_MATCHED_MESSAGE,
)
"""Statuses that say where to go on reading."""

Progress = dict[int, int]
"""Delay level -> queue offset of the next message to deliver."""


class _Due(NamedTuple):
    """Something of a level's queue that is due, and the queue offset behind it."""

    request: AppendRequest | None  # None: it cannot be delivered at all
    next_offset: int


class Schedule:
    """The delay levels of one broker. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        self._store, self._clock, self._loop = context.store, context.clock, context.loop
        self._delay_ms = context.store.config.delay_ms
        self._idle_ms = min(IDLE_MS, max(RETRY_MS, min(self._delay_ms[1:])))
        self._progress: Progress = {}
        self._timer: asyncio.TimerHandle | None = None
        self._running = False
        self.version = DataVersion(timestamp=context.clock.now_ms())
        # Progress that may be saved, and progress that may be when the log is flushed so far.
        self._safe: Progress = {}
        self._safe_changes = 0
        self._next: tuple[int, Progress] | None = None

    # --- running ---

    def start(self) -> None:
        """Begin to deliver."""
        self._running = True
        self._set_timer(0)

    def stop(self) -> None:
        """Deliver no more, and make what was delivered durable, so that its progress can be saved."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._moved():
            self._store.wait_flushed()

    def tick(self) -> None:
        """Deliver what is due, and come back when the next message is."""
        now = self._clock.now_ms()
        wait_ms = float(self._idle_ms)
        for level in range(1, len(self._delay_ms)):
            try:
                wait_ms = min(wait_ms, self._deliver(level, now))
            except Exception:
                logger.exception("delay level %d: delivery failed; it is tried again", level)
                wait_ms = min(wait_ms, RETRY_MS)
        self._set_timer(wait_ms)

    def _set_timer(self, wait_ms: float) -> None:
        if self._running:
            self._timer = self._loop.call_later(wait_ms / 1000, self.tick)

    # --- one level ---

    def _deliver(self, level: int, now: int) -> float:
        """Deliver what is due of one level; return in how many ms to look again."""
        for _ in range(TURN_COUNT // READ_COUNT):
            offset = self._progress.get(level, 0)
            found = self._store.get(SCHEDULE_TOPIC, level - 1, offset, READ_COUNT)
            if found.status in _ELSEWHERE and found.next_offset != offset:
                self._move(level, found.next_offset)
                continue
            if found.status is not GetStatus.FOUND:
                return self._idle_ms
            due: list[_Due] = []
            wait_ms = 0.0
            for raw, queue_offset in zip(found.records, found.queue_offsets, strict=True):
                record = _decoded(raw, level, queue_offset)
                if record is not None:
                    wait_ms = self._wait_ms(record, level, now)
                    if wait_ms > 0:
                        break
                due.append(_Due(_delivery(record, level), queue_offset + 1))
            if not self._append(level, due):
                return RETRY_MS
            if wait_ms > 0:
                return wait_ms
            if len(due) == len(found.records):
                self._move(level, found.next_offset)
        return 0

    def _wait_ms(self, record: Record, level: int, now: int) -> float:
        if record.store_ms > now:
            return 0  # the clock was set back; nobody waits longer than the level says
        return max(0, record.store_ms + self._delay_ms[level] - now)

    def _append(self, level: int, due: list[_Due]) -> bool:
        """Append all in order; False: the store takes nothing now, and progress stands before it."""
        for request, next_offset in due:
            if request is not None:
                result = self._store.append_nowait(request)
                if not result.status.stored and not _is_hopeless(result, request):
                    logger.warning("delay level %d: waits, %s", level, result.reason)
                    return False
            self._move(level, next_offset)
        return True

    def _move(self, level: int, offset: int) -> None:
        if self._progress.get(level, 0) != offset:
            self._progress[level] = offset

    # --- telling and saving ---

    def progress(self) -> dict[int, tuple[int, int]]:
        """Return for each level in use how far it is delivered and how far it is filled."""
        ends = {
            level: self._store.max_offset(SCHEDULE_TOPIC, level - 1)
            for level in range(1, len(self._delay_ms))
        }
        return {level: (self._progress.get(level, 0), end) for level, end in ends.items() if end}

    @property
    def changes(self) -> int:
        """Grows with each progress that may be saved."""
        self._settle()
        return self._safe_changes

    def snapshot(self) -> dict[str, Any]:
        """Return what delayOffset.json holds."""
        return {"dataVersion": self.version, "offsetTable": dict(sorted(self._safe.items()))}

    def take_over(self, told: DelayOffsets) -> None:
        """Stand where a primary says that it stands; this broker delivers nothing itself."""
        if told.offset_table != self._safe or told.data_version != self.version:
            self._progress, self._safe = dict(told.offset_table), dict(told.offset_table)
            self.version = told.data_version
            self._safe_changes += 1

    def load(self, state: Mapping[str, Any], path: Path) -> None:
        """Take over what delayOffset.json holds. StateFileError: it cannot be understood."""
        try:
            table = state.get("offsetTable") or {}
            self._progress = {int(level): max(0, int(offset)) for level, offset in table.items()}
            self.version = DataVersion.of(state.get("dataVersion") or {})
        except (ValueError, TypeError, AttributeError) as cause:
            step = "Move it away: delayed messages that are still stored are then delivered again."
            raise StateFileError(path, f"is no table of delay offsets: {cause}", step) from cause
        self._safe = dict(self._progress)

    def _moved(self) -> bool:
        return self._progress != self._safe

    def _settle(self) -> None:
        """Find out which progress is safe by now."""
        if self._next is not None and self._store.flushed_offset >= self._next[0]:
            self._safe = self._next[1]
            self._next = None
            self._safe_changes += 1
            self.version = self.version.next(self._clock.now_ms())
        if self._next is None and self._moved():
            end_offset = self._store.max_log_offset
            self._next = end_offset, dict(self._progress)
            if self._store.flushed_offset >= end_offset:
                self._settle()


def _decoded(raw: memoryview, level: int, queue_offset: int) -> Record | None:
    try:
        return decode_record(raw)
    except FormatError as error:
        logger.error(  # noqa: TRY400  (what is broken is a record, not this code)
            "delay level %d, message %d: cannot be read, passed over: %s",
            level,
            queue_offset,
            error,
        )
        return None


def _delivery(record: Record | None, level: int) -> AppendRequest | None:
    """Return the message as its consumers get it: everything as it came, at its real place."""
    if record is None:
        return None
    properties = record.property_map
    topic = properties.get(Property.REAL_TOPIC)
    queue_id = properties.get(Property.REAL_QUEUE_ID, "")
    if not topic or not queue_id.isdecimal():
        logger.error(
            "delay level %d, message %d: says not where it belongs, passed over",
            level,
            record.queue_offset,
        )
        return None
    return AppendRequest(
        topic,
        int(queue_id),
        record.body,
        record.properties,
        record.flag,
        record.sys_flag & ~int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6),
        record.born_ms,
        record.born_host,
        reconsume_times=record.reconsume_times,
        due=True,
    )


def _is_hopeless(result: AppendResult, request: AppendRequest) -> bool:
    """Tell whether a message can never be delivered; it must not stop those behind it."""
    if result.status not in _HOPELESS:
        return False
    logger.error("topic %s: a delayed message is passed over: %s", request.topic, result.reason)
    return True
