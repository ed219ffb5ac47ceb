"""The timer log: one unit for each message that was put into the wheel, in files of a fixed size.

Units are written at once, so that a killed process loses none; a sync makes them durable. Read they are
through a mapping. A unit never spans two files: the rest of a full one is a blank.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from orbitmq.errors import StoreError
from orbitmq.files.disk import Disk, exists, is_missing
from orbitmq.files.listing import list_segments
from orbitmq.files.positioned import FileCache
from orbitmq.format.columns import Ints
from orbitmq.format.kernels import Kernels
from orbitmq.format.segment_name import parse_segment_name, segment_name
from orbitmq.format.timer_log import (
    BLANK,
    BLANK_BYTES,
    BLANK_MAGIC,
    MAGIC_BITS,
    UNIT,
    UNIT_BYTES,
    UNIT_DTYPE,
    TimerUnit,
    last_unit_at,
)
from orbitmq.log_read.segment import open_segment

_log = logging.getLogger(__name__)

OPEN_MAX: Final = 8
CHUNK_UNITS: Final = 16_384
WALK_UNITS: Final = 2048  # of a slot at once

Units = npt.NDArray[np.void]


class TimerLog:
    """The units of one store. Belongs to one thread, but for `sync`, which any may call."""

    def __init__(self, directory: Path, file_bytes: int, disk: Disk) -> None:
        self._directory, self._file_bytes, self._disk = directory, file_bytes, disk
        self._units_end = last_unit_at(file_bytes) + UNIT_BYTES  # in each file
        self._files = FileCache(disk, OPEN_MAX)
        self._bases: list[int] = []
        self._views: dict[int, npt.NDArray[np.uint8]] = {}
        self._unsynced: set[Path] = set()
        self.end = 0
        """Timer log offset behind the last unit."""

    def load(self) -> None:
        """Find the files. WrongFileError: one of them has another length than the settings say."""
        if not exists(self._directory):
            return
        self._drop_unsized()
        found = list_segments(self._directory, self._file_bytes)
        self._bases = [file.base_offset for file in found]
        self.end = self.start

    def _drop_unsized(self) -> None:
        """Remove a file that never got its length, and those behind it: no checkpoint speaks of them."""
        paths = sorted(self._directory.iterdir())
        names = [path for path in paths if parse_segment_name(path.name) is not None]
        empty = next((at for at, path in enumerate(names) if path.stat().st_size == 0), len(names))
        for path in reversed(names[empty:]):
            _log.warning("%s: is removed, the file or one before it is empty", path)
            self._files.remove(path)

    def close(self) -> None:
        self._views.clear()
        self._files.close()

    @property
    def start(self) -> int:
        """Timer log offset of the first unit that is still there."""
        return self._bases[0] if self._bases else 0

    @property
    def files_end(self) -> int:
        """Timer log offset behind the last file."""
        return self._bases[-1] + self._file_bytes if self._bases else 0

    def file_start(self, position: int) -> int:
        """Return the first offset of the file that holds this one."""
        return position - position % self._file_bytes

    # Reading

    def unit(self, position: int) -> TimerUnit | None:
        """Return the unit at this offset, None if there is none."""
        at = position % self._file_bytes
        if not self.start <= position < self.end or at % UNIT_BYTES or at >= self._units_end:
            return None
        unit = TimerUnit(*UNIT.unpack_from(self._view(position - at).data, at))
        return unit if unit.is_sound else None

    def units(self, positions: Ints) -> Units | None:
        """Return the units at these offsets, None: not all of them are there."""
        found = np.empty(len(positions), dtype=UNIT_DTYPE)
        at = positions % self._file_bytes
        if (
            (positions < self.start).any()
            or (positions >= self.end).any()
            or (at % UNIT_BYTES).any()
            or (at >= self._units_end).any()
        ):
            return None
        bases = positions - at
        for base in np.unique(bases).tolist():
            here = bases == base
            table = self._view(base)[: self._units_end]
            found[here] = table.view(UNIT_DTYPE)[at[here] // UNIT_BYTES]
        return found if _are_sound(found).all() else None

    def walk_slot(
        self, kernels: Kernels, position: int, slot_ms: int
    ) -> tuple[Ints, Ints, int | None]:
        """Walk the units of a slot back from this offset, within one file.

        Return the offset and the magic of each, and where the next one is; None: there is no unit of
        this slot.
        """
        positions, marks = np.empty((2, WALK_UNITS), dtype=np.int64)
        base, count, left, is_sound = self.file_start(position), 0, position, False
        if self.start <= position < self.end:
            there = min(self._units_end, self.end - base)
            units = self._view(base)[:there]
            count, left, is_sound = kernels.walk_slot(
                units, base, position, slot_ms, positions, marks
            )
        return positions[:count], marks[:count], left if is_sound else None

    def log_offset(self, position: int) -> int | None:
        """Return where the message of a unit lies, None if there is no such unit. Any thread may ask."""
        at = position % self._file_bytes
        try:
            data = self._files.read(self._path(position - at), at, UNIT_BYTES)
        except StoreError as error:
            if is_missing(error):
                return None
            raise
        unit = TimerUnit(*UNIT.unpack(data)) if len(data) == UNIT_BYTES else None
        return unit.log_offset if unit is not None and unit.is_sound else None

    def last_unit(self) -> TimerUnit | None:
        """Return the last unit of all."""
        at = self.end % self._file_bytes
        if at:
            return self.unit(
                min(self.end, self.file_start(self.end) + self._units_end) - UNIT_BYTES
            )
        return self.unit(self.end - self._file_bytes + self._units_end - UNIT_BYTES)

    def walk(self, position: int) -> Iterator[tuple[int, Units]]:
        """Yield sound units from the file of this offset on, in pieces, each with the offset of its first.

        It ends at the first unit that is none.
        """
        base = max(self.start, self.file_start(position))
        while base < self.files_end:
            view = self._view(base)
            units = np.frombuffer(view.data, dtype=UNIT_DTYPE, count=self._units_end // UNIT_BYTES)
            for first in range(0, len(units), CHUNK_UNITS):
                chunk = units[first : first + CHUNK_UNITS]
                sound = _are_sound(chunk)
                count = len(chunk) if sound.all() else int(np.argmin(sound))
                if count:
                    yield base + first * UNIT_BYTES, chunk[:count]
                if count < len(chunk):
                    if not _is_blank(view, (first + count) * UNIT_BYTES):
                        return
                    break
            base += self._file_bytes

    def _view(self, base: int) -> npt.NDArray[np.uint8]:
        view = self._views.get(base)
        if view is None:
            if len(self._views) >= OPEN_MAX:
                self._views.pop(next(iter(self._views)))
            view = self._views[base] = open_segment(self._path(base), base, self._disk).data
        return view

    # Writing

    def positions(self, count: int) -> Ints:
        """Return where the next units go."""
        per_file = self._units_end // UNIT_BYTES
        file, at = divmod(self.end, self._file_bytes)
        numbers = file * per_file + at // UNIT_BYTES + np.arange(count)
        return numbers // per_file * self._file_bytes + numbers % per_file * UNIT_BYTES

    def append(self, units: bytes, positions: Ints) -> None:
        """Write units where `positions` said. StoreError: not all are there, and none counts."""
        first, count = 0, len(positions)
        while first < count:
            position = int(positions[first])
            base = self.file_start(position)
            last = int(np.searchsorted(positions, base + self._file_bytes))
            if base >= self.files_end:
                self._begin_file(base)
            self._write(base, position - base, units[first * UNIT_BYTES : last * UNIT_BYTES])
            first = last
        if count:
            self.end = int(positions[-1]) + UNIT_BYTES

    def _begin_file(self, base: int) -> None:
        if self._bases:
            before = self._bases[-1]
            blank = BLANK.pack(self._file_bytes - self._units_end, 0, BLANK_MAGIC)
            self._write(before, self._units_end, blank)
        self._write(base, 0, b"")  # made, of its full length
        self._bases.append(base)

    def _write(self, base: int, at: int, data: bytes) -> None:
        path = self._path(base)
        self._files.write(path, at, data, file_bytes=self._file_bytes)
        self._unsynced.add(path)

    def cut(self, end: int) -> None:
        """Make this the end: nothing behind it counts any more."""
        for base in [base for base in self._bases if base > self.file_start(end)]:
            self._remove(base)
        if self._bases and end < self.files_end:
            path = self._path(self.file_start(end))
            self._files.truncate_zero(path, end % self._file_bytes)
            self._unsynced.add(path)
        self.end = end

    def delete_before(self, log_min: int) -> None:
        """Delete files whose units all lead to records that are gone from the commit log."""
        while len(self._bases) > 1:
            last = self.unit(self._bases[0] + self._units_end - UNIT_BYTES)
            if last is not None and last.log_offset >= log_min:
                return
            self._remove(self._bases[0])

    def _remove(self, base: int) -> None:
        self._views.pop(base, None)
        path = self._path(base)
        try:
            self._files.remove(path)
        except StoreError as error:
            if not is_missing(error):
                raise
        self._unsynced.discard(path)
        self._bases.remove(base)

    def unsynced(self) -> set[Path]:
        """Return which files were written to since the last time; see `sync`."""
        paths, self._unsynced = self._unsynced, set()
        return paths

    def keep(self, paths: set[Path]) -> None:
        """Say that these files could not be synced."""
        self._unsynced |= paths

    def sync(self, paths: set[Path]) -> None:
        """Make what was written to these files durable. StoreError: it may not be; see `keep`."""
        self._files.sync(paths)

    def _path(self, base: int) -> Path:
        return self._directory / segment_name(base)


def _are_sound(units: Units) -> npt.NDArray[np.bool_]:
    """Tell of each whether it is a unit."""
    sound: npt.NDArray[np.bool_]
    sound = (units["size"] == UNIT_BYTES) & (units["magic"] & ~MAGIC_BITS == 0)
    return sound


def _is_blank(view: Any, at: int) -> bool:
    if at + BLANK_BYTES > len(view):
        return True  # the file is full, without room for a blank
    return bool(BLANK.unpack_from(view.data, at)[2] == BLANK_MAGIC)
