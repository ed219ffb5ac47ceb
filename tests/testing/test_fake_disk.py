"""The disk that fails on request: where it is told to, and nowhere else."""

import errno
import inspect
from pathlib import Path

import pytest

from orbitmq.errors import NoPermissionError, NoSpaceError, StoreError, StoreIOError
from orbitmq.files.disk import Disk
from orbitmq.testing.fake_disk import FaultyDisk, ForwardingDisk, PowerCutDisk

OPERATIONS = [name for name in vars(Disk) if not name.startswith("_")]


def use_everything(disk: Disk, root: Path) -> None:
    """Call every operation once."""
    directory, path = root / "made", root / "made" / "file"
    disk.make_directory(directory)
    fd = disk.open(path, create=True)
    disk.truncate(path, fd, 8192)
    disk.allocate(path, fd, 8192)
    disk.write_at(path, fd, 3, b"abc")
    disk.zero(path, fd, 4, 1)
    assert disk.read_at(path, fd, 2, 5) == b"\0a\0c\0"
    assert disk.length(path, fd) == 8192
    view = disk.map(path, fd, 8192, writable=True)
    view[8000] = 7
    view.close()
    disk.sync_data(path, fd)
    disk.sync_directory(directory)
    disk.sync_file_system(root)
    disk.close(path, fd)
    disk.rename(path, directory / "other")
    assert (directory / "other").read_bytes()[8000] == 7
    disk.exchange(directory / "other", directory / "other")
    disk.remove(directory / "other")
    disk.remove_directory(directory)


@pytest.mark.parametrize("kind", ["forwarding", "faulty", "power cut"])
def test_a_fake_does_to_the_files_what_the_real_disk_does(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    disks = {
        "forwarding": ForwardingDisk(),
        "faulty": FaultyDisk(),
        "power cut": PowerCutDisk(root, shadow=tmp_path / "shadow", real_sync=True),
    }

    use_everything(disks[kind], root)

    assert list(root.iterdir()) == []


@pytest.mark.parametrize("fake", [ForwardingDisk, FaultyDisk])
def test_a_fake_has_every_operation_with_the_same_arguments(fake: type[Disk]) -> None:
    for name in OPERATIONS:
        assert name in vars(fake)
        assert inspect.signature(getattr(fake, name)) == inspect.signature(getattr(Disk, name))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_can_be_made_to_fail(operation: str, tmp_path: Path) -> None:
    disk = FaultyDisk()
    fault = disk.fail(operation, errno=errno.EIO)

    with pytest.raises(StoreIOError, match="Input/output error"):
        use_everything(disk, tmp_path)

    assert fault.hits == 1


def test_a_rule_counts_only_calls_that_match_it(tmp_path: Path) -> None:
    disk = FaultyDisk()
    fault = disk.fail("open", "*.log", errno.EACCES, nth=2, times=2)
    outcomes = []
    for name in ("a.log", "b.txt", "b.log", "c.log", "d.log"):
        try:
            disk.close(tmp_path / name, disk.open(tmp_path / name, create=True))
            outcomes.append(name)
        except NoPermissionError:
            pass

    assert outcomes == ["a.log", "b.txt", "d.log"]
    assert fault.calls == [str(tmp_path / "b.log"), str(tmp_path / "c.log")]


def test_a_lasting_fault_ends_when_the_disk_is_healed(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.fail("*", "*/commitlog/*", errno.ENOSPC, times=None)
    path = tmp_path / "commitlog" / "0"
    path.parent.mkdir()

    for _ in range(3):
        with pytest.raises(NoSpaceError):
            disk.open(path, create=True)
    disk.heal()

    disk.close(path, disk.open(path, create=True))


def test_a_short_write_leaves_its_first_bytes(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.fail("write_at", errno=errno.ENOSPC, written_bytes=4)
    fd = disk.open(tmp_path / "f", create=True)

    with pytest.raises(NoSpaceError):
        disk.write_at(tmp_path / "f", fd, 2, b"abcdefgh")

    assert (tmp_path / "f").read_bytes() == b"\0\0abcd"
    disk.close(tmp_path / "f", fd)


def test_an_operation_that_does_not_exist_is_a_mistake_of_the_test() -> None:
    with pytest.raises(ValueError, match="no operation"):
        FaultyDisk().fail("fsync")


def test_the_error_is_the_one_that_the_real_disk_would_raise(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.fail("open", errno=errno.ENOENT)
    errors: list[StoreError] = []
    for candidate in (Disk(), disk):
        with pytest.raises(StoreError) as caught:
            candidate.open(tmp_path / "none")
        errors.append(caught.value)

    assert type(errors[0]) is type(errors[1])
    assert str(errors[0]) == str(errors[1])
