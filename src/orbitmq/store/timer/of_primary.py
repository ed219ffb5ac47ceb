"""How far a primary's timer messages are, as its replica keeps it until it may be a primary itself.

A replica has no wheel: its messages wait in its copy of the log. When it becomes a primary, the wheel is
made from the whole queue of the wheel's topic (`recovery.py`), without what was delivered: messages that the
primary had put into its wheel, and whose time was over for it.
"""

from pathlib import Path

from orbitmq.clock import Clock
from orbitmq.files.disk import Disk, exists
from orbitmq.files.layout import StoreLayout
from orbitmq.format.timer_checkpoint import TimerCheckpoint
from orbitmq.store.timer.checkpoint import TimerCheckpointFile
from orbitmq.store.timer.metrics import TimerMetrics


class PrimaryTimers:
    """The checkpoint and the counts of a replica's primary. Belongs to one thread at a time."""

    def __init__(self, layout: StoreLayout, clock: Clock, disk: Disk | None = None) -> None:
        self._layout, self._disk = layout, disk or Disk()
        self._file = TimerCheckpointFile(layout.config("timercheck"), self._disk)
        self.metrics = TimerMetrics(clock.now_ms)

    def open(self) -> None:
        """Give up the wheel of a broker that was a primary: it speaks of what its primary delivers now."""
        if self._file.load():
            self._file.write(_without_wheel(self._file.value))
        directory = self._layout.timer_log
        logs = sorted(directory.iterdir(), reverse=True) if directory.is_dir() else []
        for path in (self._layout.timer_wheel, *logs):
            self._remove(path)

    def _remove(self, path: Path) -> None:
        if exists(path):
            self._disk.remove(path)
            self._disk.sync_directory(path.parent)

    @property
    def checkpoint(self) -> TimerCheckpoint:
        return self._file.value

    def take(self, told: TimerCheckpoint) -> None:
        """Keep what the primary tells, on disk. StoreError: it could not be written."""
        wanted = _without_wheel(told)
        if wanted != self._file.value:
            self._file.write(wanted)


def _without_wheel(value: TimerCheckpoint) -> TimerCheckpoint:
    """Return the checkpoint of somebody who has put nothing into a wheel of its own."""
    return value._replace(timer_log_end=0, queue_offset=0)
