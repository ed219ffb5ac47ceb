"""What is taken out of a store is kept first."""

import errno
from pathlib import Path

import pytest

from orbitmq.errors import StoreError, io_error
from orbitmq.files.disk import Disk, FilePath
from orbitmq.store.recovery.quarantine import Quarantine
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.testing.power_cut import NOTHING, PowerCutDisk
from quarantine_journal import read_journal


@pytest.fixture
def quarantine(tmp_path: Path) -> Quarantine:
    return Quarantine(tmp_path / "orbitmq.quarantine", tmp_path, Disk(), FakeClock())


def test_bytes_are_kept_under_their_log_offset(quarantine: Quarantine, tmp_path: Path) -> None:
    kept = quarantine.keep_bytes(tmp_path / "commitlog/0", 40, 1040, b"bad\0bytes\0\0", "damaged")

    assert kept == tmp_path / "orbitmq.quarantine" / "1040-9.bin"
    assert kept.read_bytes() == b"bad\0bytes"
    (entry,) = read_journal(quarantine.directory)
    assert entry["source"] == "commitlog/0"
    assert (entry["position"], entry["log_offset"], entry["length"]) == (40, 1040, 11)
    assert (entry["kept"], entry["cause"]) == ("1040-9.bin", "damaged")


def test_zeros_are_not_kept_and_leave_no_directory(quarantine: Quarantine, tmp_path: Path) -> None:
    assert quarantine.keep_bytes(tmp_path / "x", 0, 0, bytes(100), "nothing") is None
    assert not quarantine.directory.exists()


def test_the_same_place_kept_twice_does_not_overwrite(
    quarantine: Quarantine, tmp_path: Path
) -> None:
    first = quarantine.keep_bytes(tmp_path / "x", 0, 7, b"one", "first")
    again = quarantine.keep_bytes(tmp_path / "x", 0, 7, b"one", "same bytes")
    other = quarantine.keep_bytes(tmp_path / "x", 0, 7, b"two", "others")

    assert first == again
    assert other is not None
    assert other.name == "7-3.1.bin"
    assert len(read_journal(quarantine.directory)) == 3


def test_files_and_directories_keep_their_path(quarantine: Quarantine, tmp_path: Path) -> None:
    source = tmp_path / "consumequeue" / "T" / "0" / "00"
    source.parent.mkdir(parents=True)
    source.write_bytes(b"units")

    kept = quarantine.keep_path(tmp_path / "consumequeue", "rebuild-1", "made anew")

    assert not (tmp_path / "consumequeue").exists()
    assert (kept / "T/0/00").read_bytes() == b"units"
    assert kept == quarantine.directory / "rebuild-1" / "consumequeue"


def test_a_file_of_another_disk_is_copied(tmp_path: Path) -> None:
    class TwoDisks(Disk):
        def rename(self, source: FilePath, target: FilePath) -> None:
            raise io_error(source, "rename", OSError(errno.EXDEV, "other device"))

    far = tmp_path / "far" / "commitlog"
    far.mkdir(parents=True)
    (far / "00").write_bytes(b"segment")
    root = tmp_path / "root"
    quarantine = Quarantine(root / "q", root, TwoDisks(), FakeClock())

    kept = quarantine.keep_path(far / "00", "cut", "behind the end")

    assert kept.read_bytes() == b"segment"
    assert kept == root / "q" / "cut" / "commitlog" / "00"
    assert not (far / "00").exists()


def test_an_error_of_the_disk_comes_before_anything_is_overwritten(tmp_path: Path) -> None:
    class FullDisk(Disk):
        def write_at(self, path: FilePath, fd: int, position: int, data: object) -> None:
            raise io_error(path, "write", OSError(errno.ENOSPC, "no space"))

    quarantine = Quarantine(tmp_path / "q", tmp_path, FullDisk(), FakeClock())

    with pytest.raises(StoreError):
        quarantine.keep_bytes(tmp_path / "x", 0, 7, b"one", "first")


def test_what_is_kept_survives_a_power_cut_with_its_line_in_the_journal(tmp_path: Path) -> None:
    root = tmp_path / "store"
    disk = PowerCutDisk(root, shadow=tmp_path / "shadow")
    quarantine = Quarantine(root / "orbitmq.quarantine", root, disk, FakeClock())
    disk.make_directory(root / "commitlog")
    (root / "commitlog" / "0").write_bytes(b"whole")
    disk.sync_file_system(root)

    quarantine.keep_path(root / "commitlog" / "0", "cut-segments", "behind the end")
    after = disk.power_cut(tmp_path / "first", survival=NOTHING) / "orbitmq.quarantine"
    assert (after / "cut-segments/commitlog/0").read_bytes() == b"whole"
    assert [entry["cause"] for entry in read_journal(after)] == ["behind the end"]

    quarantine.keep_bytes(root / "commitlog" / "1", 0, 7, b"bytes", "damaged")
    after = disk.power_cut(tmp_path / "second", survival=NOTHING) / "orbitmq.quarantine"
    assert (after / "7-5.bin").read_bytes() == b"bytes"
    assert [entry["cause"] for entry in read_journal(after)] == ["behind the end", "damaged"]


def test_bytes_that_a_dead_process_wrote_and_did_not_sync_are_synced(tmp_path: Path) -> None:
    root = tmp_path / "store"
    disk = PowerCutDisk(root, shadow=tmp_path / "shadow")
    quarantine = Quarantine(root / "orbitmq.quarantine", root, disk, FakeClock())
    quarantine.directory.mkdir()
    (quarantine.directory / "7-5.bin").write_bytes(b"bytes")

    quarantine.keep_bytes(root / "commitlog" / "0", 0, 7, b"bytes", "damaged")

    after = disk.power_cut(tmp_path / "after", survival=NOTHING) / "orbitmq.quarantine"
    assert (after / "7-5.bin").read_bytes() == b"bytes"


def test_a_torn_line_of_the_journal_does_not_spoil_the_next_one(
    quarantine: Quarantine, tmp_path: Path
) -> None:
    quarantine.directory.mkdir()
    (quarantine.directory / "journal.jsonl").write_bytes(b'{"cause": "to\0\0\0')

    quarantine.keep_bytes(tmp_path / "x", 0, 7, b"bytes", "damaged")

    assert [entry["cause"] for entry in read_journal(quarantine.directory)] == ["damaged"]
