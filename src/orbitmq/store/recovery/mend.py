"""Write the repairs of a recovery into the segments; what they replace is kept in quarantine first."""

from collections.abc import Sequence
from pathlib import Path

from orbitmq.files.disk import Disk
from orbitmq.files.layout import StoreLayout
from orbitmq.log_read import LogView, Segment
from orbitmq.store.recovery.plan import Repair
from orbitmq.store.recovery.quarantine import Quarantine

CUT_GROUP = "cut-segments"


class Mender:
    """Changes the segments of one log. Not thread-safe; nobody else may have the store open."""

    def __init__(self, log: LogView, disk: Disk, quarantine: Quarantine) -> None:
        self._log = log
        self._disk = disk
        self._quarantine = quarantine

    def set_lengths(self) -> list[Path]:
        """Give short files their length, make missing ones, remove empty ones; return what changed."""
        changed = []
        for segment in (*self._log.short, *self._log.missing):
            self._allocate(segment)
            changed.append(segment.path)
        for path in self._log.empty:
            self._disk.remove(path)
            self._disk.sync_directory(path.parent)
            changed.append(path)
        return changed

    def apply(self, repair: Repair) -> None:
        """Make one repair durable."""
        segment = self._log.at(repair.start)
        written_end = min(repair.end - repair.base_offset, segment.data_end())
        old = segment.data[repair.position : written_end].tobytes()
        self._quarantine.keep_bytes(repair.path, repair.position, repair.start, old, repair.cause)
        self._write(repair)
        self._remove(repair.removed, repair.cause)

    def sync_all(self, layout: StoreLayout) -> None:
        """Make durable what a crash left in the page cache only: bytes and names, of queues and index too.

        From now on they count as flushed. What recovery finds as it should be it does not write again,
        and whoever syncs a file later does not sync its name.
        """
        for directory in sorted({layout.root, *layout.commit_log_directories}):
            if directory.exists():
                self._disk.sync_file_system(directory)

    def _allocate(self, segment: Segment) -> None:
        fd = self._disk.open(segment.path, create=True)
        try:
            self._disk.allocate(segment.path, fd, len(segment.data))
            self._disk.sync_data(segment.path, fd)
        finally:
            self._disk.close(segment.path, fd)
        self._disk.sync_directory(segment.path.parent)

    def _write(self, repair: Repair) -> None:
        if not repair.data and not repair.zero_rest:
            return
        fd = self._disk.open(repair.path)
        try:
            if repair.zero_rest:
                start = repair.position + len(repair.data)
                length = repair.end - repair.base_offset - start
                self._disk.zero(repair.path, fd, start, length, keep_blocks=True)
            if repair.data:
                self._disk.write_at(repair.path, fd, repair.position, repair.data)
            self._disk.sync_data(repair.path, fd)
        finally:
            self._disk.close(repair.path, fd)

    def _remove(self, paths: Sequence[Path], cause: str) -> None:
        """Take segments behind the end away, the last one first: what stays is always without a gap."""
        views = {segment.path: segment for segment in self._log.segments}
        for path in reversed(paths):
            view = views[path]
            if view.data[: view.data_end()].any():
                self._quarantine.keep_path(path, CUT_GROUP, cause)
            else:
                self._disk.remove(path)
                self._disk.sync_directory(path.parent)
