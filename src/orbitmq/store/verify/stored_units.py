"""What the files of simple queues hold, beside what the log asks for."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.errors import StoreError
from orbitmq.files.disk import is_missing
from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.positioned import FileCache
from orbitmq.format.cq_ext_unit import ADDRESS_MAX, ExtUnit
from orbitmq.format.cq_unit import UNIT_BYTES, UNIT_DTYPE
from orbitmq.format.kernels import Kernels
from orbitmq.format.segment_name import segment_name
from orbitmq.store.queues.cq_ext import ExtQueues
from orbitmq.store.queues.names import QueueNames

Units = npt.NDArray[np.void]
Flags = npt.NDArray[np.bool_]
QueueName = tuple[str, int]
GetExt = Callable[[QueueName, int], ExtUnit | None]
"""(queue, address) -> the ext unit that lies there."""


class FilePart(NamedTuple):
    """Expected units of one file whose bytes are not those of the file; `was` is empty without a file."""

    path: str
    position: int
    first: int  # queue offset of the first unit
    new: Units
    was: Units
    differs: Flags
    has_file: bool

    @property
    def is_empty(self) -> Flags:
        """Where the file holds no unit."""
        empty: Flags = (self.was["size"] == 0) & (self.was["log_offset"] == 0)
        return empty


class StoredUnits:
    """Compares expected units with files. Not thread-safe.

    A unit that leads to an ext unit (`get_ext`; None: there are none) stands if that says the same.
    """

    def __init__(self, layout: StoreLayout, files: FileCache, get_ext: GetExt | None) -> None:
        self._layout = layout
        self._files = files
        self._get_ext = get_ext
        self._directories: dict[QueueName, str | None] = {}

    def is_same(self, queue: QueueName, first: int, data: bytes) -> bool:
        """Tell whether the files hold exactly these units, from queue offset `first` on."""
        return not any(part.differs.any() for part in self.compare(queue, first, data))

    def compare(self, queue: QueueName, first: int, data: bytes) -> Iterator[FilePart]:
        """Yield, file by file, where the files do not hold the bytes of these units.

        The address of an ext unit that says the same takes the place of the expected tag hash.
        """
        file_bytes, directory = self._layout.cq_file_bytes, self._directory(queue)
        done = 0
        while directory is not None and done < len(data):
            at = first * UNIT_BYTES + done
            base = at // file_bytes * file_bytes
            part = data[done : done + base + file_bytes - at]
            done += len(part)
            path = f"{directory}/{segment_name(base)}"
            old = self._read(path, at - base, len(part))
            if old != part:
                new = np.frombuffer(part, UNIT_DTYPE).copy()
                was = np.frombuffer((old or b"").ljust(len(part), b"\0"), UNIT_DTYPE)
                differs = was != new
                self._accept_ext(queue, was, new, differs)
                number = at // UNIT_BYTES
                yield FilePart(path, at - base, number, new, was, differs, old is not None)

    def _directory(self, queue: QueueName) -> str | None:
        """Return where a queue lies; None if no directory can have its name: then no record is in it."""
        if queue not in self._directories:
            try:
                found = str(self._layout.queue_directory(QueueKind.SIMPLE, *queue))
            except StoreError:
                found = None
            self._directories[queue] = found
        return self._directories[queue]

    def _read(self, path: str, position: int, length: int) -> bytes | None:
        try:
            return self._files.read(path, position, length)
        except StoreError as error:
            if is_missing(error):
                return None
            raise

    def _accept_ext(self, queue: QueueName, was: Units, new: Units, differs: Flags) -> None:
        if self._get_ext is None:
            return
        same = differs & (was["tag_hash"] <= ADDRESS_MAX)
        same &= (was["log_offset"] == new["log_offset"]) & (was["size"] == new["size"])
        for index in np.flatnonzero(same).tolist():
            unit = self._get_ext(queue, int(was["tag_hash"][index]))
            if unit is not None and unit.tag_hash == int(new["tag_hash"][index]):
                new["tag_hash"][index] = was["tag_hash"][index]
                differs[index] = False


def open_units(layout: StoreLayout, files: FileCache, kernels: Kernels) -> StoredUnits:
    """Return the units of a store that nobody has open here, with its ext units."""
    if not layout.queue_root(QueueKind.EXT).is_dir():
        return StoredUnits(layout, files, None)
    names = QueueNames(kernels)
    ext = ExtQueues(layout, files, names)

    def get_ext(queue: QueueName, address: int) -> ExtUnit | None:
        known = len(names)
        number = names.add(*queue)
        if number == known:
            ext.load_queue(number)
        return ext.get(number, address)

    return StoredUnits(layout, files, get_ext)
