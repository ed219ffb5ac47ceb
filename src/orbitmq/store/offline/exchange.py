"""New queues and index beside a store, and how they take the place of the old ones.

orbitmq.rebuild/                 new files; a rebuild that failed or died leaves at most this
  consumequeue/ ... index/         in the order of a store
  exchange.json                    all of them are there and durable: the exchange has begun

Each directory changes places with the old one in one step, so that at every moment there is an old one
or a new one, whole. Old ones go to the quarantine. The checkpoint is withdrawn before the first step
and written again after the last: whoever opens the store in between compares it with the log. An exchange
that a kill cut short is finished by the next rebuild.
"""

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.clock import Clock
from orbitmq.errors import io_error
from orbitmq.files.disk import Disk, exists
from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.listing import QueueFiles, list_segments
from orbitmq.files.replace import read_whole, replace_file
from orbitmq.format.checkpoint import Extension
from orbitmq.store.checkpoint import CheckpointFile
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.queues.load import load_queue
from orbitmq.store.queues.trim import correct_min
from orbitmq.store.recovery.quarantine import Quarantine
from orbitmq.store.snapshot import SnapshotFile, capture, encode_capture
from orbitmq.store.verify.facts import last_unit_end

WORK_NAME: Final = "orbitmq.rebuild"
MARKER_NAME: Final = "exchange.json"
CAUSE: Final = "queues and index are made anew"

_FAMILIES: Final = (QueueKind.SIMPLE, QueueKind.EXT, QueueKind.BATCH)
_DEAD: Final = f"{WORK_NAME}.dead"
_ASIDE: Final = "old"


@dataclass(frozen=True, slots=True)
class Scope:
    """What is made anew: all of queues and index, one of the two, or the queues of some topics."""

    queues: bool = True
    index: bool = True
    topics: frozenset[str] | None = None  # None: of all

    @property
    def is_whole(self) -> bool:
        return self.queues and self.index and self.topics is None

    def has_topic(self, topic: str) -> bool:
        return self.queues and (self.topics is None or topic in self.topics)

    def names(self, layout: StoreLayout) -> list[str]:
        """Return the directories that change places, relative to the store."""
        found: list[str] = []
        if self.queues and self.topics is None:
            found += [kind.value for kind in _FAMILIES]
        elif self.queues:
            topics = sorted(self.topics or ())
            found += [f"{kind.value}/{topic}" for kind in _FAMILIES for topic in topics]
        return [*found, layout.index_directory.name] if self.index else found


class KeptQueue(NamedTuple):
    """An old queue of which no record is left in the log."""

    kind: QueueKind
    files: QueueFiles


class WorkFiles:
    """The new files of one rebuild. Not thread-safe; whoever uses it holds the store's lock.

    With `target` they are made for another directory, and the store stays as it is.
    """

    def __init__(
        self,
        store: StoreLayout,
        disk: Disk,
        clock: Clock,
        *,
        target: Path | None = None,
        scope: Scope | None = None,
    ) -> None:
        logs = store.commit_log_directories
        self.target = replace(store, root=target or store.root, commit_log_paths=logs)
        self.layout = replace(self.target, root=self.target.root / WORK_NAME)
        self.scope = scope or Scope()
        self._store = store
        self._disk = disk
        self._clock = clock
        self._checkpointed_to = -1  # how far the checkpoint reached before the exchange

    # --- the directory ---

    def begin(self) -> None:
        """Make the directory, after finishing or removing what a dead rebuild left."""
        if exists(self._marker):
            self._finish()
        self.discard()
        for dead in self.target.root.glob(f"{_DEAD}-*"):
            _remove_tree(dead)
        self._disk.make_directory(self.layout.root)

    def discard(self) -> None:
        """Remove everything. A task that still runs somewhere cannot put anything back."""
        if not exists(self.layout.root):
            return
        # Under another name first: a path that leads nowhere takes no new files.
        dead = self.target.root / f"{_DEAD}-{self._clock.now_ms()}"
        self._disk.rename(self.layout.root, dead)
        _remove_tree(dead)

    # --- what is not in the log any more ---

    def keep_expired_queues(self) -> list[KeptQueue]:
        """Copy queues of which no record is left: their numbering is nowhere else."""
        kept: list[KeptQueue] = []
        if not self.scope.queues:
            return kept
        log_min = self._log_min()
        for kind in (QueueKind.SIMPLE, QueueKind.BATCH):
            for queue in self._store.list_queues(kind):
                old = self._store.queue_directory(kind, queue.topic, queue.queue_id)
                new = self.layout.queue_directory(kind, queue.topic, queue.queue_id)
                wanted = self.scope.has_topic(queue.topic) and not new.exists()
                if wanted and self._is_expired(kind, old, log_min):
                    shutil.copytree(old, new)
                    kept.append(KeptQueue(kind, queue))
        if kept:
            self._disk.sync_file_system(self.layout.root)
        return kept

    def load_kept(self, dispatcher: Dispatcher, kept: Iterable[KeptQueue]) -> bool:
        """Let a dispatcher on the new files know the kept ones; return whether it knows all queues now."""
        all_known = True
        for kind, files in kept:
            if kind is QueueKind.BATCH:
                all_known = False
            else:
                number = dispatcher.queues.add(files.topic, files.queue_id)
                load_queue(dispatcher.queues, number, files)
        correct_min(dispatcher.queues, self._log_min())
        return all_known

    def _log_min(self) -> int:
        log = list_segments(self._store.commit_log_directories)
        return log[0].base_offset if log else 0

    def _is_expired(self, kind: QueueKind, directory: Path, log_min: int) -> bool:
        files = list_segments(directory, self._store.queue_file_bytes(kind))
        ends = [last_unit_end(file.path, file.length, kind) for file in files]
        found = [end for end in ends if end is not None]
        return bool(found) and max(found) <= log_min

    # --- the exchange ---

    def exchange(self) -> list[Path]:
        """Put the new files, which are durable, in place of the old ones; return where those went."""
        self._withdraw_checkpoint()
        names = {name: _inode(self.layout.root / name) for name in self.scope.names(self.target)}
        marker = {"group": f"rebuild-{self._clock.now_ms()}", "names": names}
        replace_file(self._disk, self._marker, json.dumps(marker).encode())
        return self._finish()

    @property
    def _marker(self) -> Path:
        return self.layout.root / MARKER_NAME

    def _withdraw_checkpoint(self) -> None:
        checkpoint = CheckpointFile(self.target.checkpoint, self._disk)
        before = checkpoint.load()
        if before is not None:
            if before.extension is not None:
                self._checkpointed_to = before.extension.dispatched_offset
            checkpoint.update(extension=None)
            checkpoint.write()

    def _finish(self) -> list[Path]:
        """Do what the marker says, as far as it is not done."""
        marker = json.loads(read_whole(self._disk, self._marker) or b"{}")
        kept: list[Path] = []
        for name, inode in marker.get("names", {}).items():
            kept += self._swap(str(name), int(inode), str(marker["group"]))
        self._disk.sync_directory(self.target.root)
        self.discard()
        return kept

    def _swap(self, name: str, inode: int, group: str) -> list[Path]:
        old, new = self.target.root / name, self.layout.root / name
        aside = self.layout.root / _ASIDE / name
        if inode and _inode(new) == inode:
            self._put_in_place(new, old, aside)
        elif not inode and exists(old):
            return self._keep(self.target.root, old, group)
        if exists(aside):
            return self._keep(self.layout.root / _ASIDE, aside, group)
        return self._keep(self.layout.root, new, group) if exists(new) else []

    def _put_in_place(self, new: Path, old: Path, aside: Path) -> None:
        self._disk.make_directory(old.parent)
        if exists(old):
            if self._disk.exchange(new, old):
                self._disk.sync_directory(old.parent)
                return
            # This file system cannot: for a moment there is neither, and the marker tells so.
            self._disk.make_directory(aside.parent)
            self._disk.rename(old, aside)
        self._disk.rename(new, old)
        self._disk.sync_directory(old.parent)

    def _keep(self, root: Path, path: Path, group: str) -> list[Path]:
        quarantine = Quarantine(self.target.quarantine, root, self._disk, self._clock)
        return [quarantine.keep_path(path, group, CAUSE)]

    # --- the checkpoint ---

    def note_times(self, end_offset: int, last_store_ms: int) -> None:
        """Where only a part was made anew, leave a checkpoint that a store without ours may have.

        What was checkpointed up to the end of the log is on disk; the page said so in its extension alone.
        """
        if self._checkpointed_to == end_offset and last_store_ms > 0:
            checkpoint = CheckpointFile(self.target.checkpoint, self._disk)
            checkpoint.load()
            checkpoint.update(physic_ms=last_store_ms, logics_ms=last_store_ms)
            checkpoint.write()

    def write_checkpoint(
        self, dispatcher: Dispatcher, end_offset: int, last_store_ms: int, *, index_enabled: bool
    ) -> None:
        """Write snapshot and checkpoint, so that the next start trusts the new files."""
        checkpoint = CheckpointFile(self._store.checkpoint, self._disk)
        checkpoint.load()
        if self.target.root != self._store.root:
            values = checkpoint.value
            checkpoint = CheckpointFile(self.target.checkpoint, self._disk)
            checkpoint.update(
                master_flushed_offset=values.master_flushed_offset,
                confirm_offset=values.confirm_offset,
            )
        snapshot = SnapshotFile(self.target.snapshot, self._disk)
        before = snapshot.load()
        generation = 1 + (before.generation if before is not None else 0)
        captured = capture(dispatcher, end_offset)
        snapshot.save(encode_capture(captured, dispatcher.queues.names, generation))
        full_ms = dispatcher.index.full_ms
        checkpoint.update(
            physic_ms=max(last_store_ms, 0),
            logics_ms=max(min(last_store_ms, full_ms if index_enabled else last_store_ms), 0),
            index_ms=full_ms,
            extension=Extension(generation, end_offset, end_offset, own_from=end_offset),
        )
        checkpoint.write()


def _inode(path: Path) -> int:
    return path.stat().st_ino if exists(path) else 0


def _remove_tree(path: Path) -> None:
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as cause:
        raise io_error(path, "remove", cause) from cause
