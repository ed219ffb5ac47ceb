"""Timer wheel, timer log and their checkpoint: does each lead to what is there? Reads only.

Read in the order opposite to that in which a broker writes them, so that beside a running one what leads
is never newer than what it leads to. What waited for times that are over is passed over: nobody clears it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.files.disk import Disk, exists
from orbitmq.files.listing import SegmentFile, list_segments
from orbitmq.files.replace import read_whole
from orbitmq.format.columns import Ints
from orbitmq.format.record import MAGIC_V1, MAGIC_V2
from orbitmq.format.timer_checkpoint import TimerCheckpoint
from orbitmq.format.timer_checkpoint import decode as decode_checkpoint
from orbitmq.format.timer_log import (
    BLANK,
    BLANK_BYTES,
    BLANK_MAGIC,
    MAGIC_BITS,
    NO_POSITION,
    UNIT_BYTES,
    UNIT_DTYPE,
    last_unit_at,
)
from orbitmq.format.timer_wheel import SLOT_BYTES, SLOT_DTYPE, WHEEL_BYTES
from orbitmq.log_read import LogView
from orbitmq.log_read.segment import open_segment
from orbitmq.store.verify.facts import StoreFacts
from orbitmq.store.verify.findings import Findings, Kind

START_STEP: Final = (
    "Start the broker: it makes the wheel again, and puts in again what the timer log lost."
)

Units = npt.NDArray[np.void]


class _Piece(NamedTuple):
    """The units of one file of the timer log, and where they begin."""

    path: Path
    base: int
    units: Units

    @property
    def positions(self) -> Ints:
        return self.base + np.arange(len(self.units), dtype=np.int64) * UNIT_BYTES


def check_timer(facts: StoreFacts, log: LogView, log_end: int, findings: Findings) -> None:
    """Check what a store keeps of messages that wait for a time; nothing of it is no finding."""
    _TimerCheck(facts, log, log_end, findings).run()


class _TimerCheck:
    """One look. Not thread-safe."""

    def __init__(self, facts: StoreFacts, log: LogView, log_end: int, findings: Findings) -> None:
        self._layout, self._live = facts.layout, facts.live
        self._precision_ms = facts.config.timer_precision_ms
        self._log, self._log_end, self._findings = log, log_end, findings
        self._disk = Disk()

    def run(self) -> None:
        checkpoint = self._checkpoint()
        slots = self._slots(checkpoint.read_ms)
        pieces = list(self._pieces())
        end = 0
        for piece in pieces:
            self._check_units(piece, checkpoint.read_ms)
            end = piece.base + len(piece.units) * UNIT_BYTES
        if checkpoint.timer_log_end > max(end, self._files_end):
            path = self._layout.config("timercheck")
            cause = (
                f"says that the timer log has {checkpoint.timer_log_end} bytes; it ends at {end}"
            )
            self._add(path, 8, cause)
        self._check_slots(slots, pieces)

    def _add(self, path: Path, position: int, cause: str, log_offset: int | None = None) -> None:
        self._findings.add(
            Kind.TIMER, path, position, cause, advice=START_STEP, log_offset=log_offset
        )

    # --- what leads ---

    def _checkpoint(self) -> TimerCheckpoint:
        path = self._layout.config("timercheck")
        data = read_whole(self._disk, path)
        if data:
            try:
                return decode_checkpoint(data)
            except FormatError as error:
                self._add(path, 0, str(error))
        return TimerCheckpoint()

    def _slots(self, read_ms: int) -> tuple[Ints, npt.NDArray[np.void]]:
        """Return the slots for which something waits, and their numbers."""
        path = self._layout.timer_wheel
        if not exists(path):
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=SLOT_DTYPE)
        length = path.stat().st_size
        if length != WHEEL_BYTES:
            self._add(path, 0, f"has {length} bytes instead of {WHEEL_BYTES}")
        slots = np.fromfile(path, dtype=SLOT_DTYPE, count=length // SLOT_BYTES)
        since = max(1, read_ms // self._precision_ms)
        numbers = np.flatnonzero(slots["time"] >= since)
        return numbers, slots[numbers]

    # --- the timer log ---

    def _pieces(self) -> Iterator[_Piece]:
        self._files_end = 0
        if not exists(self._layout.timer_log):
            return
        first = list_segments(self._layout.timer_log, on_problem=self._findings.add_problem)
        if not first or not first[0].length:
            return
        file_bytes = first[0].length
        found = list_segments(
            self._layout.timer_log, file_bytes, on_problem=self._findings.add_problem
        )
        files = [file for file in found if file.length == file_bytes]
        for number, file in enumerate(files):
            yield self._piece(file, file_bytes, is_last=number == len(files) - 1)

    def _piece(self, file: SegmentFile, file_bytes: int, *, is_last: bool) -> _Piece:
        segment = open_segment(file.path, file.base_offset, self._disk)
        data = segment.data
        room = last_unit_at(file_bytes) + UNIT_BYTES
        units = np.frombuffer(data.data, dtype=UNIT_DTYPE, count=room // UNIT_BYTES)
        sound = (units["size"] == UNIT_BYTES) & (units["magic"] & ~MAGIC_BITS == 0)
        count = len(units) if sound.all() else int(np.argmin(sound))
        at = count * UNIT_BYTES
        is_blank = at + BLANK_BYTES <= file_bytes and (
            BLANK.unpack_from(data.data, at)[2] == BLANK_MAGIC
        )
        if is_blank or count == len(units):
            self._files_end = file.base_offset + file_bytes
        elif not is_last or not (self._live or segment.is_zero(at)):
            self._add(file.path, at, "is no unit, and the timer log goes on behind it")
        return _Piece(file.path, file.base_offset, units[:count])

    def _check_units(self, piece: _Piece, read_ms: int) -> None:
        units, positions = piece.units, piece.positions
        previous = units["previous"].astype(np.int64)
        up = (previous != NO_POSITION) & ((previous < 0) | (previous >= positions))
        for at in np.flatnonzero(up).tolist():
            cause = f"leads to {previous[at]}, which does not lie before it"
            self._add(piece.path, at * UNIT_BYTES, cause)
        offsets, sizes = units["log_offset"].astype(np.int64), units["log_size"].astype(np.int64)
        waits = units["write_ms"].astype(np.int64) + units["delay_ms"] >= read_ms
        for at in np.flatnonzero(waits & (offsets >= self._log.min_offset)).tolist():
            offset, size = int(offsets[at]), int(sizes[at])
            if offset + size > self._log_end and self._live:
                continue  # came after the log was read
            if not self._is_record(offset, size):
                cause = f"leads to log offset {offset}, where no record of {size} bytes is"
                self._add(piece.path, at * UNIT_BYTES, cause, offset)

    def _is_record(self, offset: int, size: int) -> bool:
        if size <= 8 or offset + size > self._log_end:
            return False
        head = self._log.read(offset, offset + 8)
        length, magic = (int.from_bytes(head[at : at + 4], "big", signed=True) for at in (0, 4))
        return length == size and magic in (MAGIC_V1, MAGIC_V2)

    # --- the wheel ---

    def _check_slots(self, slots: tuple[Ints, npt.NDArray[np.void]], pieces: list[_Piece]) -> None:
        """Each slot leads to a unit of its time."""
        numbers, waiting = slots
        lasts = waiting["last"].astype(np.int64)
        times = np.full(len(lasts), -1, dtype=np.int64)  # of the unit that each leads to
        for piece in pieces:
            at = lasts - piece.base
            here = (at >= 0) & (at < len(piece.units) * UNIT_BYTES) & (at % UNIT_BYTES == 0)
            units = piece.units[at[here] // UNIT_BYTES]
            times[here] = units["write_ms"].astype(np.int64) + units["delay_ms"]
        wrong = times != waiting["time"].astype(np.int64) * self._precision_ms
        for index in np.flatnonzero(wrong).tolist():
            what = "no unit" if times[index] < 0 else f"a unit that waits for {times[index]}"
            due = int(waiting["time"][index]) * self._precision_ms
            cause = f"the slot of time {due} leads to timer log offset {lasts[index]}: {what}"
            self._add(self._layout.timer_wheel, int(numbers[index]) * SLOT_BYTES, cause)
