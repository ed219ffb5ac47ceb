"""A store as its files show it: read-only, without engine and lock, also beside a running broker.

Nothing here needs consume queues or index files. They are used where they are right, which the record
itself proves; otherwise the log is read, and `say` is told so.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.errors import CorruptRecordError, FormatError, NotAStoreError
from orbitmq.files.disk import Disk
from orbitmq.files.layout import QueueKind, guess_layout
from orbitmq.format import cq_unit
from orbitmq.format.columns import Bytes, Mark, Rows, ScanOptions
from orbitmq.format.kernels import Kernels, compiled, plain
from orbitmq.format.message_id import decode_offset_id
from orbitmq.format.record import MAGIC_AT, MAGIC_V1, MAGIC_V2, Record, decode_record, store_ms_at
from orbitmq.log_read import (
    BadPlace,
    Chunk,
    Progress,
    ReadState,
    Segment,
    Skip,
    chunks,
    find_record,
    open_log,
)
from orbitmq.message import LMQ_PREFIX
from orbitmq.units import HOUR_MS

OFFSET_MAX: Final = 2**63 - 1
CHECK_STEP: Final = "`orbitmq store check` lists everything that is wrong with the store."

_SCAN: Final = ScanOptions(max_rows=16_384)  # bodies are checked when a record is decoded
_PLAIN_ROWS: Final = 20_000  # loading the compiled kernels costs as much as so many plain rows
_CLOCK_SLACK_MS: Final = HOUR_MS
_UNITS_MAX: Final = OFFSET_MAX // cq_unit.UNIT_BYTES
_NAME_BYTES_MAX: Final = 255
_MAGICS: Final = {magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records; both ranges exclude their end."""

    topic: str | None = None
    queue_id: int | None = None
    start: int = 0
    end: int = OFFSET_MAX
    start_ms: int = -OFFSET_MAX
    end_ms: int = OFFSET_MAX


class Found(NamedTuple):
    """A record and where it lies, which is not always what it says of itself."""

    log_offset: int
    record: Record


class OfflineStore:
    """Reads one store directory. Not thread-safe; what it maps is freed with it."""

    def __init__(
        self,
        root: Path,
        settings: Mapping[str, str] | None = None,
        *,
        say: Callable[[str], None] = lambda text: None,
        progress: Progress = lambda done, total: None,
    ) -> None:
        self.layout = guess_layout(root, settings, index_needed=False)
        if not any(path.is_dir() for path in self.layout.commit_log_directories):
            what = "there is no store here: no directory `commitlog`"
            raise NotAStoreError(root, what, "Give the directory that `storePathRootDir` names.")
        self.disk = Disk()
        self.say = say
        self.bad_places: list[BadPlace] = []
        self._progress = progress
        self._rows_seen = 0
        with open_log(self.layout, self.disk, missing_allowed=True) as log:
            self.log = log
        for segment in (*log.missing, *log.short):
            state = "is missing" if segment.missing else f"has only {segment.length} bytes"
            say(f"{segment.path}: {state}. {CHECK_STEP}")

    @property
    def log_bytes(self) -> int:
        return sum(segment.length for segment in self.log.segments)

    def iter_records(self, selection: Selection) -> Iterator[Found]:
        """Yield the selected records in log order; bad places are passed over and noted."""
        for segment, rows in self.iter_rows(selection):
            data = segment.data.data
            for position in (rows["log_offset"] - segment.base_offset).tolist():
                try:
                    record = decode_record(data, position)
                except FormatError as error:
                    size = int.from_bytes(data[position : position + 4], "big")
                    at = segment.base_offset + position
                    self._note_bad(BadPlace(segment.path, at, position, size, error.reason))
                    continue
                yield Found(segment.base_offset + position, record)

    def iter_rows(self, selection: Selection) -> Iterator[tuple[Segment, Rows]]:
        """Yield the selected rows, a bounded number at a time. Bodies are not checked."""
        state = ReadState(0)
        for segment in self._segments_of(selection):
            for rows in self._segment_rows(segment, selection.start, selection.end, state):
                kept = rows[_matches(segment.data, rows, selection)]
                if len(kept):
                    yield segment, kept
            self._show_progress(segment.end_offset)

    def record_at(self, log_offset: int) -> Found | None:
        """Return the record that starts at this offset, None if none does.

        Any offset may be asked for: a body can hold bytes that are a record in all but their place.
        CorruptRecordError: a record starts there, but it fails its checks.
        """
        try:
            found = self.decode_at(log_offset)
        except CorruptRecordError:
            if not self._is_met(log_offset):
                return None
            raise
        if found is None or self._has_unit(found) or self._is_met(log_offset):
            return found
        return None

    def decode_at(self, log_offset: int) -> Found | None:
        """Return the same for an offset at which a unit or a scan has found a record."""
        if not self.log.min_offset <= log_offset < self.log.max_offset:
            return None
        segment = self.log.at(log_offset)
        position = log_offset - segment.base_offset
        try:
            return Found(log_offset, decode_record(segment.data.data, position))
        except FormatError as error:
            magic = segment.data[position + MAGIC_AT : position + MAGIC_AT + 4].tobytes()
            if magic not in _MAGICS:
                return None
            raise CorruptRecordError(segment.path, position, error.reason, CHECK_STEP) from error

    def _has_unit(self, found: Found) -> bool:
        """Tell whether a queue leads to this record; only records of the log get units."""
        record = found.record
        unit = self._unit(record.topic, record.queue_id, record.queue_offset)
        return unit is not None and (unit.log_offset, unit.size) == (found.log_offset, record.size)

    def _is_met(self, log_offset: int) -> bool:
        """Tell whether the chain of records, from the segment's start on, comes by this offset."""
        segment = self.log.at(log_offset)
        state, silent = ReadState(segment.base_offset), Skip(stale=True)
        for _ in self._chunks(segment, log_offset, state, silent):
            pass
        return state.at == log_offset

    def by_queue_offset(self, topic: str, queue_id: int, queue_offset: int) -> Found | None:
        """Return a message by its place in a queue; from the log alone if the queue does not help."""
        found = self._by_unit(topic, queue_id, queue_offset)
        if found is not None:
            return found
        selection = Selection(topic=topic, queue_id=queue_id)
        for _, rows in self.iter_rows(selection):
            first, count = rows["queue_offset"], rows["batch_count"]
            inside = (first <= queue_offset) & (queue_offset < first + count)
            hits = rows[inside & ((rows["marks"] & Mark.NO_UNIT) == 0)]
            if len(hits):
                queue = f"queue {queue_id} of {topic}"
                self.say(
                    f"{queue} has no right unit for offset {queue_offset}: read the log instead"
                )
                return self.decode_at(int(hits["log_offset"][0]))
        return None

    def by_message_id(self, message_id: str) -> Found | None:
        """Return a message by its offset id, or else by its unique id. FormatError: it is no id."""
        host, log_offset = decode_offset_id(message_id)
        found = _unless_corrupt(self.record_at, log_offset)
        if found is not None and found.record.store_host == host:
            return found
        self.say("the id is no place in this log: looking for it as a unique id in all records")
        wanted = message_id.upper().encode()
        for segment, rows in self.iter_rows(Selection()):
            for row in rows[rows["key_count"] > 0]:
                at = int(row["properties_at"])
                if wanted in segment.data[at : at + int(row["properties_length"])].tobytes():
                    found = _unless_corrupt(self.decode_at, int(row["log_offset"]))
                    if found is not None and found.record.unique_key == message_id.upper():
                        return found
        return None

    def _by_unit(self, topic: str, queue_id: int, queue_offset: int) -> Found | None:
        unit = self._unit(topic, queue_id, queue_offset)
        found = _unless_corrupt(self.decode_at, unit.log_offset) if unit is not None else None
        if found is None:
            return None
        record = found.record
        place = (record.topic, record.queue_id, record.queue_offset)
        # A light queue's unit points at a record of another topic, which names the light queue.
        is_right = place == (topic, queue_id, queue_offset) or topic.startswith(LMQ_PREFIX)
        return found if is_right else None

    def _unit(self, topic: str, queue_id: int, queue_offset: int) -> cq_unit.CqUnit | None:
        """Return the unit of a simple queue that has this number, None if there is no real one."""
        if not 0 <= queue_offset < _UNITS_MAX or not _is_file_name(topic):
            return None  # a forged record may name anything
        file_bytes = self.layout.cq_file_bytes
        base, position = divmod(queue_offset * cq_unit.UNIT_BYTES, file_bytes)
        raw = self.read_file(
            self.layout.queue_file(QueueKind.SIMPLE, topic, queue_id, base * file_bytes),
            position,
            cq_unit.UNIT_BYTES,
        )
        if len(raw) < cq_unit.UNIT_BYTES:
            return None
        unit = cq_unit.decode_unit(raw)
        return unit if unit.is_valid and not unit.is_padding else None

    def read_file(self, path: Path, position: int, length: int) -> bytes:
        """Return a piece of a file; nothing if the file is not there."""
        if not path.is_file():
            return b""
        fd = self.disk.open(path, writable=False)
        try:
            return self.disk.read_at(path, fd, position, length)
        finally:
            self.disk.close(path, fd)

    def _show_progress(self, log_offset: int) -> None:
        first = self.log.min_offset
        self._progress(log_offset - first, self.log.max_offset - first)

    def _kernels(self) -> Kernels:
        return plain() if self._rows_seen < _PLAIN_ROWS else compiled()

    def _segments_of(self, selection: Selection) -> Iterator[Segment]:
        """Yield the segments that can hold selected records.

        Store times follow the clock of the writer, which may have been set back: a segment is left out by
        time only with a margin.
        """
        held = [segment for segment in self.log.segments if not segment.missing]
        starts = [first_store_ms(segment) for segment in held]
        for number, segment in enumerate(held):
            if segment.end_offset <= selection.start or segment.base_offset >= selection.end:
                continue
            first = starts[number]
            following = starts[number + 1] if number + 1 < len(held) else None
            if first is not None and first - _CLOCK_SLACK_MS >= selection.end_ms:
                continue
            if following is not None and following + _CLOCK_SLACK_MS < selection.start_ms:
                continue
            yield segment

    def _segment_rows(
        self, segment: Segment, start: int, end: int, state: ReadState
    ) -> Iterator[Rows]:
        """Yield all rows of a segment that start in [start, end)."""
        state.at = segment.base_offset
        if start > state.at:  # The start need not be that of a record.
            written = segment.base_offset + segment.data_end()
            found = find_record(segment, start, written, self._kernels(), check_crc=False)
            if found is None:
                return
            state.at = found
        for chunk in self._chunks(segment, end, state, Skip(self._note_bad, stale=True)):
            self._show_progress(state.at)
            yield chunk.rows

    def _chunks(self, segment: Segment, end: int, state: ReadState, bad: Skip) -> Iterator[Chunk]:
        """Yield the records from `state.at` on; by other kernels as soon as those are worth it."""
        written = segment.base_offset + segment.data_end()
        while state.at < min(end, written):
            kernels = self._kernels()
            for chunk in chunks(
                segment,
                state.at,
                end,
                kernels=kernels,
                options=_SCAN,
                limit=written,
                bad=bad,
                state=state,
            ):
                self._rows_seen += len(chunk.rows)
                yield chunk
                if self._kernels() is not kernels:
                    break
            else:
                return

    def _note_bad(self, place: BadPlace) -> None:
        self.bad_places.append(place)
        where = f"{place.path}, position {place.position}"
        self.say(f"{where}: {place.reason}, {place.length} bytes passed over. {CHECK_STEP}")


def _unless_corrupt(read: Callable[[int], Found | None], log_offset: int) -> Found | None:
    try:
        return read(log_offset)
    except CorruptRecordError:
        return None


def first_store_ms(segment: Segment) -> int | None:
    """Return the store time of a segment's first record; None if it does not start with one."""
    if (
        len(segment.data) < MAGIC_AT + 4
        or segment.data[MAGIC_AT : MAGIC_AT + 4].tobytes() not in _MAGICS
    ):
        return None
    try:
        return store_ms_at(segment.data, 0)
    except FormatError:
        return None


def _is_file_name(topic: str) -> bool:
    is_path = "/" in topic or "\0" in topic or topic in ("", ".", "..")
    return not is_path and len(topic.encode()) <= _NAME_BYTES_MAX


def _matches(data: Bytes, rows: Rows, selection: Selection) -> npt.NDArray[np.bool_]:
    offsets, times = rows["log_offset"], rows["store_ms"]
    kept: npt.NDArray[np.bool_] = (offsets >= selection.start) & (offsets < selection.end)
    kept &= (times >= selection.start_ms) & (times < selection.end_ms)
    if selection.queue_id is not None:
        kept &= rows["queue_id"] == selection.queue_id
    if selection.topic is not None:
        kept &= _has_topic(data, rows, selection.topic.encode())
    return kept


def _has_topic(data: Bytes, rows: Rows, topic: bytes) -> npt.NDArray[np.bool_]:
    wanted = np.frombuffer(topic, dtype=np.uint8)
    same: npt.NDArray[np.bool_] = rows["topic_length"] == len(wanted)
    places = rows["topic_at"][same][:, np.newaxis] + np.arange(len(wanted))
    same[same] = (data[places] == wanted).all(axis=1)
    return same
