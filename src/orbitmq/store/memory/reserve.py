"""Offsets of topics in memory never go back, although nothing else of them survives a stop.

`config/memoryTopics.json` says from where on offsets are unused. It is written ahead: an offset is given out
only when the file on disk is beyond it. So a start after a kill begins at the reserved end, and leaves a gap.
"""

import logging
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from orbitmq.errors import StateFileError, StoreError
from orbitmq.files.disk import Disk
from orbitmq.files.state_file import read_state, write_state
from orbitmq.format.message_id import MEMORY_LOG_OFFSET
from orbitmq.store.memory.queues import MemoryQueue, MemoryQueues
from orbitmq.store.memory.slabs import MemoryLog
from orbitmq.units import GiB

STATE_FILE: Final = "memoryTopics.json"
BLOCK: Final = 100_000
"""So many offsets of each queue are reserved ahead."""
LOG_BLOCK: Final = 16 * GiB

_log = logging.getLogger(__name__)


class OffsetReserve:
    """The state file. `lock` guards queues and log; whoever calls `write` does not hold it."""

    def __init__(self, path: Path, disk: Disk, lock: threading.Lock, queues: MemoryQueues) -> None:
        self._path, self._disk, self._lock, self.queues = path, disk, lock, queues
        self._write_lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="orbitmq-memory")
        self._asked = self._closed = False
        self.log = MemoryLog(MEMORY_LOG_OFFSET)
        self._log_reserved = MEMORY_LOG_OFFSET

    def load(self) -> None:
        """Go on where the file says. StateFileError: it cannot be understood."""
        state = read_state(self._path, disk=self._disk)
        if not state:
            return
        self.log.next_offset = max(self._number(state.get("nextLogOffset")), MEMORY_LOG_OFFSET)
        for topic, offsets in self._table(state.get("nextOffsets", {})).items():
            for queue_id, offset in self._table(offsets).items():
                self.queues.add(topic, self._number(queue_id), self._number(offset))
        self.write()

    def covers(self, targets: Iterable[tuple[MemoryQueue, int]], size: int) -> bool:
        """Tell whether so many offsets of these queues, and a slab of this size, may be used."""
        for queue, count in targets:
            left = queue.reserved - queue.next_offset
            if left < BLOCK // 2:
                self.write_soon()
            if count > left:
                return False
        return self.log.next_offset + size <= self._log_reserved

    def write_soon(self) -> None:
        """Have more reserved in the background."""
        if not self._asked and not self._closed:
            self._asked = True
            self._thread.submit(self._write_asked)

    def _write_asked(self) -> None:
        try:
            self.write()
        except StoreError as error:
            # Whoever runs out of offsets tries again, and is told.
            _log.warning("offsets of topics in memory: not reserved: %s", error)
        finally:
            self._asked = False

    def write(self, *, ahead: bool = True) -> None:
        """Reserve more of everything; with `ahead` false only what is used. StoreError: not written."""
        more, log_more = (BLOCK, LOG_BLOCK) if ahead else (0, 0)
        with self._write_lock:
            with self._lock:
                ends = [(queue, queue.next_offset + more) for queue in self.queues]
                log_end = self.log.next_offset + log_more
            table: dict[str, dict[int, int]] = {}
            for queue, end in ends:
                table.setdefault(queue.topic, {})[queue.queue_id] = end
            write_state(self._disk, self._path, {"nextLogOffset": log_end, "nextOffsets": table})
            with self._lock:
                self._log_reserved = log_end
                for queue, end in ends:
                    queue.reserved = end

    def close(self) -> None:
        """Write how far everything really is: after a clean stop there is no gap."""
        self._closed = True
        self._thread.shutdown(wait=True)
        if self.log.next_offset > MEMORY_LOG_OFFSET or any(True for _ in self.queues):
            self.write(ahead=False)

    def _table(self, value: object) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._wrong(f"{value!r} is no table")
        return value

    def _number(self, value: object) -> int:
        text = str(value)
        if isinstance(value, bool) or not text.isdecimal() or int(text) >= 1 << 63:
            raise self._wrong(f"{value!r} is no offset")
        return int(text)

    def _wrong(self, what: str) -> StateFileError:
        step = "Restore the file from a backup; without it offsets of topics in memory begin at 0 again."
        return StateFileError(self._path, what, step)
