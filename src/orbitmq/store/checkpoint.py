"""The checkpoint file of a running store: how far each part is known to be on disk."""

import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from orbitmq.errors import FormatError
from orbitmq.files.disk import Disk
from orbitmq.files.replace import read_whole
from orbitmq.format.checkpoint import CHECKPOINT_BYTES, Checkpoint, decode, encode

log = logging.getLogger(__name__)


class CheckpointFile:
    """The values and their file. Any thread may update and write.

    The page is written in place, as RocketMQ does. A torn write only breaks the extension's CRC, and
    then the store is adopted: slower to open, not wrong.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._lock = threading.Lock()  # guards everything below
        self._value = Checkpoint()
        self._written: Checkpoint | None = None

    @property
    def value(self) -> Checkpoint:
        return self._value

    def load(self) -> Checkpoint | None:
        """Read the file; None if there is none or it is too short, and then all values are 0."""
        data = read_whole(self._disk, self.path)
        if data is None:
            return None
        try:
            value = decode(data)
        except FormatError as error:
            log.warning("%s: %s; it is written anew", self.path, error)
            return None
        with self._lock:
            self._value = self._written = value
        return value

    def update(self, **values: Any) -> None:
        """Set some of the values; the next `write` brings them to the disk."""
        with self._lock:
            self._value = replace(self._value, **values)

    def write(self) -> bool:
        """Write and sync the page if a value has changed; return whether it had."""
        with self._lock:
            value = self._value
            if value == self._written:
                return False
            self._write_page(encode(value))
            self._written = value
            return True

    def _write_page(self, page: bytes) -> None:
        is_new = not self.path.exists()
        fd = self._disk.open(self.path, create=is_new)
        try:
            if is_new:
                self._disk.truncate(self.path, fd, CHECKPOINT_BYTES)
            self._disk.write_at(self.path, fd, 0, page)
            self._disk.sync_data(self.path, fd)
        finally:
            self._disk.close(self.path, fd)
        if is_new:
            self._disk.sync_directory(self.path.parent)
