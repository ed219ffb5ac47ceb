"""The file config/timercheck: how far timer messages are."""

import logging
from pathlib import Path

from orbitmq.errors import FormatError
from orbitmq.files.disk import Disk, exists
from orbitmq.files.replace import make_durable_directory, read_whole
from orbitmq.format.timer_checkpoint import PAGE_BYTES, TimerCheckpoint, decode

_log = logging.getLogger(__name__)


class TimerCheckpointFile:
    """The values that are on disk. `write` may be called by any thread, one at a time."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path, self._disk = path, disk
        self.value = TimerCheckpoint()

    def load(self) -> bool:
        """Read the file; False: there is none that can be read, and all values are 0."""
        data = read_whole(self._disk, self._path)
        if not data:
            return False
        try:
            self.value = decode(data)
        except FormatError as error:
            _log.warning("%s: %s; it is written anew", self._path, error)
            return False
        return True

    def write(self, value: TimerCheckpoint) -> None:
        """Write the values in place, as RocketMQ does, and sync them; they lie in one sector."""
        path, disk = self._path, self._disk
        is_new = not exists(path)
        if is_new:
            make_durable_directory(disk, path.parent)
        fd = disk.open(path, create=is_new)
        try:
            if disk.length(path, fd) < PAGE_BYTES:
                disk.truncate(path, fd, PAGE_BYTES)
            disk.write_at(path, fd, 0, value.encode())
            disk.sync_data(path, fd)
        finally:
            disk.close(path, fd)
        if is_new:
            disk.sync_directory(path.parent)
        self.value = value
