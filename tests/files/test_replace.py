"""Replacing a file: old or new, never neither, never a mixture."""

import errno
from pathlib import Path

import pytest

from crash.cut_points import CuttingDisk
from orbitmq.errors import NoSpaceError, StoreError, WrongFileError
from orbitmq.files.disk import Disk
from orbitmq.files.replace import bak_path, read_whole, replace_file
from orbitmq.testing.fake_disk import FaultyDisk, PowerCutDisk
from orbitmq.testing.power_cut import NOTHING

OLD, NEW = b"old " * 3000, b"new " * 5000


def test_the_new_content_is_there_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "made" / "file"

    replace_file(Disk(), path, OLD)
    replace_file(Disk(), path, NEW)

    assert path.read_bytes() == NEW
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_the_version_before_is_kept_if_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "file"

    for content in (b"1", b"2", b"3"):
        replace_file(Disk(), path, content, keep_bak=True)

    assert path.read_bytes() == b"3"
    assert bak_path(path).read_bytes() == b"2"


def test_a_leftover_of_an_earlier_try_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file.tmp").write_bytes(b"x" * 100)

    replace_file(Disk(), tmp_path / "file", b"short")

    assert (tmp_path / "file").read_bytes() == b"short"


def test_a_missing_file_reads_as_none_and_a_directory_is_an_error(tmp_path: Path) -> None:
    assert read_whole(Disk(), tmp_path / "none") is None
    with pytest.raises(WrongFileError):
        read_whole(Disk(), tmp_path)


@pytest.mark.parametrize("keep_bak", [False, True])
@pytest.mark.parametrize(
    "operation", ["open", "truncate", "write_at", "sync_data", "rename", "sync_directory"]
)
def test_a_failure_leaves_a_whole_file(operation: str, keep_bak: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    disk = FaultyDisk()
    disk.fail(operation, errno=errno.ENOSPC, written_bytes=7)

    with pytest.raises(NoSpaceError):
        replace_file(disk, path, NEW, keep_bak=keep_bak)

    # Without a .bak the last directory sync is the only one: the new file has its name already.
    is_new = operation == "sync_directory" and not keep_bak
    found = [file.read_bytes() for file in (path, bak_path(path)) if file.exists()]
    assert found == [NEW if is_new else OLD]


@pytest.mark.crash
@pytest.mark.parametrize("keep_bak", [False, True])
@pytest.mark.parametrize("steps", range(12))
def test_a_power_cut_leaves_a_whole_file(keep_bak: bool, steps: int, tmp_path: Path) -> None:
    for seed in range(8):
        work = tmp_path / str(seed)
        (work / "root").mkdir(parents=True)
        path = work / "root" / "file"
        path.write_bytes(OLD)
        disk = FaultyDisk(PowerCutDisk(work / "root", shadow=work / "shadow"))
        disk.fail("*", nth=steps + 1, times=None)
        try:
            replace_file(disk, path, NEW, keep_bak=keep_bak)
            finished = True
        except StoreError:
            finished = False
        assert isinstance(disk.inner, PowerCutDisk)

        after = disk.inner.power_cut(work / "after", seed)

        found = [after / "file", after / "file.bak"] if keep_bak else [after / "file"]
        contents = [file.read_bytes() for file in found if file.exists()]
        assert contents
        assert set(contents) <= {OLD, NEW}
        if finished:
            assert contents[0] == NEW


def test_a_file_in_a_new_directory_survives_a_power_cut(tmp_path: Path) -> None:
    disk = PowerCutDisk(tmp_path / "root", shadow=tmp_path / "shadow")

    replace_file(disk, tmp_path / "root" / "new" / "deep" / "file", NEW)

    after = disk.power_cut(tmp_path / "after", survival=NOTHING)
    assert (after / "new" / "deep" / "file").read_bytes() == NEW


@pytest.mark.parametrize("keep_bak", [False, True])
def test_a_power_cut_before_any_step_leaves_a_whole_file(keep_bak: bool, tmp_path: Path) -> None:
    path = tmp_path / "root" / "file"
    disk = CuttingDisk(path.parent, tmp_path)
    replace_file(disk, path, OLD, keep_bak=keep_bak)
    disk.armed = True

    replace_file(disk, path, NEW, keep_bak=keep_bak)
    disk.keep("the end")

    assert len(disk.cuts) >= 4
    for cut in disk.cuts:
        content = cut.image.get("file", cut.image.get("file.bak"))
        assert content in (OLD, NEW), cut.label
    assert disk.cuts[-1].image["file"] == NEW
