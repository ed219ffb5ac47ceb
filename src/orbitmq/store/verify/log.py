"""What a check says of the log itself: its files, its bad places, odd records.

Facts about records need no order and are gathered wherever the records are read (`record_facts`); what
depends on the record before is judged in log order (`LogCheck`).
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import Mark, Rows
from orbitmq.format.property_crc import CRC_TAIL_BYTES, property_crc_matches
from orbitmq.log_read import Chunk, LogView
from orbitmq.message import Property
from orbitmq.store.recovery.plan import Repair, RepairKind
from orbitmq.store.recovery.walk import WalkResult
from orbitmq.store.verify.findings import (
    FINDINGS_PER_KIND_MAX,
    OPEN_STEP,
    Findings,
    Kind,
)

_CRC_MARK: Final = np.frombuffer(f"{Property.CRC32}\x01".encode(), dtype=np.uint8)


class RecordFacts(NamedTuple):
    """What a stretch of good records adds up to."""

    fillers: int = 0
    keys: int = 0  # that the index has to have
    units: int = 0  # that queues have to have
    crc_bad_count: int = 0  # records whose property CRC is wrong
    crc_bad: tuple[int, ...] = ()  # their log offsets, as many as are named

    def plus(self, other: "RecordFacts") -> "RecordFacts":
        """Return the facts of these records and of those that follow them."""
        return RecordFacts(
            self.fillers + other.fillers,
            self.keys + other.keys,
            self.units + other.units,
            self.crc_bad_count + other.crc_bad_count,
            (self.crc_bad + other.crc_bad)[:FINDINGS_PER_KIND_MAX],
        )


def record_facts(chunk: Chunk, due_end: int) -> RecordFacts:
    """Return the facts of a chunk's records; those from `due_end` on need no units and no entries yet."""
    rows = chunk.rows
    due = rows[rows["log_offset"] < due_end]
    crc_bad = _wrong_property_crcs(chunk)
    return RecordFacts(
        fillers=int((rows["marks"] & Mark.FILLER != 0).sum()),
        keys=int(due["key_count"].sum()),
        units=int((due["marks"] & Mark.NO_UNIT == 0).sum()),
        crc_bad_count=len(crc_bad),
        crc_bad=tuple(crc_bad[:FINDINGS_PER_KIND_MAX]),
    )


def _wrong_property_crcs(chunk: Chunk) -> list[int]:
    wrong = []
    for row in chunk.rows[_has_property_crc(chunk)]:
        end = int(row["properties_at"]) + int(row["properties_length"])  # where the record ends
        if not property_crc_matches(chunk.buffer[end - int(row["size"]) : end].data):
            wrong.append(int(row["log_offset"]))
    return wrong


def _has_property_crc(chunk: Chunk) -> npt.NDArray[np.bool_]:
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


class LogCheck:
    """Reports what is wrong with one log. `live`: a writer has it open. Not thread-safe."""

    def __init__(self, findings: Findings, *, live: bool) -> None:
        self.facts = RecordFacts()
        self.last_ms = 0  # store time of the last record
        self._findings = findings
        self._live = live

    def files(self, log: LogView) -> None:
        """Report segments that are short, missing or empty."""
        for segment in log.short:
            cause = f"has {segment.length} bytes instead of {len(segment.data)}"
            self._findings.add(Kind.FILE, segment.path, segment.length, cause, advice=OPEN_STEP)
        for segment in log.missing:
            cause = "segment is missing: its messages are lost unless it is brought back"
            step = "Bring the file back; or `orbitmq store repair` goes on without it."
            self._findings.add(
                Kind.FILE, segment.path, 0, cause, advice=step, log_offset=segment.base_offset
            )
        if not self._live:
            for path in log.empty:
                cause = "is empty: a writer stopped between creating and sizing it"
                self._findings.add(Kind.FILE, path, 0, cause, advice=OPEN_STEP)

    def records(self, log: LogView, rows: Rows, facts: RecordFacts) -> None:
        """Take the next good records. Of `rows` the times count: those that rise may be left out."""
        times = rows["store_ms"]
        before = np.concatenate(([self.last_ms], times[:-1]))
        for index in np.flatnonzero(times < before).tolist():
            cause = f"record is {int(before[index] - times[index])} ms older than the one before it"
            self._note(log, int(rows["log_offset"][index]), Kind.STORE_TIME, cause)
        self.last_ms = int(times[-1])
        for log_offset in facts.crc_bad:
            cause, segment = "record does not match its property CRC", log.at(log_offset)
            place = segment.path, log_offset - segment.base_offset
            self._findings.add(
                Kind.PROPERTIES, *place, cause, advice=OPEN_STEP, log_offset=log_offset
            )
        self._findings.count(Kind.PROPERTIES, facts.crc_bad_count - len(facts.crc_bad))
        self.facts = self.facts.plus(facts)

    def _note(self, log: LogView, log_offset: int, kind: Kind, cause: str) -> None:
        segment = log.at(log_offset)
        position = log_offset - segment.base_offset
        self._findings.note(kind, segment.path, position, cause, log_offset)

    def repair(self, repair: Repair) -> None:
        """Report a bad place."""
        cause, kind = repair.cause, Kind.RECORD
        match repair.kind:
            case RepairKind.CUT:
                if self._live or not repair.zero_rest:
                    return  # a writer is just writing there, or has made segments ahead
                kind = Kind.TAIL
            case RepairKind.BLANK:
                kind = Kind.BLANK
            case RepairKind.FILL:
                names = [
                    f"{lost.topic.decode()}/{lost.queue_id} offset {lost.queue_offset}"
                    for lost in repair.lost[:3]
                ]
                cause += f" ({', '.join(names)})" if names else ""
        self._findings.add(
            kind, repair.path, repair.position, cause, advice=OPEN_STEP, log_offset=repair.start
        )

    def finish(self, log: LogView, result: WalkResult) -> None:
        """Report what the walk noted, and a last record that is torn."""
        for note in result.notes:
            place = note.path, note.position
            self._findings.note(Kind.STORED_OFFSET, *place, note.cause, note.log_offset)
        self._last_record(log, result)

    def _last_record(self, log: LogView, result: WalkResult) -> None:
        """A record whose last page did not reach the disk may still pass: its CRC covers the body only."""
        if result.last_row is None or self._live:
            return
        log_offset, properties_at, length = result.last_row
        raw = log.at(log_offset).data[properties_at : properties_at + length]
        if length and (raw == 0).any():
            cause = (
                "properties of the last record hold zero bytes: it is torn, tags and keys are lost"
            )
            self._note(log, log_offset, Kind.PROPERTIES, cause)
