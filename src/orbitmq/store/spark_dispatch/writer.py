"""Write queues and index for a store that follows: the other end of `spark_dispatch/follow.py`.

The driver of the Spark job holds one. It uses the store's own dispatcher on the store's own settings, so
that the bytes are those of live dispatch; only who scans the log differs.

A batch: take the lock, look whether the epoch is still ours, put the units and items into the files, sync
them, then say so (`done`). Killed anywhere in between, the next writer starts from the last `done` and
writes the same bytes to the same places.
"""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import FormatError, NotAStoreError, StoreError
from orbitmq.files.disk import Disk
from orbitmq.files.followed import FollowedFiles
from orbitmq.format.columns import ScanOptions
from orbitmq.format.handover import DispatchedOffset
from orbitmq.format.kernels import Kernels
from orbitmq.log_read import Chunk
from orbitmq.message import QueueType
from orbitmq.store.config import StoreConfig
from orbitmq.store.make_dispatcher import make_dispatcher
from orbitmq.store.recovery.adopt import NotTrustedError
from orbitmq.store.snapshot import SnapshotFile
from orbitmq.store.spark_dispatch.followed_index import load_index_at
from orbitmq.store.spark_dispatch.handover import DispatchSettings, Handover, stamp
from orbitmq.store.spark_dispatch.recover import catch_up
from orbitmq.store.topic_types import read_topic_types

log = logging.getLogger(__name__)

START_STEP: Final = "Start it with `orbitmq broker run --dispatch spark`."


class NewEpochError(Exception):
    """The store was opened again, or changed its queues: what this writer knows is void."""


def read_settings(handover: Handover) -> DispatchSettings:
    """Return the terms of a store. NotAStoreError: nobody is to dispatch for it."""
    terms = handover.settings()
    if terms is None:
        what = "the broker of this store dispatches itself, or never ran"
        raise NotAStoreError(handover.root, what, START_STEP)
    return terms


class DispatchWriter:
    """Queues and index of one store, as far as they are done. One thread at a time uses it."""

    def __init__(
        self, root: Path, kernels: Kernels, *, disk: Disk | None = None, clock: Clock | None = None
    ) -> None:
        """Read where the last writer stopped. NotAStoreError: the store does not follow."""
        self._disk = disk or Disk()
        clock = clock or SystemClock()
        self._kernels = kernels
        self.handover = Handover(root, self._disk, clock)
        self._files = FollowedFiles(self._disk)
        with self.handover.writing():
            self.terms = read_settings(self.handover)
            self.config = StoreConfig.from_settings(root, self.terms.settings)
            self.layout = self.config.layout()
            self._dispatcher = make_dispatcher(
                self.config,
                self.layout,
                self._files,
                self._disk,
                kernels,
                clock,
                topic_types=TopicTypeFile(self.layout.config("topics.json"), self._disk),
            )
            self._done = self._load()
        self._files.following = False

    @property
    def epoch(self) -> int:
        return self.terms.epoch

    @property
    def offset(self) -> int:
        """The log offset up to which everything is in queues and index."""
        return self._done.log_offset

    @property
    def scan_options(self) -> ScanOptions:
        return ScanOptions(delay_ms=self.config.delay_ms)

    def write(self, chunks: Iterable[Chunk], end: int) -> None:
        """Dispatch these records, which reach from `offset` to `end`; they can be read when this returns.

        NewEpochError: nothing was written; make a new writer. After any other error make one too.
        """
        with self.handover.writing():
            terms = self.handover.settings()
            if terms is None or terms.epoch != self.epoch:
                raise NewEpochError
            for chunk in chunks:
                self._dispatcher.apply(chunk)
            self._dispatcher.write_and_sync()
            self._done = self._done_at(end)
            self.handover.save_dispatched_offset(self._done)

    def close(self) -> None:
        self._dispatcher.index.close()
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _done_at(self, end: int) -> DispatchedOffset:
        headers = self._dispatcher.index.headers()
        return DispatchedOffset(self.epoch, end, *(headers[-1] if headers else ()))

    # --- where the last writer stopped ---

    def _load(self) -> DispatchedOffset:
        done = self.handover.dispatched_offset()
        snapshot = SnapshotFile(self.layout.snapshot, self._disk).load()
        if done is None or done.epoch != self.epoch or snapshot is None:
            raise self._unknown("nobody says how far its queues are")
        try:
            if self.config.index_enabled:
                load_index_at(self._dispatcher.index, done.index_name, done.index_header)
            options = self.scan_options
            catch_up(
                self._dispatcher, self.layout, self._disk, self._kernels, options, snapshot, done
            )
        except (NotTrustedError, FormatError) as error:
            raise self._unknown(str(error)) from error
        return done

    def _unknown(self, what: str) -> StoreError:
        step = "Start its broker again: it puts that right."
        return StoreError(self.layout.root, what, step)


class TopicTypeFile:
    """Which kind of queue a topic has, by the broker's file as it is now."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path, self._disk = path, disk
        self._stamp = stamp(path)
        self._types = read_topic_types(path, disk)

    def __call__(self, topic: str) -> QueueType:
        found = stamp(self._path)
        if found != self._stamp:
            self._stamp, self._types = found, read_topic_types(self._path, self._disk)
        return self._types(topic)
