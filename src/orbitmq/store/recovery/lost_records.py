"""What to put where records were lost: fillers that keep every queue's numbering, padding, a blank.

The place of a lost record may be known (its own header, or the unit of its queue) or not (only a gap
in its queue's numbers tells of it). `arrange` gives each of them a part of the place:

  known records keep their place and size
  the others share what is left between them, in the order of their queue
  what then remains is padding: a filler of a rolled-back message, which has no unit in any queue
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from orbitmq.errors import FormatError
from orbitmq.format.filler import encode_filler, filler_bytes_min
from orbitmq.format.record import BLANK_BYTES, encode_record, record_size, topic_version
from orbitmq.message import LOOPBACK, SCHEDULE_TOPIC, AppendRequest, Host, Property, SysFlag
from orbitmq.store.recovery.queue_counts import Queue
from orbitmq.units import MiB

PADDING_TOPIC: Final = b"ORBITMQ"
FILLER_BYTES_MAX: Final = 4 * MiB
"""The Java store copies a record as a whole to check it; a gigabyte of padding would be too much."""

_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"


@dataclass(frozen=True, slots=True)
class LostRecord:
    """One record that is gone, as far as anything is known of it. `start` -1: place unknown."""

    topic: bytes
    queue_id: int
    queue_offset: int
    start: int = -1  # log offset
    size: int = 0
    batch_count: int = 1
    sys_flag: int = 0  # transaction bits only
    kept_properties: tuple[tuple[str, str], ...] = ()

    @property
    def queue(self) -> Queue:
        return self.topic, self.queue_id

    @property
    def end(self) -> int:
        return self.start + self.size

    @property
    def has_unit(self) -> bool:
        return not self.sys_flag & SysFlag.PREPARED

    def more_properties(self) -> dict[str, str]:
        """Return what its filler must carry beside the mark."""
        more = dict(self.kept_properties)
        if self.batch_count != 1:
            more[Property.INNER_NUM] = str(self.batch_count)
            more[Property.INNER_BASE] = str(self.queue_offset)
        return more


@dataclass(frozen=True, slots=True)
class Slot:
    """A part of the place. `lost` None: padding."""

    start: int
    end: int
    lost: LostRecord | None


@dataclass(frozen=True, slots=True)
class FillStyle:
    """What all fillers of a store have in common."""

    host: Host = LOOPBACK
    property_crc: bool = False


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The slots, without gaps from the start of the place on, and who found no room."""

    slots: tuple[Slot, ...]
    left_out: tuple[LostRecord, ...] = ()

    @property
    def end(self) -> int:
        return self.slots[-1].end if self.slots else -1


def padding_bytes_min(style: FillStyle) -> int:
    return filler_bytes_min(PADDING_TOPIC, property_crc=style.property_crc)


def lost_bytes_min(lost: LostRecord, style: FillStyle) -> int:
    """Return the least size of a marked filler for this record."""
    more = lost.more_properties()
    return filler_bytes_min(lost.topic, more_properties=more, property_crc=style.property_crc)


def arrange(
    start: int, end: int, lost: Sequence[LostRecord], style: FillStyle, *, closing: bool
) -> Arrangement:
    """Divide the place from `start` to `end`. A place that closes its segment keeps room for a blank.

    Such a place need not be filled: what follows the last slot is the blank.
    """
    limit = end - BLANK_BYTES if closing else end
    known = _without_overlaps(start, limit, [record for record in lost if record.start >= 0])
    others = [record for record in lost if record not in known]
    others = [replace(record, start=-1, size=0) for record in others]
    others.sort(key=lambda record: (record.queue, record.queue_offset))
    arranged = _place(start, limit, known, others, style, closing)
    if arranged.left_out and known:
        # The known places leave no room in the right order: the numbers matter more than the places.
        free = sorted(lost, key=lambda record: (record.queue, record.queue_offset))
        free = [replace(record, start=-1, size=0) for record in free]
        divided = _place(start, limit, [], free, style, closing)
        if len(divided.left_out) < len(arranged.left_out):
            arranged = divided
    return arranged


def _without_overlaps(start: int, end: int, known: list[LostRecord]) -> list[LostRecord]:
    """Return those whose places can all be right: inside, apart, and in the order of their queues."""
    kept: list[LostRecord] = []
    last: dict[Queue, int] = {}
    at = start
    for record in sorted(known, key=lambda record: record.start):
        least = record_size(0, len(record.topic), 0, version=topic_version(record.topic))
        fits = record.start >= at and record.end <= end and record.size >= least
        follows = not record.has_unit or record.queue_offset > last.get(record.queue, -1)
        if fits and follows:
            kept.append(record)
            at = record.end
            if record.has_unit:
                last[record.queue] = record.queue_offset
    return kept


def _place(
    start: int,
    end: int,
    known: list[LostRecord],
    others: list[LostRecord],
    style: FillStyle,
    closing: bool,
) -> Arrangement:
    slots: list[Slot] = []
    waiting = _Waiting(known, others)
    at = start
    for number in range(len(known) + 1):
        following = known[number] if number < len(known) else None
        stop = following.start if following is not None else end
        room_after = closing and following is None
        placed = _share(at, stop, waiting.for_interval(number), style, room_after)
        waiting.remove(placed)
        slots += placed
        at = slots[-1].end if slots else start
        if not room_after:
            slots = _padded(slots, at, stop, following, style)
            at = slots[-1].end if slots else start
    return Arrangement(tuple(slots), tuple(waiting.records))


class _Waiting:
    """Lost records without a place, and between which known ones each may lie."""

    def __init__(self, known: list[LostRecord], records: list[LostRecord]) -> None:
        self.records = records
        of_queue: dict[Queue, list[tuple[int, int]]] = {}
        for index, record in enumerate(known):
            of_queue.setdefault(record.queue, []).append((index, record.queue_offset))
        self._bounds: dict[LostRecord, tuple[int, int]] = {}
        for record in records:
            same = of_queue.get(record.queue, [])
            lower = (index + 1 for index, number in same if number < record.queue_offset)
            higher = (index for index, number in same if number > record.queue_offset)
            self._bounds[record] = max(lower, default=0), min(higher, default=len(known))

    def for_interval(self, number: int) -> list[LostRecord]:
        """Return those that may lie before known record `number`, the urgent ones first."""
        bounds = self._bounds
        fitting = [
            record for record in self.records if bounds[record][0] <= number <= bounds[record][1]
        ]
        return sorted(
            fitting, key=lambda record: (bounds[record][1], record.queue, record.queue_offset)
        )

    def remove(self, slots: list[Slot]) -> None:
        if slots:
            placed = {slot.lost for slot in slots}
            self.records = [record for record in self.records if record not in placed]


def _share(
    start: int, end: int, records: list[LostRecord], style: FillStyle, closing: bool
) -> list[Slot]:
    """Give each record its least size while there is room; the last one takes the rest."""
    slots: list[Slot] = []
    at = start
    full: set[Queue] = set()
    for record in records:
        size = lost_bytes_min(record, style)
        if at + size > end or record.queue in full:
            full.add(record.queue)  # a later one of the same queue must not come before it
            continue
        slots.append(Slot(at, at + size, record))
        at += size
    if slots and not closing:
        last = slots[-1]
        slots[-1] = replace(last, end=min(end, last.start + FILLER_BYTES_MAX))
        rest = end - slots[-1].end
        if 0 < rest < padding_bytes_min(style):
            slots[-1] = replace(slots[-1], end=end)
    return slots


def _padded(
    slots: list[Slot], at: int, stop: int, following: LostRecord | None, style: FillStyle
) -> list[Slot]:
    """Return the slots continued up to `stop` and by the known record that follows there."""
    least = padding_bytes_min(style)
    result = list(slots)
    while stop - at >= least:
        size = min(stop - at, FILLER_BYTES_MAX)
        if 0 < stop - at - size < least:
            size -= least
        result.append(Slot(at, at + size, None))
        at += size
    if at < stop and result:
        result[-1] = replace(result[-1], end=stop)
        at = stop
    if following is not None:
        # Nothing stands before it and the rest is too small for padding: it starts earlier.
        result.append(Slot(at, following.end, following))
    return result


def encode_slots(slots: Sequence[Slot], store_ms: int, style: FillStyle) -> bytes:
    """Return the records of these slots, one after another."""
    return b"".join(_encode_slot(slot, store_ms, style) for slot in slots)


def _encode_slot(slot: Slot, store_ms: int, style: FillStyle) -> bytes:
    size = slot.end - slot.start
    lost = slot.lost or LostRecord(PADDING_TOPIC, 0, 0, sys_flag=SysFlag.ROLLBACK.value)
    for more in (_discarded(lost), lost.more_properties()):
        try:
            return encode_filler(
                lost.topic,
                lost.queue_id,
                lost.queue_offset,
                slot.start,
                size,
                store_ms,
                sys_flag=lost.sys_flag,
                host=style.host,
                more_properties=more,
                property_crc=style.property_crc,
            )
        except FormatError:
            continue
    return _unmarked(slot, lost, store_ms, style)


def _discarded(lost: LostRecord) -> dict[str, str]:
    """Return the properties of a filler; in the schedule topic, with one that lets a broker drop it.

    A Java broker delivers what lies there to its REAL_TOPIC and never gets past one that has none.
    What seems to belong to the half topic it throws away.
    """
    more = lost.more_properties()
    if lost.topic == SCHEDULE_TOPIC.encode():
        more[Property.REAL_TOPIC] = _HALF_TOPIC
    return more


def _unmarked(slot: Slot, lost: LostRecord, store_ms: int, style: FillStyle) -> bytes:
    """Return a record without the mark: the lost one had no properties, so there is no room for it."""
    least = record_size(0, len(lost.topic), 0, version=topic_version(lost.topic))
    request = AppendRequest(
        topic=lost.topic.decode(),
        queue_id=lost.queue_id,
        body=bytes(max(0, slot.end - slot.start - least)),
        sys_flag=lost.sys_flag,
        born_ms=store_ms,
    )
    record = encode_record(
        request,
        log_offset=slot.start,
        queue_offset=lost.queue_offset,
        store_ms=store_ms,
        store_host=style.host,
    )
    if len(record) != slot.end - slot.start:
        raise FormatError(f"{slot.end - slot.start} bytes are too few for a record")
    return record
