"""A store as a broker opens it, from a broker.conf, with a disk and a clock that tell what happens."""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from orbitmq.broker.config import BrokerConfig
from orbitmq.files.disk import Disk, FilePath
from orbitmq.message import AppendRequest, AppendResult, AppendStatus, QueueType
from orbitmq.settings import load_settings
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import HOST_V4
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.testing.fake_disk import FaultyDisk

SMALL = {
    "mappedFileSizeCommitLog": 64 * 1024,
    "mappedFileSizeConsumeQueue": 400,
    "mappedFileSizeConsumeQueueExt": 2000,
    "mapperFileSizeBatchConsumeQueue": 460,
    "maxHashSlotNum": 50,
    "maxIndexNum": 100,
}
"""Files that a test fills at once; whatever else it does not name has RocketMQ's default."""

_FIXED_BYTES = 91  # of a record: see FORMATS.md


def wires(*keys: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Say which settings a test sees at work, with their default and with another value.

    `settings/test_table.py` reads this from the source: a setting that nobody names is found there.
    """

    def same(test: Callable[..., None]) -> Callable[..., None]:
        assert keys
        return test

    return same


class Call(NamedTuple):
    """One call of the disk."""

    at_ms: float
    operation: str
    path: str  # below the store's root
    position: int = 0
    length: int = 0


class SeenDisk(FaultyDisk):
    """A disk that remembers what was asked of it, in order. Any thread may use it."""

    def __init__(self, root: Path, clock: FakeClock, disk: Disk | None = None) -> None:
        super().__init__(disk)
        self._root, self._clock = root, clock
        self._seen_lock = threading.Lock()  # guards the list
        self.calls: list[Call] = []

    def seen(self, operation: str, folder: str = "") -> list[Call]:
        """Return the calls of one operation below a folder of the store."""
        with self._seen_lock:
            return [
                call
                for call in self.calls
                if call.operation == operation and call.path.startswith(folder)
            ]

    def forget(self) -> None:
        with self._seen_lock:
            self.calls.clear()

    def _see(self, operation: str, path: FilePath, position: int = 0, length: int = 0) -> None:
        inside = Path(path)
        if inside.is_relative_to(self._root):
            inside = inside.relative_to(self._root)
        call = Call(self._clock.monotonic_ms(), operation, str(inside), position, length)
        with self._seen_lock:
            self.calls.append(call)

    def read_at(self, path: FilePath, fd: int, position: int, length: int) -> bytes:
        self._see("read_at", path, position, length)
        return super().read_at(path, fd, position, length)

    def write_at(
        self, path: FilePath, fd: int, position: int, data: bytes | bytearray | memoryview
    ) -> None:
        self._see("write_at", path, position, len(data))
        super().write_at(path, fd, position, data)

    def allocate(self, path: FilePath, fd: int, length: int) -> None:
        self._see("allocate", path, 0, length)
        super().allocate(path, fd, length)

    def sync_data(self, path: FilePath, fd: int, position: int = 0, length: int = 0) -> None:
        self._see("sync_data", path, position, length)
        super().sync_data(path, fd, position, length)

    def sync_directory(self, path: FilePath) -> None:
        self._see("sync_directory", path)
        super().sync_directory(path)

    def rename(self, source: FilePath, target: FilePath) -> None:
        self._see("rename", target)
        super().rename(source, target)

    def remove(self, path: FilePath) -> None:
        self._see("remove", path)
        super().remove(path)


def broker_conf(folder: Path, given: Mapping[str, object]) -> StoreConfig:
    """Write a broker.conf below `folder` and return what a broker makes of it for its store."""
    settings = {"storePathRootDir": folder / "store", **given}
    file = folder / "broker.conf"
    lines = [f"{key}={_text(value)}\n" for key, value in settings.items()]
    file.write_text("".join(lines), encoding="utf-8")
    loaded = load_settings(file, environment={})
    assert loaded.warnings == []
    return BrokerConfig.from_settings(loaded).store


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class ConfStore(AbstractContextManager["ConfStore"]):
    """An open store. Without threads, unless asked for: `pass_time` lets time pass."""

    def __init__(
        self,
        folder: Path,
        given: Mapping[str, object] | None = None,
        *,
        small: bool = True,
        clock: FakeClock | None = None,
        inner_disk: Disk | None = None,
        topic_types: Mapping[str, QueueType] | None = None,
        disk_ratio: Callable[[Path], float] = lambda _: 0.5,
        background: bool = False,
    ) -> None:
        self.config = broker_conf(folder, {**(SMALL if small else {}), **(given or {})})
        self.root = self.config.root
        self.clock = clock or FakeClock()
        self.disk = SeenDisk(self.root, self.clock, inner_disk)
        types = topic_types or {}
        self.store = MessageStore.open(
            self.config,
            clock=self.clock,
            disk=self.disk,
            topic_types=lambda topic: types.get(topic, QueueType.SIMPLE),
            disk_ratio=disk_ratio,
            background=background,
        )

    def __exit__(self, *_: Any) -> None:
        self.store.close()

    def append(self, *requests: AppendRequest) -> list[AppendResult]:
        """Append messages that must be taken, and dispatch them."""
        results = [self.store.append(request) for request in requests]
        assert {result.status for result in results} == {AppendStatus.PUT_OK}
        assert self.store.wait_dispatched()
        return results

    def files(self, folder: str) -> dict[str, int]:
        """Return the files below a folder of the store, with their lengths."""
        found = (self.root / folder).rglob("*")
        return {
            str(path.relative_to(self.root)): path.stat().st_size
            for path in found
            if path.is_file()
        }

    def first_time(self, happened: Callable[[], object], *, step_ms: int, last_ms: int) -> int:
        """Let time pass in steps, each with a tick; return how much until it had happened, -1: never."""
        assert not happened()
        for passed_ms in range(step_ms, last_ms + 1, step_ms):
            self.clock.advance(step_ms)
            self.store.tick()
            if happened():
                return passed_ms
        return -1


def request_of(size: int, topic: str = "T", queue_id: int = 0) -> AppendRequest:
    """Return a message whose record has exactly so many bytes."""
    body = bytes(size - _FIXED_BYTES - len(topic))
    return AppendRequest(topic, queue_id, body, born_host=HOST_V4)
