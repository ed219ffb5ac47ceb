"""One place of the log that holds no valid record: what was there, and what to write in its stead.

A record behind the place proves that the log goes on only if it names its own offset, passes its CRC,
is not older than the last good records, and its queue had not come further already. Stale bytes (of what
the segment's blocks held before) fail one of these. A record that was torn itself proves nothing.

What was lost is told by, in this order: the structure at the place itself (a flipped byte in a body
leaves all lengths intact), the queue units that point into it, gaps in the queue offsets of the
records before and behind it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from orbitmq.format.columns import Mark, Rows, ScanOptions
from orbitmq.format.properties import find_property
from orbitmq.format.record import BLANK, BLANK_BYTES, BLANK_MAGIC, encode_blank
from orbitmq.log_read import LogStop, LogView, Segment, rows_at
from orbitmq.message import Property, QueueType, SysFlag
from orbitmq.store.recovery.lost_records import (
    Arrangement,
    LostRecord,
    arrange,
    encode_slots,
    lost_bytes_min,
)
from orbitmq.store.recovery.plan import Repair, RepairKind, WalkOptions
from orbitmq.store.recovery.queue_counts import (
    GoesOn,
    Queue,
    QueueCounts,
    first_records,
    next_record,
    queue_of,
)
from orbitmq.store.recovery.torn_records import first_torn
from orbitmq.units import MiB

LOOKS_FAR: Final = 32
LOOK_BYTES: Final = 256 * MiB
"""For so many places the whole log behind them is read for what their queues go on with, for more only
this much: a log with a thousand bad places must not be read a thousand times."""

BATCH_COUNT_MAX: Final = 32767
"""A unit of a batch queue has two bytes for the number of its messages."""

_KEPT_PROPERTIES: Final = (Property.MULTI_DISPATCH, Property.MULTI_QUEUE_OFFSET)
_BLANK_MAGIC_BYTES: Final = BLANK.pack(0, BLANK_MAGIC)[4:]


@dataclass(frozen=True, slots=True)
class _Place:
    """The bytes to replace, inside one segment. A closing place reaches to the segment's end."""

    segment: Segment
    start: int  # log offsets
    end: int
    closing: bool
    goes_on_at: int  # the record that proves that the log goes on
    swallowed: tuple[LostRecord, ...] = ()  # good, but in the way: the place is too small to fill


class RepairPlanner:
    """Examines the bad places of one log, in order. Not thread-safe."""

    def __init__(self, log: LogView, options: WalkOptions, counts: QueueCounts) -> None:
        self._log = log
        self._options = options
        self._counts = counts
        self._looks = 0  # how often the log behind a place was read for its queue offsets
        self._behind: tuple[int, dict[Queue, GoesOn]] | None = None  # what the last look found

    def examine(self, at: int, stop: LogStop, recent_ms: Sequence[int]) -> Repair | None:
        """Return what to do at `at`, where no valid record lies; None: the log just ends there.

        `recent_ms` are the store times of the last good records before it.
        """
        if at >= self._log.max_offset:
            return None
        if stop is LogStop.BLANK:
            return self._cut(at, at + BLANK_BYTES)
        candidate = next_record(self._log, at + 1, self._options.kernels)
        if candidate is None:
            return self._cut(at, at)  # as every healthy log ends: nothing has to be counted
        self._counts.advance(at)
        # The oldest of them: one header with a wrong time must not make all that follow look stale.
        oldest_ms = min(recent_ms, default=-1) if len(recent_ms) > 1 else -1
        proof = self._first_proof(candidate, oldest_ms)
        if proof is None:
            return self._cut(at, at)
        place = self._place(at, proof)
        lost = self._lost_records(place)
        arranged = self._arrange(place, lost)
        while not place.closing and arranged.end != place.end:
            place, lost = self._larger(place, lost)
            arranged = self._arrange(place, lost)
        return self._fill(place, arranged, self._store_ms(place, recent_ms))

    # --- where the log goes on ---

    def _first_proof(self, candidate: int, oldest_ms: int) -> int | None:
        found: int | None = candidate
        while found is not None and not self._is_proof(found, oldest_ms):
            found = next_record(self._log, found + 1, self._options.kernels)
        return found

    def _is_proof(self, log_offset: int, oldest_ms: int) -> bool:
        segment, rows = self._rows_at(log_offset, 1)
        row = rows[0]
        if int(row["store_ms"]) < oldest_ms:
            return False
        if first_torn(segment.data, rows, self._options.whole_from) is not None:
            return False
        if row["marks"] & Mark.NO_UNIT:
            return True
        known = self._counts.next_offset(*queue_of(segment.data, row))
        return known is None or int(row["queue_offset"]) >= known

    def _rows_at(self, log_offset: int, count: int) -> tuple[Segment, Rows]:
        """Return the records from this offset on, `count` of them at most."""
        segment = self._log.at(min(log_offset, self._log.max_offset - 1))
        kernels, options = self._options.kernels, self._options.scan
        rows = rows_at(segment, log_offset, count, kernels=kernels, options=options)
        if not len(rows):
            # Proved by its CRC, but not by what this store demands (a property CRC).
            relaxed = ScanOptions(delay_ms=options.delay_ms)
            rows = rows_at(segment, log_offset, count, kernels=kernels, options=relaxed)
        return segment, rows

    def _store_ms(self, place: _Place, recent_ms: Sequence[int]) -> int:
        """Return a time for fillers that keeps the order of the log, if its neighbours allow one.

        The oldest of what three of them name on either side: one header with a wrong time must not make
        a filler that is wrong too.
        """
        following = self._rows_at(place.goes_on_at, 3)[1]["store_ms"].tolist()
        return min((*recent_ms[-1:], *following), default=0)

    # --- how large the place is ---

    def _place(self, at: int, proof: int) -> _Place:
        segment = self._log.at(at)
        if proof < segment.end_offset:
            return _Place(segment, at, proof, closing=False, goes_on_at=proof)
        blank = _find_blank(segment, at - segment.base_offset)
        if blank is not None:
            end = segment.base_offset + blank
            return _Place(segment, at, end, closing=False, goes_on_at=proof)
        return _Place(segment, at, segment.end_offset, closing=True, goes_on_at=proof)

    def _larger(self, place: _Place, lost: Sequence[LostRecord]) -> tuple[_Place, list[LostRecord]]:
        """Return the place with the good record behind it, because nothing fits into it alone."""
        if place.goes_on_at != place.end:  # a blank follows: it moves to the front
            return replace(place, end=place.segment.end_offset, closing=True), list(lost)
        segment, rows = self._rows_at(place.end, 1)
        swallowed = _lost_of_row(segment, rows[0])
        end = place.end + swallowed.size
        larger = replace(place, end=end, goes_on_at=end, swallowed=(*place.swallowed, swallowed))
        # A name that is no topic was damaged: no filler can have it, and no queue leads there.
        return larger, [*lost, *([swallowed] if _is_topic(swallowed.topic) else [])]

    # --- what was lost there ---

    def _lost_records(self, place: _Place) -> list[LostRecord]:
        next_offsets: dict[Queue, int] = {}
        found = self._from_structure(place, next_offsets)
        if found and found[-1].end == place.end and sum(r.size for r in found) == _size(place):
            return found
        found += self._from_units(place, found)
        found += self._from_gaps(place, found)
        return found

    def _next(self, queue: Queue, next_offsets: dict[Queue, int]) -> int | None:
        known = next_offsets.get(queue)
        return known if known is not None else self._counts.next_offset(*queue)

    def _from_structure(self, place: _Place, next_offsets: dict[Queue, int]) -> list[LostRecord]:
        """Return the records whose lengths and numbers are still right although a check fails.

        Only numbers that continue their queue are believed: the header has no checksum of its own.
        """
        segment, found = place.segment, list[LostRecord]()
        rows = rows_at(
            segment,
            place.start,
            _size(place),
            kernels=self._options.kernels,
            limit=place.end,
            options=ScanOptions(delay_ms=self._options.scan.delay_ms),
        )
        for row in rows:
            lost = _lost_of_row(segment, row)
            if not _is_topic(lost.topic) or not self._fits(place, lost, next_offsets):
                break
            found.append(lost)
            if lost.has_unit:
                next_offsets[lost.queue] = lost.queue_offset + lost.batch_count
        return found

    def _fits(self, place: _Place, lost: LostRecord, next_offsets: dict[Queue, int]) -> bool:
        """Tell whether a record's number continues its queue, or what follows it in a new one."""
        if not lost.has_unit:
            return True
        expected = self._next(lost.queue, next_offsets)
        if expected is not None:
            return lost.queue_offset == expected
        following = self._first_behind(place).get(lost.queue)
        return following is None or following.queue_offset >= lost.queue_offset + lost.batch_count

    def _first_behind(self, place: _Place) -> dict[Queue, GoesOn]:
        """Return with which number each queue goes on behind a place, in the order in which they do."""
        start = place.goes_on_at
        if self._behind is None or self._behind[0] != start:
            end = self._log.max_offset if self._looks < LOOKS_FAR else start + LOOK_BYTES
            self._looks += 1
            self._behind = start, first_records(self._log, start, end, self._options.kernels)
        return self._behind[1]

    def _from_units(self, place: _Place, found: Sequence[LostRecord]) -> list[LostRecord]:
        known = _numbers(found)
        believed = []
        for lost in self._options.units_between(place.start, place.end):
            expected = self._counts.next_offset(*lost.queue)
            behind = expected is not None and lost.queue_offset < expected
            if (*lost.queue, lost.queue_offset) not in known and not behind:
                believed.append(lost)
        return believed

    def _from_gaps(self, place: _Place, found: Sequence[LostRecord]) -> list[LostRecord]:
        """Return what is missing between the queues before the place and those behind it.

        Where not all of it fits, the queues that go on first have the room, and of one queue the first
        numbers: what is still missing may have been lost at a later place.
        """
        known = _numbers((*found, *self._placed_later(place)))
        room = _size(place) - sum(lost.size for lost in found)
        missing: list[LostRecord] = []
        for queue, (first, bad_bytes) in self._first_behind(place).items():
            before = self._counts.likely_next(*queue)
            if before is None or not _is_topic(queue[0]):
                continue  # a queue that starts here: its first offset says nothing of what was lost
            if first - before > self._most_numbers(queue, _size(place) + bad_bytes):
                continue  # the gap is older than this place, or the number is wrong
            numbers = (n for n in range(before, first) if (*queue, n) not in known)
            for lost in self._in_records(queue, numbers):
                needed = lost_bytes_min(lost, self._options.style)
                if needed > room:
                    break
                missing.append(lost)
                room -= needed
        return missing

    def _is_batch(self, queue: Queue) -> bool:
        return self._options.topic_type(queue[0].decode()) is QueueType.BATCH

    def _most_numbers(self, queue: Queue, size: int) -> int:
        """Return how many numbers of a queue can have been lost with so many bytes."""
        if self._is_batch(queue):
            return BATCH_COUNT_MAX
        return size // lost_bytes_min(LostRecord(*queue, 0), self._options.style)

    def _in_records(self, queue: Queue, numbers: Iterable[int]) -> list[LostRecord]:
        """Return lost records with these numbers, which ascend.

        Into how many batches those of a batch queue were divided nobody knows any more, and a filler for
        each may not fit where one batch lay: neighbours share one.
        """
        if not self._is_batch(queue):
            return [LostRecord(*queue, number) for number in numbers]
        found: list[LostRecord] = []
        for number in numbers:
            last = found[-1] if found else None
            if last is not None and number == last.queue_offset + last.batch_count:
                found[-1] = replace(last, batch_count=last.batch_count + 1)
            else:
                found.append(LostRecord(*queue, number))
        return found

    def _placed_later(self, place: _Place) -> Sequence[LostRecord]:
        """Return the lost records that units place between here and where the log goes on."""
        if place.goes_on_at <= place.end:
            return ()
        return self._options.units_between(place.end, place.goes_on_at)

    # --- the repair ---

    def _arrange(self, place: _Place, lost: Sequence[LostRecord]) -> Arrangement:
        style = self._options.style
        return arrange(place.start, place.end, lost, style, closing=place.closing)

    def _fill(self, place: _Place, arranged: Arrangement, store_ms: int) -> Repair:
        lost = tuple(slot.lost for slot in arranged.slots if slot.lost is not None)
        data = encode_slots(arranged.slots, store_ms, self._options.style)
        if place.closing:
            data += encode_blank(place.end - place.start - len(data))
        only_blank = place.closing and len(data) == BLANK_BYTES
        return Repair(
            kind=RepairKind.BLANK if only_blank else RepairKind.FILL,
            path=place.segment.path,
            base_offset=place.segment.base_offset,
            start=place.start,
            end=place.end,
            resume=place.end,
            cause=_cause(place, lost),
            data=data,
            zero_rest=place.closing,
            lost=lost,
            left_out=arranged.left_out,
        )

    def _cut(self, at: int, junk_from: int) -> Repair | None:
        """Return the cut at `at`; None if nothing lies behind it anyway.

        A blank that ends the last segment stays: only what follows its eight bytes is junk.
        """
        number = self._log.index_of(at)
        segment = self._log.segments[number]
        later = self._log.segments[number + 1 :]
        junk = not segment.is_zero(junk_from - segment.base_offset)
        if not junk and not later:
            return None
        records = "nothing that follows is a valid record"
        return Repair(
            kind=RepairKind.CUT,
            path=segment.path,
            base_offset=segment.base_offset,
            start=at,
            end=segment.end_offset,
            resume=at,
            cause=f"torn end of the log: {records}"
            if junk
            else "segments behind the end of the log",
            zero_rest=junk,
            removed=tuple(view.path for view in later if not view.missing),
        )


def _size(place: _Place) -> int:
    return place.end - place.start


def _lost_of_row(segment: Segment, row: np.void) -> LostRecord:
    topic, queue_id = queue_of(segment.data, row)
    at, length = int(row["properties_at"]), int(row["properties_length"])
    raw = segment.data[at : at + length].tobytes()
    kept = ((name, find_property(raw, name)) for name in _KEPT_PROPERTIES)
    return LostRecord(
        topic=topic,
        queue_id=queue_id,
        queue_offset=int(row["queue_offset"]),
        start=int(row["log_offset"]),
        size=int(row["size"]),
        batch_count=int(row["batch_count"]),
        sys_flag=int(row["sys_flag"]) & SysFlag.TRANSACTION.value,
        kept_properties=tuple((name, value) for name, value in kept if value),
    )


def _numbers(records: Iterable[LostRecord]) -> set[tuple[bytes, int, int]]:
    """Return the queue offsets that these records take, a batch several."""
    return {
        (*lost.queue, lost.queue_offset + number)
        for lost in records
        for number in range(min(max(lost.batch_count, 1), BATCH_COUNT_MAX))
    }


def _is_topic(topic: bytes) -> bool:
    """Tell whether these bytes can be a topic's name; damaged ones rarely are."""
    try:
        text = topic.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return bool(text) and text.isprintable() and "/" not in text


def _find_blank(segment: Segment, position: int) -> int | None:
    """Return where the segment's blank record starts: one whose size leads exactly to the end."""
    raw = segment.data[position : segment.data_end()].tobytes()
    at = raw.find(_BLANK_MAGIC_BYTES, 4)
    while at >= 0:
        start = position + at - 4
        if BLANK.unpack_from(raw, at - 4)[0] == len(segment.data) - start:
            return start
        at = raw.find(_BLANK_MAGIC_BYTES, at + 1)
    return None


def _cause(place: _Place, lost: Sequence[LostRecord]) -> str:
    if place.segment.missing:
        what = "segment is missing"
    elif place.closing and not lost:
        what = "no end-of-segment record, but the next segment goes on"
    elif len(lost) == 1:
        what = "damaged record"
    else:
        what = f"{len(lost)} damaged records" if lost else "bytes that are no record"
    if place.swallowed:
        what += (
            f" (and {len(place.swallowed)} good record(s): the place alone is too small to fill)"
        )
    return what
