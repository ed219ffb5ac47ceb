"""The cache of open files: bounded, thread-safe, and honest about what is durable."""

import errno
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orbitmq.errors import NoPermissionError, NoSpaceError, StoreError, StoreIOError, WrongFileError
from orbitmq.files.disk import Disk, FilePath
from orbitmq.files.positioned import SYNC_ONE_BY_ONE_MAX, FileCache
from orbitmq.testing.fake_disk import FaultyDisk, ForwardingDisk


class CountingDisk(ForwardingDisk):
    """Remembers which files are open and what was synced."""

    def __init__(self) -> None:
        super().__init__()
        self.open_fds: set[int] = set()
        self.synced: list[str] = []
        self.most_open = 0

    def open(self, path: FilePath, *, create: bool = False, writable: bool = True) -> int:
        fd = super().open(path, create=create, writable=writable)
        self.open_fds.add(fd)
        self.most_open = max(self.most_open, len(self.open_fds))
        return fd

    def close(self, path: FilePath, fd: int) -> None:
        self.open_fds.remove(fd)
        super().close(path, fd)

    def sync_data(self, path: FilePath, fd: int, position: int = 0, length: int = 0) -> None:
        assert fd in self.open_fds
        self.synced.append(Path(path).name)

    def sync_directory(self, path: FilePath) -> None:
        self.synced.append(f"{Path(path).name}/")

    def sync_file_system(self, path: FilePath) -> None:
        self.synced.append("all")


@pytest.fixture
def disk() -> CountingDisk:
    return CountingDisk()


@pytest.fixture
def cache(disk: CountingDisk) -> FileCache:
    return FileCache(disk, max_open=4)


def test_a_missing_file_is_created_sparse_with_its_directories(
    cache: FileCache, tmp_path: Path
) -> None:
    path = tmp_path / "T" / "0" / "file"

    cache.write(path, 5000, b"abc", file_bytes=6_000_000)

    assert path.stat().st_size == 6_000_000
    assert path.stat().st_blocks * 512 <= 8192
    assert cache.read(path, 4999, 5) == b"\0abc\0"


def test_without_a_size_a_missing_file_stays_missing(cache: FileCache, tmp_path: Path) -> None:
    for call in (
        lambda: cache.write(tmp_path / "f", 0, b"x"),
        lambda: cache.read(tmp_path / "f", 0, 1),
    ):
        with pytest.raises(StoreIOError, match="No such file"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_wrong_length_is_refused_and_an_empty_one_is_sized(
    cache: FileCache, disk: CountingDisk, tmp_path: Path
) -> None:
    (tmp_path / "short").write_bytes(b"x" * 99)
    (tmp_path / "empty").touch()

    with pytest.raises(WrongFileError, match="99 bytes instead of 100"):
        cache.write(tmp_path / "short", 0, b"a", file_bytes=100)
    cache.write(tmp_path / "empty", 0, b"a", file_bytes=100)

    assert (tmp_path / "empty").stat().st_size == 100
    assert (tmp_path / "short").read_bytes() == b"x" * 99
    cache.close()
    assert disk.open_fds == set()


def test_no_more_files_are_open_than_allowed(
    cache: FileCache, disk: CountingDisk, tmp_path: Path
) -> None:
    for number in range(20):
        cache.write(tmp_path / str(number), 0, b"%d" % number, file_bytes=10)

    assert disk.most_open <= 5  # one more while a new one replaces an old one
    assert cache.open_count == 4
    assert all(cache.read(tmp_path / str(n), 0, 10).rstrip(b"\0") == b"%d" % n for n in range(20))


def test_the_least_recently_used_file_is_closed_first(
    cache: FileCache, disk: CountingDisk, tmp_path: Path
) -> None:
    for number in range(4):
        cache.write(tmp_path / str(number), 0, b"x", file_bytes=10)
    before = set(disk.open_fds)
    cache.read(str(tmp_path / "0"), 0, 1)  # text and path name the same file

    cache.write(tmp_path / "4", 0, b"x", file_bytes=10)
    cache.read(tmp_path / "0", 0, 1)

    assert len(before & disk.open_fds) == 3


def test_zeroing_from_a_position_keeps_the_length(cache: FileCache, tmp_path: Path) -> None:
    cache.write(tmp_path / "f", 0, b"x" * 9000, file_bytes=10_000)

    cache.truncate_zero(tmp_path / "f", 4500)

    assert (tmp_path / "f").read_bytes() == b"x" * 4500 + bytes(5500)


def test_a_few_files_are_synced_one_by_one_and_their_new_directories_once(
    cache: FileCache, disk: CountingDisk, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    paths = [root / "T" / "0" / "a", root / "T" / "1" / "b"]
    for path in paths:
        cache.write(path, 0, b"x", file_bytes=10)

    cache.sync(paths)
    first, disk.synced = sorted(disk.synced), []
    cache.sync(paths[:1])

    assert first == sorted(["a", "b", "0/", "1/", "T/", "store/", f"{tmp_path.name}/"])
    assert disk.synced == ["a"]


def test_many_files_are_synced_by_one_call(
    cache: FileCache, disk: CountingDisk, tmp_path: Path
) -> None:
    paths = [tmp_path / str(number) for number in range(SYNC_ONE_BY_ONE_MAX + 1)]
    for path in paths:
        cache.write(path, 0, b"x", file_bytes=10)

    cache.sync(paths)

    assert disk.synced == ["all"]


def test_a_file_closed_before_its_sync_is_synced_with_its_file_system(
    cache: FileCache, disk: CountingDisk, tmp_path: Path
) -> None:
    # Its descriptor is gone, and with it the report of a write that failed in the background.
    for number in range(6):
        cache.write(tmp_path / str(number), 0, b"x", file_bytes=10)

    cache.sync([tmp_path / "0"])
    cache.sync([tmp_path / "0"])

    assert disk.synced == ["all", "0"]


def test_removed_files_are_gone_and_their_directory_is_synced(
    cache: FileCache, disk: CountingDisk, tmp_path: Path
) -> None:
    cache.write(tmp_path / "a", 0, b"x", file_bytes=10)
    cache.sync([tmp_path / "a"])
    disk.synced = []

    cache.remove(tmp_path / "a")
    cache.remove(tmp_path / "a", missing_ok=True)
    with pytest.raises(StoreIOError):
        cache.remove(tmp_path / "a")
    cache.sync([tmp_path / "a"])  # removed meanwhile: nothing to sync but the directory

    assert not (tmp_path / "a").exists()
    assert disk.synced == [f"{tmp_path.name}/"]
    assert disk.open_fds == set()


def test_a_file_in_use_is_not_closed_under_its_reader(tmp_path: Path) -> None:
    class SlowDisk(CountingDisk):
        def read_at(self, path: FilePath, fd: int, position: int, length: int) -> bytes:
            reading.set()
            assert may_read.wait(10)
            assert fd in self.open_fds
            return super().read_at(path, fd, position, length)

    reading, may_read = threading.Event(), threading.Event()
    disk = SlowDisk()
    cache = FileCache(disk, max_open=1)
    cache.write(tmp_path / "a", 0, b"abc", file_bytes=10)

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(cache.read, tmp_path / "a", 0, 3)
        assert reading.wait(10)
        cache.write(tmp_path / "b", 0, b"x", file_bytes=10)  # pushes `a` out
        cache.remove(tmp_path / "a")
        cache.close()
        may_read.set()
        assert result.result(10) == b"abc"

    assert disk.open_fds == set()


def test_many_threads_on_few_descriptors_read_what_they_wrote(tmp_path: Path) -> None:
    disk = CountingDisk()
    cache = FileCache(disk, max_open=3)

    def work(worker: int) -> None:
        chance = random.Random(worker)
        for step in range(300):
            path = tmp_path / str(chance.randrange(12))
            data = f"{worker}:{step}".encode().ljust(8)
            cache.write(path, worker * 8, data, file_bytes=100)
            assert cache.read(path, worker * 8, 8) == data
            if chance.random() < 0.05:
                cache.forget(path)
            if chance.random() < 0.05:
                cache.sync([path])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))

    cache.close()
    assert disk.open_fds == set()


def test_a_read_only_cache_does_not_ask_for_write_permission(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    disk = FaultyDisk()
    with FileCache(disk, writable=False) as cache:
        assert cache.read(tmp_path / "a", 1, 5) == b"bc"
        with pytest.raises(StoreIOError):
            cache.write(tmp_path / "a", 0, b"x")


@pytest.mark.parametrize(
    ("operation", "number", "error", "step"),
    [
        ("open", errno.EACCES, NoPermissionError, "Give this user"),
        ("make_directory", errno.EROFS, NoPermissionError, "Give this user"),
        ("truncate", errno.ENOSPC, NoSpaceError, "Free space"),
        ("write_at", errno.ENOSPC, NoSpaceError, "Free space"),
        ("write_at", errno.EDQUOT, NoSpaceError, "Free space"),
        ("write_at", errno.EIO, StoreIOError, "dmesg"),
    ],
)
def test_a_write_that_fails_gives_the_typed_error_with_its_path(
    operation: str, number: int, error: type[StoreError], step: str, tmp_path: Path
) -> None:
    disk = FaultyDisk(CountingDisk())
    fault = disk.fail(operation, errno=number)
    cache = FileCache(disk)
    path = tmp_path / "T" / "file"

    with pytest.raises(error, match=step) as caught:
        cache.write(path, 0, b"abc", file_bytes=10)

    assert fault.hits == 1
    assert caught.value.path == (path.parent if operation == "make_directory" else path)
    cache.write(path, 0, b"abc", file_bytes=10)  # the fault is over: it works again
    assert path.read_bytes() == b"abc" + bytes(7)
    cache.close()
    assert isinstance(disk.inner, CountingDisk)
    assert disk.inner.open_fds == set()


@pytest.mark.parametrize("operation", ["sync_data", "sync_directory", "sync_file_system"])
def test_a_sync_that_fails_is_reported_and_tried_again(operation: str, tmp_path: Path) -> None:
    disk = FaultyDisk(CountingDisk())
    cache = FileCache(disk, max_open=2)
    count = 1 if operation != "sync_file_system" else SYNC_ONE_BY_ONE_MAX + 1
    paths = [tmp_path / str(number) for number in range(count)]
    for path in paths:
        cache.write(path, 0, b"x", file_bytes=10)
    fault = disk.fail(operation, errno=errno.EIO)

    with pytest.raises(StoreIOError, match="sync"):
        cache.sync(paths)
    cache.sync(paths)

    assert fault.hits == 1
    assert fault.seen == 2


def test_a_write_that_comes_during_a_sync_is_not_taken_for_synced(tmp_path: Path) -> None:
    path, other = tmp_path / "file", tmp_path / "other"
    disk = CountingDisk()
    cache = FileCache(disk, max_open=1)
    cache.write(path, 0, b"first", file_bytes=10)
    sync = disk.sync_data

    def write_meanwhile(*args: object) -> None:
        sync(*args)  # type: ignore[arg-type]
        cache.write(path, 5, b"more")

    disk.sync_data = write_meanwhile  # type: ignore[method-assign]
    cache.sync([path])
    disk.sync_data = sync  # type: ignore[method-assign]
    cache.write(other, 0, b"x", file_bytes=10)  # closes the first file
    disk.synced.clear()

    cache.sync([path])

    assert disk.synced == ["all"]  # its descriptor is gone, and with it what it could report


def test_a_name_that_comes_after_a_sync_of_its_directory_is_synced_again(tmp_path: Path) -> None:
    disk = CountingDisk()
    cache = FileCache(disk)
    opened = disk.open

    def open_late(path: FilePath, *, create: bool = False, writable: bool = True) -> int:
        if create:
            cache.sync_directories()  # somebody else's: the file has no name yet
            disk.synced.clear()
        return opened(path, create=create, writable=writable)

    disk.open = open_late  # type: ignore[method-assign]
    cache.write(tmp_path / "T" / "0" / "file", 0, b"x", file_bytes=10)

    cache.sync_directories()

    assert disk.synced == [f"{tmp_path.name}/", "T/", "0/"]


def test_a_file_in_a_directory_that_somebody_else_just_made_has_all_its_names_synced(
    tmp_path: Path,
) -> None:
    disk = CountingDisk()
    cache = FileCache(disk)
    make = disk.make_directory
    synced: list[str] = []

    def make_and_be_overtaken(path: FilePath) -> None:
        make(path)
        disk.make_directory = make  # type: ignore[method-assign]
        other = tmp_path / "T" / "1" / "file"
        cache.write(other, 0, b"x", file_bytes=10)
        cache.sync([other])
        synced.extend(disk.synced)

    disk.make_directory = make_and_be_overtaken  # type: ignore[method-assign]
    cache.write(tmp_path / "T" / "0" / "file", 0, b"x", file_bytes=10)

    assert f"{tmp_path.name}/" in synced  # the name of T


@pytest.mark.parametrize("count", [1, SYNC_ONE_BY_ONE_MAX + 1])
def test_a_sync_waits_for_the_directories_that_another_one_is_at(
    count: int, tmp_path: Path
) -> None:
    disk = CountingDisk()
    cache = FileCache(disk)
    paths = [tmp_path / str(number) for number in range(count)]
    for path in paths:
        cache.write(path, 0, b"x", file_bytes=10)
    begun, go_on = threading.Event(), threading.Event()

    def sync_slowly(_: FilePath) -> None:
        begun.set()
        assert go_on.wait(10)

    disk.sync_directory = disk.sync_file_system = sync_slowly  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.sync, paths)
        assert begun.wait(10)
        second = pool.submit(cache.sync, paths[:1])
        with pytest.raises(TimeoutError):
            second.result(0.1)  # nothing is left for it to sync, and nothing is durable yet
        go_on.set()
        first.result(10)
        second.result(10)


def test_a_file_that_was_closed_before_a_failed_sync_is_still_remembered(tmp_path: Path) -> None:
    path, other = tmp_path / "file", tmp_path / "other"
    disk = FaultyDisk(CountingDisk())
    cache = FileCache(disk, max_open=1)
    for written in (path, other):
        cache.write(written, 0, b"x", file_bytes=10)
    fault = disk.fail("sync_file_system", errno=errno.EIO)

    with pytest.raises(StoreIOError, match="sync"):
        cache.sync([path])
    cache.sync([path])

    assert (fault.hits, fault.seen) == (1, 2)  # again by the file system: the file is closed


def test_a_cached_write_costs_little_more_than_the_call_itself(tmp_path: Path) -> None:
    # Not a benchmark: it only fails when somebody makes each write open a file.
    class NoOpen(Disk):
        def open(self, path: FilePath, *, create: bool = False, writable: bool = True) -> int:
            opened.append(str(path))
            return super().open(path, create=create, writable=writable)

    opened: list[str] = []
    with FileCache(NoOpen()) as cache:
        for _ in range(1000):
            cache.write(tmp_path / "a", 0, b"x", file_bytes=10)

    assert len(opened) == 2  # not there, then created
    assert os.listdir(tmp_path) == ["a"]  # noqa: PTH208


def test_a_file_of_no_length_gets_its_own_even_if_somebody_read_it_first(
    cache: FileCache, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    path.touch()  # its maker died before it had a length
    assert cache.read(path, 0, 20) == b""

    cache.write(path, 0, b"abc", file_bytes=100)

    assert path.read_bytes() == b"abc".ljust(100, b"\0")


def test_a_file_of_wrong_length_is_refused_even_if_somebody_read_it_first(
    cache: FileCache, disk: CountingDisk, tmp_path: Path
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"short")
    cache.read(path, 0, 20)

    with pytest.raises(WrongFileError):
        cache.write(path, 0, b"abc", file_bytes=100)

    assert path.read_bytes() == b"short"
    cache.close()
    assert not disk.open_fds
