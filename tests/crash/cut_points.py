"""Power cuts at every step: what a disk could hold before each sync, rename and removal of a piece of work.

A store works in this thread on a disk that stops before each step that makes something durable or gives
it another name, and keeps what power cuts of several kinds would leave at that moment, with what had been
promised until then. Afterwards each of these states is opened and compared with its promises. No step is
left to chance, so a sync that is missing or comes too late is found in every run.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from crash.checker import History, check_after_crash
from crash.workload import ENDLESS, FLUSHED, Ack
from orbitmq.files import lock
from orbitmq.files.disk import FilePath
from orbitmq.format.kernels import plain
from orbitmq.message import AppendStatus
from orbitmq.store.config import DispatchMode, FlushMode, StoreConfig
from orbitmq.store.recovery.adopt import RecoveryReport
from orbitmq.store.store import MessageStore
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.testing.forwarding_disk import ForwardingDisk
from orbitmq.testing.power_cut import (
    BYTES_ONLY,
    NAMES_ONLY,
    NOTHING,
    Image,
    PowerCutDisk,
    Survival,
    write_image,
)
from orbitmq.units import HOUR_MS, KiB

KINDS: Final = {"nothing": NOTHING, "names": NAMES_ONLY, "bytes": BYTES_ONLY}
MIXED: Final = Survival(pages=0.5, tears=0.3, names=0.5)


@dataclass(frozen=True)
class Cut:
    """What one power cut leaves, and what had been promised before it."""

    label: str
    image: Image
    history: History


class Killed(BaseException):
    """The process ends here."""


class CuttingDisk(PowerCutDisk):
    """Keeps states at each step while `armed`; equal ones once. `kill_at`: the step that is not reached."""

    def __init__(
        self,
        root: Path,
        where: Path,
        history: History | None = None,
        kinds: Iterable[str] = tuple(KINDS),
        mixed: int = 1,
    ) -> None:
        super().__init__(root, shadow=where / "shadow", can_exchange=True)
        self.history = history or History(seed=0)
        self.armed = False
        self.cuts: list[Cut] = []
        self.steps = 0
        self.kill_at: int | None = None
        self.dead = False
        self._kinds, self._mixed = tuple(kinds), mixed
        self._kept = 0
        self._seen: set[str] = set()

    def keep(self, label: str) -> None:
        """Keep what power cuts would leave now."""
        with self._lock:
            self._kept += 1
            kinds = {name: KINDS[name] for name in self._kinds}
            kinds |= {f"mixed {number}": MIXED for number in range(self._mixed)}
            for seed, (kind, survival) in enumerate(kinds.items()):
                self._keep_one(f"state {self._kept}, before {label}, left: {kind}", seed, survival)

    def forget(self) -> None:
        """Start anew: what was kept has been looked at."""
        self.cuts.clear()
        self._seen.clear()

    def _keep_one(self, label: str, seed: int, survival: Survival) -> None:
        image = self.image(self._kept << 8 | seed, survival)
        # The text of an abort file is nobody's concern, and has the process id.
        content = {name: data for name, data in image.items() if name != "abort"}
        state = hashlib.sha256(repr((content, "abort" in image)).encode()).hexdigest()
        state += f" {len(self.history.acked)} {self.history.flushed}"
        if state not in self._seen:
            self._seen.add(state)
            self.cuts.append(Cut(label, image, self.history.copy()))

    def _before(self, step: str, path: FilePath) -> None:
        self._alive()
        self.steps += 1
        if self.steps == self.kill_at:
            self.dead = True
            raise Killed
        if self.armed:
            self.keep(f"{step} {Path(path).relative_to(self._root)}")

    def _alive(self) -> None:
        if self.dead:
            raise Killed  # a killed process does not tidy up

    def open(self, path: FilePath, *, create: bool = False, writable: bool = True) -> int:
        self._alive()
        return super().open(path, create=create, writable=writable)

    def write_at(
        self, path: FilePath, fd: int, position: int, data: bytes | bytearray | memoryview
    ) -> None:
        self._alive()
        super().write_at(path, fd, position, data)

    def make_directory(self, path: FilePath) -> None:
        self._alive()
        super().make_directory(path)

    def sync_data(self, path: FilePath, fd: int, position: int = 0, length: int = 0) -> None:
        self._before("sync_data", path)
        super().sync_data(path, fd, position, length)

    def sync_directory(self, path: FilePath) -> None:
        self._before("sync_directory", path)
        super().sync_directory(path)

    def sync_file_system(self, path: FilePath) -> None:
        self._before("sync_file_system", path)
        super().sync_file_system(path)

    def rename(self, source: FilePath, target: FilePath) -> None:
        self._before("rename", source)
        super().rename(source, target)

    def exchange(self, first: FilePath, second: FilePath) -> bool:
        self._before("exchange", first)
        return super().exchange(first, second)

    def remove(self, path: FilePath) -> None:
        self._before("remove", path)
        super().remove(path)


class NoSyncDisk(ForwardingDisk):
    """For looking at what is left: nobody cuts its power, so nothing has to be synced."""

    def sync_data(self, path: FilePath, fd: int, position: int = 0, length: int = 0) -> None: ...

    def sync_directory(self, path: FilePath) -> None: ...

    def sync_file_system(self, path: FilePath) -> None: ...


class Scene:
    """A small store on a cutting disk, its clock, and what it promised. One thread."""

    def __init__(
        self,
        tmp_path: Path,
        *,
        kinds: Iterable[str] = tuple(KINDS),
        mixed: int = 1,
        batches: bool = False,
        **config: Any,
    ) -> None:
        self.root = tmp_path / "store"
        self.root.mkdir(parents=True)
        self.given = config
        self.clock = FakeClock()
        self.history = History(seed=7, batches=batches, few=True)
        self._where = tmp_path
        self.disk = CuttingDisk(self.root, tmp_path, self.history, kinds, mixed)
        self.life = -1
        self._next = 0

    def config(self, root: Path | None = None, **given: Any) -> StoreConfig:
        sizes: dict[str, Any] = {
            "segment_bytes": 8 * KiB,
            "cq_file_bytes": 100,
            "ext_file_bytes": 200,
            "batch_cq_file_bytes": 230,
            "index_slots": 8,
            "index_items": 12,
            "message_bytes_max": 4 * KiB,
            "flush_mode": FlushMode.SYNC,
            "clean_forced": False,
            "retention_ms": 72 * HOUR_MS,
        }
        return StoreConfig(root=root or self.root, **(sizes | self.given | given))

    def kill(self) -> None:
        """End the process that has the store open; what it had not synced is in the page cache."""
        kill_all(self.root)
        self.disk.dead, self.disk.kill_at = False, None

    def open(self, **given: Any) -> MessageStore:
        self.life += 1
        self._next = self.life * ENDLESS
        given = {"disk": self.disk, "clock": self.clock, "background": False} | given
        return MessageStore.open(self.config(), **given)

    def append(self, store: MessageStore, count: int, *, step_ms: int = 1) -> None:
        """Append messages one by one; each is promised when its append has returned."""
        for _ in range(count):
            result = store.append(self.history.request(self._next))
            assert result.status is AppendStatus.PUT_OK, result
            stored = (result.log_offset, result.queue_offset, result.size)
            self.history.learn([Ack(self._next, *stored)])
            self._next += 1
            self.clock.advance(step_ms)

    def flush_log(self, store: MessageStore) -> None:
        store.flush_log()
        self.history.learn([Ack(FLUSHED, store.flushed_offset)])

    def check(
        self,
        *,
        least: int,
        before: Callable[[Path], object] | None = None,
        then: Callable[[Path, RecoveryReport], None] | None = None,
        **allowed: bool,
    ) -> None:
        """Open each state that was kept; at least so many have to differ.

        `before` is done to each of them first, `then` looks at it afterwards.
        """
        self.disk.armed = False
        self.disk.keep("the end")
        assert len(self.disk.cuts) >= least, f"only {len(self.disk.cuts)} states were kept"
        for number, cut in enumerate(self.disk.cuts):
            root = write_image(cut.image, self._where / f"cut-{number}")
            try:
                if before is not None:
                    before(root)
                report = check_after_crash(
                    self.config(root, dispatch=DispatchMode.LIVE),
                    cut.history,
                    kernels=plain(),
                    disk=NoSyncDisk(),
                    may_fill=True,
                    **allowed,
                )
                if then is not None:
                    then(root, report)
            except Exception as error:
                raise AssertionError(f"{cut.label}: {error}") from error
            shutil.rmtree(root)


def kill_all(root: Path) -> None:
    """Give up the lock of whoever had the store open, as the end of its process does."""
    with suppress(FileNotFoundError):
        status = (root / "lock").stat()
        lock._HELD.pop((status.st_dev, status.st_ino), None)
