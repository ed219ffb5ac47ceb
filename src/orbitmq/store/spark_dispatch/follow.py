"""Dispatch that a Spark job does: the store follows what the job has put into queues and index.

The follower stands where `DispatchService` stands, and is one: over a log that ends where the job is. It
reads the records that the job has dispatched, so that it learns which queues have grown and by how much,
and tells long polls; the bytes of units and index items are left to the job. To the job it says how far
the log may be read.

Who deletes: the store, whole files that lead only to deleted segments. The job never touches those: it
only goes on at the end of each queue and of the index, and a queue's or the index's last file stays.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from orbitmq.clock import Clock
from orbitmq.errors import FormatError, StoreError
from orbitmq.format.columns import Bytes, ScanOptions
from orbitmq.format.handover import DispatchedOffset, ReadableOffset
from orbitmq.format.kernels import Kernels
from orbitmq.log_read import Chunk
from orbitmq.store.dispatch import Dispatcher, QueueNumbers
from orbitmq.store.dispatch_service import DispatchService
from orbitmq.store.log.log_reader import LogReader
from orbitmq.store.service import Service
from orbitmq.store.spark_dispatch.followed_index import FollowedIndex
from orbitmq.store.spark_dispatch.handover import DispatchSettings, Handover, stamp
from orbitmq.units import SECOND_MS

log = logging.getLogger(__name__)

POLL_MS: Final = 5
"""So often the store looks how far the job is."""
TOLD_MS: Final = 1 * SECOND_MS
"""So often the job hears at least that the store is open."""
CATCH_UP_MS: Final = 10 * SECOND_MS


class FollowingDispatcher(Dispatcher):
    """Learns from records what somebody else has put into the files (`FollowedFiles`); keeps no bytes."""

    def apply(self, chunk: Chunk, *, verify: bool = False) -> list[QueueNumbers]:
        assert not verify
        with self.lock:
            filled = super().apply(chunk)
            # The units that were made on the way are not needed: their files have them.
            if self.ext is not None:
                self.ext.write_out()
            self.queues.write_out(thorough=True)
            self.batch_queues.write_out()
        return filled

    def _build_index(self, chunk: Chunk) -> None:
        """Leave it to the writer; `FollowedIndex.show` tells how far he is."""


class DispatchedLog:
    """A log that ends where the job is. Any thread may read."""

    def __init__(self, whole: LogReader, end: int) -> None:
        self.whole = whole
        self.end = end

    @property
    def min_offset(self) -> int:
        return self.whole.min_offset

    def visible_offset(self) -> int:
        return min(self.end, self.whole.visible_offset())

    def read(self, log_offset: int, size: int) -> memoryview | None:
        return self.whole.read(log_offset, size)

    def iter_ranges(self, start: int, end: int) -> Iterator[tuple[int, Bytes, int, int]]:
        return self.whole.iter_ranges(start, end)


class DispatchFollower(DispatchService):
    """Follows a job. Any thread may call it."""

    def __init__(
        self,
        log_reader: LogReader,
        dispatcher: FollowingDispatcher,
        kernels: Kernels,
        *,
        done: DispatchedOffset,
        terms: DispatchSettings,
        handover: Handover,
        clock: Clock,
        options: ScanOptions | None = None,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._dispatched = DispatchedLog(log_reader, done.log_offset)
        super().__init__(
            self._dispatched,
            dispatcher,
            kernels,
            start=done.log_offset,
            options=options,
            clock=clock,
            on_error=on_error,
        )
        assert isinstance(dispatcher.index, FollowedIndex)
        self._index = dispatcher.index
        self._whole = log_reader
        self._handover, self._terms = handover, terms
        self._now_ms = clock.now_ms
        self._looking = threading.Lock()  # guards the four below, and the two files
        self._told = ReadableOffset(terms.epoch, -1, 0)
        self._done = done
        self._stamp, self._read_ms = (-1, -1), 0
        self._poll = Service(
            "follow", self._look_again, interval_ms=POLL_MS, clock=clock, on_bug=self._on_bug
        )
        self._report = on_error

    @property
    def behind_bytes(self) -> int:
        """How much of the log the job has still to dispatch."""
        return max(self._whole.visible_offset() - self.dispatched_offset, 0)

    def dispatch_now(self) -> int:
        """Take over what the job has dispatched by now; return how many records."""
        self.look()
        return super().dispatch_now()

    def look(self) -> bool:
        """Say how far the log may be read, learn how far the job is; return whether it came further."""
        with self._looking:
            self._say()
            return self._learn()

    def _say(self, *, closed: bool = False) -> None:
        now = ReadableOffset(
            self._terms.epoch, self._whole.visible_offset(), self._now_ms(), closed
        )
        told = self._told
        if (
            closed
            or (now.epoch, now.log_offset) != (told.epoch, told.log_offset)
            or now.told_ms >= told.told_ms + TOLD_MS
        ):
            self._handover.publish(now, durable=closed)
            self._told = now

    def _learn(self) -> bool:
        found, now_ms = stamp(self._handover.done_path), self._now_ms()
        # Two replacements within a tick of the file system's clock may look like none.
        if found == self._stamp and 0 <= now_ms - self._read_ms < TOLD_MS:
            return False
        done = self._handover.dispatched_offset()
        self._stamp, self._read_ms = found, now_ms
        if done is None or done.epoch != self._terms.epoch:
            return False
        if done.log_offset <= self._done.log_offset:
            return False
        try:
            self._index.show(done.index_name, done.index_header)
        except FormatError as error:
            self._stamp = (-1, -1)  # look again
            step = "Start the broker again: it puts that right."
            raise StoreError(self._handover.directory, str(error), step) from error
        self._done = done
        self._dispatched.end = done.log_offset
        return True

    def _look_again(self) -> None:
        if self.look():
            self.wake_now()

    def _on_bug(self, name: str, error: Exception) -> None:
        if self._report is not None:
            self._report(error)

    # --- start and stop ---

    def start(self) -> None:
        super().start()
        self._poll.start()

    def stop(self, timeout_ms: float = 5 * SECOND_MS) -> bool:
        """Stop following; the job goes on with what is left when the store is opened again."""
        self._poll.stop()
        super().stop(timeout_ms)
        with self._looking:
            self._say(closed=True)
            self._handover.close()
        return True

    # --- acts on queues that the store does itself ---

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Change queues while the job does nothing; it reads what they are when this is over.

        StoreError: the job has not dispatched all of the log, and would bring back what is removed.
        """
        behind = not self.wait_dispatched(self._whole.visible_offset(), CATCH_UP_MS)
        with self._handover.writing():
            self.dispatch_now()
            if behind and self.behind_bytes:
                what = f"the Spark job has still to dispatch {self.behind_bytes} bytes of the log"
                step = "Let `orbitmq spark dispatch` catch up first."
                raise StoreError(Path(self._handover.root), what, step)
            yield
            self._renew()

    def _renew(self) -> None:
        """Void what the job has in memory: it reads the last snapshot again."""
        epoch = self._handover.new_epoch()
        with self._looking:
            self._terms = replace(self._terms, epoch=epoch)
            self._done = replace(self._done, epoch=epoch)
            self._handover.save_dispatched_offset(self._done)
            self._say()
            self._handover.save_settings(self._terms)
