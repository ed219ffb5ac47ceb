"""The checkpoint file of a running store."""

import os
import struct
from pathlib import Path

import pytest

from orbitmq.errors import StoreIOError
from orbitmq.files.disk import Disk
from orbitmq.format.checkpoint import Checkpoint, Extension, decode
from orbitmq.store.checkpoint import CheckpointFile
from orbitmq.testing.fake_disk import FaultyDisk


@pytest.mark.feature("F68")
def test_a_new_checkpoint_has_4096_bytes_with_the_five_numbers_in_front(tmp_path: Path) -> None:
    checkpoint = CheckpointFile(tmp_path / "checkpoint", Disk())
    assert checkpoint.load() is None

    checkpoint.update(physic_ms=1, logics_ms=2, index_ms=3)
    checkpoint.update(master_flushed_offset=4, confirm_offset=5)
    assert checkpoint.write()

    data = (tmp_path / "checkpoint").read_bytes()
    assert len(data) == 4096
    assert struct.unpack_from(">qqqqq", data) == (1, 2, 3, 4, 5)
    assert not any(data[40:])


def test_it_is_only_written_when_something_has_changed(tmp_path: Path) -> None:
    checkpoint = CheckpointFile(tmp_path / "checkpoint", Disk())
    checkpoint.update(physic_ms=1)
    assert checkpoint.write()

    assert not checkpoint.write()
    checkpoint.update(physic_ms=1)
    assert not checkpoint.write()
    checkpoint.update(physic_ms=2)
    assert checkpoint.write()


def test_values_and_extension_survive_and_a_foreign_writer_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoint = CheckpointFile(path, Disk())
    checkpoint.update(physic_ms=7, extension=Extension(3, 1000, 2000, 500))
    checkpoint.write()

    again = CheckpointFile(path, Disk())
    assert again.load() == Checkpoint(physic_ms=7, extension=Extension(3, 1000, 2000, 500))
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, struct.pack(">q", 8), 0)  # a Java broker ran in between
    os.close(fd)

    assert decode(path.read_bytes()).extension is None
    foreign = CheckpointFile(path, Disk())
    assert foreign.load() == Checkpoint(physic_ms=8)


def test_a_short_file_is_no_checkpoint_and_is_written_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"x" * 10)
    checkpoint = CheckpointFile(path, Disk())

    assert checkpoint.load() is None
    assert str(path) in caplog.text
    checkpoint.update(physic_ms=1)
    checkpoint.write()

    assert decode(path.read_bytes()).physic_ms == 1


def test_a_page_that_could_not_be_written_is_written_again(tmp_path: Path) -> None:
    path, disk = tmp_path / "checkpoint", FaultyDisk()
    checkpoint = CheckpointFile(path, disk)
    checkpoint.update(physic_ms=1)
    disk.fail("write_at")
    with pytest.raises(StoreIOError):
        checkpoint.write()

    assert checkpoint.write()

    assert decode(path.read_bytes()).physic_ms == 1
