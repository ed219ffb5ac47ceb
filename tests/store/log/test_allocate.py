"""Segments that are preallocated for the appender."""

import errno

import pytest

from orbitmq.message import AppendStatus
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_disk import FaultyDisk
from store_parts import SMALL_SEGMENT, LogParts, small_config


def names(parts: LogParts) -> list[int]:
    return sorted(int(path.name) for path in (parts.config.root / "commitlog").iterdir())


@pytest.mark.feature("F58")
def test_both_successors_exist_before_a_segment_is_full(tmp_path):
    with LogParts(small_config(tmp_path)) as parts:
        parts.log.append_one(make_request(0))
        parts.log.allocator.make_wanted()

        assert names(parts) == [0, SMALL_SEGMENT, 2 * SMALL_SEGMENT]
        while parts.log.written_offset < SMALL_SEGMENT:
            parts.log.append_one(make_request(0, body_bytes=500))
        parts.log.allocator.make_wanted()
        assert names(parts) == [n * SMALL_SEGMENT for n in range(4)]


@pytest.mark.feature("F58")
def test_a_thread_makes_them_and_unused_ones_go_at_close(tmp_path):
    parts = LogParts(small_config(tmp_path))
    parts.log.allocator.start()
    results = [parts.log.append_one(make_request(n, body_bytes=500)) for n in range(40)]
    used = results[-1].log_offset // SMALL_SEGMENT + 1

    parts.close()

    assert {result.status for result in results} == {AppendStatus.PUT_OK}
    assert names(parts) == [n * SMALL_SEGMENT for n in range(used)]


def test_a_full_disk_while_working_ahead_hurts_nobody(tmp_path):
    disk = FaultyDisk()
    with LogParts(small_config(tmp_path), disk=disk) as parts:
        parts.log.append_one(make_request(0))
        disk.fail("allocate", "*", errno.ENOSPC, times=2)
        parts.log.allocator.make_wanted()
        assert names(parts) == [0]

        before = parts.log.written_offset
        while (result := parts.log.append_one(make_request(0, body_bytes=500))).status.stored:
            before = parts.log.written_offset

        assert result.status is AppendStatus.CREATE_MAPPED_FILE_FAILED
        assert "00000000000000004096" in result.reason
        assert "Free space" in result.reason
        assert parts.log.written_offset == before  # no blank: a smaller message still fits
        assert parts.log.append_one(make_request(0, body=b"")).status.stored
        disk.heal()
        assert parts.log.append_one(make_request(0, body_bytes=500)).log_offset == SMALL_SEGMENT


def test_no_segment_is_made_behind_one_that_could_not_be_made(tmp_path):
    disk = FaultyDisk()
    with LogParts(small_config(tmp_path), disk=disk) as parts:
        parts.log.append_one(make_request(0))
        disk.fail("allocate", "*", errno.ENOSPC)

        for _ in range(3):
            parts.log.allocator.make_wanted()

        assert names(parts) == [0]  # the appender asks for both again when it needs the first
