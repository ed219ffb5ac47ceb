"""One segment: allocation, mapping, positions and who may still use it."""

import errno
import mmap

import pytest

from orbitmq.errors import NoSpaceError, WrongFileError
from orbitmq.files.disk import Disk
from orbitmq.store.log.mapped_file import MappedFile
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.testing.fake_disk import FaultyDisk

SIZE = 64 * 1024


@pytest.fixture
def path(tmp_path):
    return tmp_path / "commitlog" / "00000000000000065536"


@pytest.fixture
def segment(path):
    created = MappedFile.create(Disk(), path, 65536, SIZE)
    yield created
    created.close()


def write(segment: MappedFile, data: bytes) -> None:
    segment.target[segment.written : segment.written + len(data)] = data
    segment.written += len(data)


def test_a_new_segment_has_its_exact_size_its_blocks_and_zeros(segment, path):
    status = path.stat()

    assert status.st_size == SIZE
    assert status.st_blocks * 512 >= SIZE
    assert bytes(segment.view) == bytes(SIZE)
    assert (segment.written, segment.committed, segment.flushed) == (0, 0, 0)


def test_a_full_disk_is_an_error_and_leaves_no_file(path):
    disk = FaultyDisk()
    disk.fail("allocate", errno=errno.ENOSPC)

    with pytest.raises(NoSpaceError, match="Free space"):
        MappedFile.create(disk, path, 0, SIZE)

    assert not path.exists()
    MappedFile.create(disk, path, 0, SIZE).close()


def test_a_file_in_the_way_is_not_overwritten(path):
    path.parent.mkdir()
    path.write_bytes(b"something")

    with pytest.raises(WrongFileError):
        MappedFile.create(Disk(), path, 0, SIZE)

    assert path.read_bytes() == b"something"


def test_a_segment_of_another_length_is_not_mapped(segment, path):
    loaded = MappedFile(Disk(), path, 65536, SIZE * 2)

    with pytest.raises(WrongFileError, match="mappedFileSizeCommitLog"):
        _ = loaded.array


def test_warming_brings_every_page_into_memory_and_leaves_zeros(segment):
    segment.warm(sync_every_pages=4)

    assert segment.resident_pages() == SIZE // mmap.PAGESIZE
    assert bytes(segment.view) == bytes(SIZE)
    segment.read_ahead(False)
    write(segment, b"x" * SIZE)
    assert segment.flush() == SIZE  # lets the memory go


@pytest.mark.feature("F61")
@pytest.mark.parametrize(
    ("written", "least_pages", "flushed"),
    [
        (0, 0, 0),
        (100, 0, 100),
        (100, 1, 0),
        (4 * 4096 - 1, 4, 0),
        (4 * 4096, 4, 4 * 4096),
        (SIZE, 100, SIZE),
    ],
    ids=["nothing", "thorough", "less than a page", "almost", "four pages", "full"],
)
def test_flush_follows_the_number_of_dirty_pages(segment, written, least_pages, flushed):
    write(segment, b"x" * written)

    assert segment.flush(least_pages) == flushed
    assert segment.flushed == flushed


@pytest.mark.feature("F61")
def test_pages_are_counted_by_boundaries_that_were_crossed(segment):
    write(segment, b"x" * 4000)
    segment.flush(0)
    write(segment, b"x" * 200)

    assert segment.flush(1) == 4200  # one boundary lies between 4000 and 4200
    write(segment, b"x" * 3000)
    assert segment.flush(1) == 4200


def test_readers_see_only_what_was_committed_while_a_buffer_is_attached(segment, path):
    segment.buffer = mmap.mmap(-1, SIZE)
    write(segment, b"x" * 5000)

    assert segment.slice(0, 5000) is None
    assert segment.commit(4) == 0
    assert path.read_bytes()[:5000] == bytes(5000)
    assert segment.commit(0) == 5000
    assert bytes(segment.slice(0, 5000)) == b"x" * 5000
    assert segment.detach_buffer() is None
    segment.buffer.close()


def test_stale_bytes_behind_a_blank_in_a_buffer_do_not_reach_the_file(segment):
    segment.buffer = mmap.mmap(-1, SIZE)
    segment.buffer[:] = b"s" * SIZE
    write(segment, b"r" * 100)
    segment.data_end, segment.written = 108, SIZE

    assert segment.commit() == SIZE
    buffer = segment.detach_buffer()

    assert buffer is not None
    assert bytes(segment.slice(0, SIZE)) == b"r" * 100 + b"s" * 8 + bytes(SIZE - 108)
    buffer.close()


@pytest.mark.feature("F63")
def test_a_segment_that_nobody_holds_is_destroyed_at_once(segment, path):
    assert segment.destroy(FakeClock(), 120_000)
    assert not path.exists()
    assert segment.destroy(FakeClock(), 120_000)


@pytest.mark.feature("F63")
def test_a_held_segment_stays_until_it_is_released(segment, path):
    clock = FakeClock()
    assert segment.hold()

    assert not segment.destroy(clock, 120_000)
    assert path.exists()
    assert not segment.hold()  # no new readers
    segment.release()
    assert segment.is_closed
    assert segment.destroy(clock, 120_000)
    assert not path.exists()


@pytest.mark.feature("F63")
def test_a_segment_held_for_too_long_is_taken_away(segment, path):
    clock = FakeClock()
    segment.hold()
    assert not segment.destroy(clock, 120_000)

    clock.advance(119_999)
    assert not segment.destroy(clock, 120_000)
    clock.advance(1)
    assert segment.destroy(clock, 120_000)
    assert not path.exists()


def test_a_view_that_was_handed_out_outlives_the_file(segment, path):
    write(segment, b"still here")
    view = segment.slice(0, 10)

    assert segment.destroy(FakeClock(), 0)

    assert bytes(view) == b"still here"
    assert segment.slice(0, 10) is None


def test_old_segments_are_mapped_when_they_are_first_read(segment, path):
    write(segment, b"abc")
    loaded = MappedFile(Disk(), path, 65536, SIZE)

    assert loaded.written == SIZE
    assert bytes(loaded.slice(0, 3)) == b"abc"
    assert not loaded.array.flags.writeable
    loaded.writable_mapping()[0:1] = b"A"
    assert bytes(segment.slice(0, 3)) == b"Abc"
    loaded.close()
