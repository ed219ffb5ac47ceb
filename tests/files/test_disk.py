"""The real disk: what it does, and the typed error for everything that it cannot do."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.errors import NoPermissionError, NoSpaceError, StoreError, StoreIOError, WrongFileError
from orbitmq.files.disk import Disk, is_missing
from orbitmq.units import MiB

IS_ROOT = os.geteuid() == 0


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for one MiB."""
    if not IS_ROOT:
        pytest.skip("mounting needs root; FaultyDisk covers the full disk elsewhere")
    mount_point = tmp_path / "small"
    mount_point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount_point)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("no mounts here")
    yield mount_point
    # Lazily: a test that failed may have left a file open.
    subprocess.run(["umount", "--lazy", str(mount_point)], check=True)


def test_what_is_written_is_read_back_and_the_length_is_known(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "file"
    fd = disk.open(path, create=True)

    disk.write_at(path, fd, 10, memoryview(b"abc"))

    assert disk.read_at(path, fd, 9, 100) == b"\0abc"
    assert disk.length(path, fd) == 13
    disk.truncate(path, fd, 20)
    assert disk.read_at(path, fd, 13, 100) == bytes(7)
    disk.close(path, fd)


@pytest.mark.parametrize("keep_blocks", [False, True])
@pytest.mark.parametrize("where", ["tmp_path", "small_disk"])
def test_zeroing_a_range_keeps_the_length_and_the_rest(
    disk: Disk, keep_blocks: bool, where: str, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(where) / "file"
    path.write_bytes(b"x" * 300_000)
    fd = disk.open(path)

    disk.zero(path, fd, 1000, 299_000 - 1000, keep_blocks=keep_blocks)
    disk.zero(path, fd, 0, 0)

    assert path.read_bytes() == b"x" * 1000 + bytes(298_000) + b"x" * 1000
    disk.close(path, fd)


def test_zeroing_writes_zeros_where_the_file_system_cannot_punch(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoFallocate:
        @staticmethod
        def fallocate(*_: int) -> int:
            ctypes_set_errno(errno.EOPNOTSUPP)
            return -1

    from ctypes import set_errno as ctypes_set_errno

    monkeypatch.setattr("orbitmq.files.disk._LIBC", NoFallocate)
    path = tmp_path / "file"
    path.write_bytes(b"x" * (2 * MiB + 10))
    fd = disk.open(path)

    disk.zero(path, fd, 5, 2 * MiB)

    assert path.read_bytes() == b"x" * 5 + bytes(2 * MiB) + b"x" * 5
    disk.close(path, fd)


def test_syncs_and_names_work_on_a_real_file_system(disk: Disk, tmp_path: Path) -> None:
    disk.make_directory(tmp_path / "a" / "b")
    disk.make_directory(tmp_path / "a" / "b")
    path = tmp_path / "a" / "b" / "file"
    fd = disk.open(path, create=True)
    disk.allocate(path, fd, 8192)
    view = disk.map(path, fd, 8192, writable=True)
    view[0:3] = b"abc"

    disk.sync_data(path, fd, 0, 3)
    disk.sync_directory(path.parent)
    disk.sync_file_system(path)
    view.close()
    disk.close(path, fd)
    disk.rename(path, path.with_name("other"))

    assert path.with_name("other").read_bytes()[:3] == b"abc"
    disk.remove(path.with_name("other"))
    disk.remove_directory(path.parent)
    assert not path.parent.exists()


@pytest.mark.feature("F56")
def test_a_mapping_off_a_page_boundary_is_refused_with_what_to_ask_for(
    disk: Disk, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8192) + b"there")
    fd = disk.open(path)

    with pytest.raises(StoreError, match=r"offset 5000.*4096-byte page.*offset 4096 and skip") as e:
        disk.map(path, fd, 100, writable=False, offset=5000)

    assert e.value.path == path
    with disk.map(path, fd, 5, writable=False, offset=8192) as mapping:
        assert mapping[:] == b"there"
    disk.close(path, fd)


def test_a_missing_file_is_told_apart(disk: Disk, tmp_path: Path) -> None:
    with pytest.raises(StoreIOError, match="open failed: No such file") as caught:
        disk.open(tmp_path / "none")

    assert is_missing(caught.value)
    assert caught.value.path == tmp_path / "none"


def test_a_directory_in_place_of_a_file_is_a_wrong_file(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").touch()

    with pytest.raises(WrongFileError, match=r"Is a directory.*Move away what lies there"):
        disk.open(tmp_path / "dir")
    with pytest.raises(WrongFileError):
        disk.make_directory(tmp_path / "file")
    with pytest.raises(WrongFileError):
        disk.make_directory(tmp_path / "file" / "below")


def test_a_full_disk_is_a_no_space_error_with_a_next_step(disk: Disk, small_disk: Path) -> None:
    path = small_disk / "file"
    fd = disk.open(path, create=True)

    with pytest.raises(NoSpaceError, match="Free space on that disk") as caught:
        disk.write_at(path, fd, 0, bytes(2 * MiB))
    assert caught.value.path == path
    with pytest.raises(NoSpaceError, match="allocate failed"):
        disk.allocate(path, fd, 4 * MiB)
    disk.close(path, fd)


@pytest.mark.skipif(IS_ROOT, reason="permissions do not stop root")
def test_a_file_that_may_not_be_used_is_a_permission_error(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch(mode=0)

    with pytest.raises(NoPermissionError, match="Give this user"):
        disk.open(path)


@pytest.mark.skipif(not IS_ROOT, reason="mounting needs root")
def test_a_read_only_file_system_is_a_permission_error(disk: Disk, small_disk: Path) -> None:
    command = ["mount", "-o", "remount,ro", str(small_disk)]
    subprocess.run(command, check=True)

    with pytest.raises(NoPermissionError, match="Read-only file system"):
        disk.open(small_disk / "file", create=True)


def test_a_descriptor_that_is_gone_is_an_io_error_with_the_path(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "file"
    fd = disk.open(path, create=True)
    disk.close(path, fd)

    for call in (
        lambda: disk.read_at(path, fd, 0, 1),
        lambda: disk.write_at(path, fd, 0, b"x"),
        lambda: disk.sync_data(path, fd),
        lambda: disk.length(path, fd),
        lambda: disk.truncate(path, fd, 1),
        lambda: disk.zero(path, fd, 0, 1),
        lambda: disk.close(path, fd),
    ):
        with pytest.raises(StoreIOError, match="Bad file descriptor") as caught:
            call()
        assert caught.value.path == path
        assert caught.value.errno == errno.EBADF


def test_a_file_that_takes_no_bytes_does_not_loop_for_ever(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = disk.open(tmp_path / "file", create=True)
    monkeypatch.setattr("os.pwrite", lambda *_: 0)

    with pytest.raises(StoreIOError, match="takes no more bytes"):
        disk.write_at(tmp_path / "file", fd, 0, b"abc")
    disk.close(tmp_path / "file", fd)


def test_short_writes_are_continued(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr("os.pwrite", lambda fd, data, at: real(fd, bytes(data)[:3], at))
    fd = disk.open(tmp_path / "file", create=True)

    disk.write_at(tmp_path / "file", fd, 0, b"0123456789")

    assert (tmp_path / "file").read_bytes() == b"0123456789"
    disk.close(tmp_path / "file", fd)


def test_two_directories_change_places_in_one_step(disk: Disk, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"was-{name}").touch()

    if not disk.exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system cannot")

    assert [path.name for path in (tmp_path / "a").iterdir()] == ["was-b"]
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["was-a"]
    with pytest.raises(StoreIOError) as raised:
        disk.exchange(tmp_path / "a", tmp_path / "missing")
    assert is_missing(raised.value)
