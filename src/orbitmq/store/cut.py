"""Cut the end of a log that its primary does not have. What is cut off goes to the quarantine.

The wish is a file, orbitmq.cut, durable before anything is touched; the next opening does it, and again
from the beginning if it was interrupted. Only then recovery looks at the store:

1. the snapshot goes: nothing that speaks of the end may be trusted
2. the bytes behind the cut are kept in the quarantine, then zeros take their place
3. later segments are kept there too and removed, the last one first
4. the file goes

Recovery then reads the whole log and puts queues and index right, as for a store that somebody else wrote.
"""

import json
import logging
from pathlib import Path
from typing import Final

from orbitmq.clock import Clock
from orbitmq.errors import StateFileError
from orbitmq.files.disk import Disk, exists
from orbitmq.files.layout import StoreLayout
from orbitmq.files.replace import read_whole, replace_file
from orbitmq.log_read import LogView, Segment, open_log
from orbitmq.store.recovery.mend import Mender
from orbitmq.store.recovery.plan import Repair, RepairKind
from orbitmq.store.recovery.quarantine import Quarantine

logger = logging.getLogger(__name__)

_STEP: Final = "Remove it only together with the whole store: the log may be cut already."


def wish_cut(layout: StoreLayout, disk: Disk, log_offset: int, cause: str) -> None:
    """Have the log cut there by the next opening."""
    wish = {"log_offset": log_offset, "cause": cause}
    replace_file(disk, layout.cut, json.dumps(wish).encode() + b"\n")


def finish_cut(layout: StoreLayout, disk: Disk, clock: Clock) -> bool:
    """Do what was wished; tell whether something was. Nobody else may have the store open."""
    data = read_whole(disk, layout.cut)
    if not data:
        return False
    try:
        wish = json.loads(data)
        log_offset, cause = int(wish["log_offset"]), str(wish["cause"])
    except (ValueError, TypeError, KeyError) as error:
        raise StateFileError(layout.cut, f"does not say where to cut: {error}", _STEP) from error
    logger.warning("%s: cut at log offset %d: %s", layout.root, log_offset, cause)
    _remove(layout.snapshot, disk)
    quarantine = Quarantine(layout.quarantine, layout.root, disk, clock)
    with open_log(layout, disk) as view:
        _Cut(view, disk, quarantine, cause).run(log_offset)
    _remove(layout.cut, disk)
    return True


class _Cut:
    """One cut, step by step."""

    def __init__(self, view: LogView, disk: Disk, quarantine: Quarantine, cause: str) -> None:
        self._log, self._disk, self._quarantine, self._cause = view, disk, quarantine, cause
        self._mender = Mender(view, disk, quarantine)

    def run(self, log_offset: int) -> None:
        self._mender.set_lengths()
        if not self._log.segments or log_offset >= self._log.max_offset:
            return  # the log ends before
        self._cut(self._log.at(log_offset), log_offset)
        behind = [one for one in self._log.segments if one.base_offset > log_offset]
        for segment in reversed(behind):  # the last one first: what stays is without a gap
            self._take_away(segment)

    def _cut(self, segment: Segment, log_offset: int) -> None:
        repair = Repair(
            kind=RepairKind.CUT,
            path=segment.path,
            base_offset=segment.base_offset,
            start=log_offset,
            end=segment.base_offset + len(segment.data),
            resume=log_offset,
            cause=self._cause,
            zero_rest=True,
        )
        self._mender.apply(repair)

    def _take_away(self, segment: Segment) -> None:
        """Copy a segment and remove it: a move between directories may lose both names to a power cut."""
        data, path = segment.data[: segment.data_end()].tobytes(), segment.path
        self._quarantine.keep_bytes(path, 0, segment.base_offset, data, self._cause)
        self._disk.remove(path)
        self._disk.sync_directory(path.parent)


def _remove(path: Path, disk: Disk) -> None:
    if exists(path):
        disk.remove(path)
        disk.sync_directory(path.parent)
