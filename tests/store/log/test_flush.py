"""Flush: the rounds by a fake clock, group commit, and what happens when the disk fails."""

import errno
import threading

import pytest

from orbitmq.errors import StoreFailedError, StoreIOError
from orbitmq.files.disk import Disk
from orbitmq.message import AppendStatus
from orbitmq.store.log.flush import AsyncFlush, CommitRounds, GroupCommit
from orbitmq.store.service import PageSchedule
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.testing.fake_disk import FaultyDisk, ForwardingDisk
from store_parts import LogParts, small_config, until

SEGMENT = 256 * 1024
PAGE = 4096


class CountingDisk(ForwardingDisk):
    """Counts the syncs of commit log segments and can hold them up."""

    def __init__(self) -> None:
        super().__init__(Disk())
        self.syncs = 0
        self.started, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.before_sync = lambda: None

    def sync_data(self, path, fd, position=0, length=0):
        if length:
            self.syncs += 1
            self.started.set()
            self.before_sync()
            assert self.go_on.wait(20)
        super().sync_data(path, fd, position, length)


@pytest.fixture
def disk():
    return CountingDisk()


@pytest.fixture
def parts(tmp_path, disk):
    with LogParts(small_config(tmp_path, segment_bytes=SEGMENT), disk=disk) as opened:
        yield opened


def append_pages(parts: LogParts, pages: float) -> None:
    overhead = 150
    while parts.log.written_offset < pages * PAGE:
        left = int(pages * PAGE) - parts.log.written_offset
        parts.log.append_one(make_request(0, body=b"x" * max(0, min(1000, left - overhead))))


def async_flush(parts: LogParts) -> AsyncFlush:
    schedule = PageSchedule(
        interval_ms=500,
        least_pages=4,
        thorough_ms=10_000,
        now_ms=parts.clock.monotonic_ms(),
    )
    return AsyncFlush(parts.flusher, schedule, parts.clock)


def test_async_flush_follows_interval_pages_and_thorough_interval(parts, disk):
    flush = async_flush(parts)
    append_pages(parts, 4.2)

    flush.tick()
    parts.clock.advance(499)
    flush.tick()
    assert parts.log.flushed_offset == 0  # 500 ms have not passed

    parts.clock.advance(1)
    flush.tick()
    flushed = parts.log.written_offset
    assert parts.log.flushed_offset == flushed  # four pages were dirty

    parts.log.append_one(make_request(1))
    for _ in range(18):
        parts.clock.advance(500)
        flush.tick()
    assert parts.log.flushed_offset == flushed  # less than four pages, up to 9.5 s

    parts.clock.advance(500)
    flush.tick()
    assert parts.log.flushed_offset == parts.log.written_offset  # thorough after 10 s
    assert disk.syncs == 2


def test_flush_crosses_the_end_of_a_segment(parts):
    append_pages(parts, SEGMENT / PAGE + 3)

    assert parts.flusher.flush(0) == parts.log.written_offset
    assert parts.flusher.flushed_store_ms == parts.log.last_store_ms


@pytest.mark.feature("F60")
def test_commit_rounds_follow_interval_pages_and_thorough_interval(tmp_path):
    config = small_config(tmp_path, segment_bytes=SEGMENT, transient_pool=True)
    with LogParts(config) as parts:
        now_ms = parts.clock.monotonic_ms()
        schedule = PageSchedule(interval_ms=200, least_pages=4, thorough_ms=200, now_ms=now_ms)
        rounds = CommitRounds(parts.flusher, schedule, parts.clock)

        result = parts.log.append_one(make_request(0))
        parts.clock.advance(199)
        rounds.tick()
        assert parts.log.read(result.log_offset, result.size) is None  # in private memory only
        assert parts.segments.path_for(0).read_bytes()[:8] == bytes(8)

        parts.clock.advance(1)
        rounds.tick()
        assert bytes(parts.log.read(result.log_offset, result.size)) != b""
        assert parts.log.readable_end == parts.log.written_offset
        assert parts.log.flushed_offset == 0
        assert parts.flusher.flush(0) == parts.log.written_offset


def test_less_than_four_pages_wait_for_the_thorough_interval_of_the_commit_thread(tmp_path):
    config = small_config(tmp_path, segment_bytes=SEGMENT, transient_pool=True)
    with LogParts(config) as parts:
        schedule = PageSchedule(interval_ms=200, least_pages=4, thorough_ms=1_000, now_ms=0)
        rounds = CommitRounds(parts.flusher, schedule, parts.clock)
        append_pages(parts, 4.5)
        parts.clock.advance(200)
        rounds.tick()
        first = parts.log.readable_end
        assert first == parts.log.written_offset

        parts.log.append_one(make_request(0))
        for _ in range(4):
            parts.clock.advance(200)
            rounds.tick()
            assert parts.log.readable_end == first
        parts.clock.advance(200)
        rounds.tick()
        assert parts.log.readable_end == parts.log.written_offset


@pytest.mark.feature("F60")
def test_five_buffers_and_then_appends_are_refused_as_busy(tmp_path):
    with LogParts(small_config(tmp_path, transient_pool=True)) as parts:
        request = make_request(0, body_bytes=900)
        results = [parts.log.append_one(request) for _ in range(100)]

        result = next(result for result in results if not result.status.stored)
        assert result.status is AppendStatus.OS_PAGE_CACHE_BUSY
        assert "transient buffers" in result.reason
        assert len(parts.segments) == 5
        assert parts.flusher.commit()
        assert parts.log.append_one(request).status.stored


@pytest.mark.feature("F60")
def test_what_was_not_committed_is_lost_with_the_process(tmp_path):
    config = small_config(tmp_path, transient_pool=True)
    parts = LogParts(config)
    kept = parts.log.append_one(make_request(0))
    parts.flusher.commit()
    parts.log.append_one(make_request(1))
    files = parts.segments.path_for(0).read_bytes()  # what a killed process leaves behind

    assert files[: kept.size] != bytes(kept.size)
    assert files[kept.size :] == bytes(len(files) - kept.size)
    parts.close()


@pytest.mark.feature("F64")
def test_a_sync_append_returns_only_after_its_bytes_are_on_disk(parts, disk):
    group = GroupCommit(parts.flusher, parts.clock, 5_000)
    result = parts.log.append_one(make_request(0))
    seen_before: list[int] = []
    disk.before_sync = lambda: seen_before.append(parts.log.flushed_offset)

    status, reason = group.wait(result.log_offset + result.size)

    assert (status, reason) == (AppendStatus.PUT_OK, "")
    assert seen_before == [0]
    assert parts.log.flushed_offset == result.log_offset + result.size


@pytest.mark.feature("F64")
def test_many_appends_share_one_sync(parts, disk):
    group = GroupCommit(parts.flusher, parts.clock, 5_000)
    answers: list[AppendStatus] = []

    def put(number: int) -> None:
        result = parts.log.append_one(make_request(number))
        answers.append(group.wait(result.log_offset + result.size)[0])

    disk.go_on.clear()
    leader = threading.Thread(target=put, args=(0,))
    leader.start()
    assert disk.started.wait(20)  # the first sync is under way
    followers = [threading.Thread(target=put, args=(n,)) for n in range(1, 9)]
    for follower in followers:
        follower.start()
    until(lambda: len(group._arriving) == 8)
    disk.go_on.set()
    for thread in (leader, *followers):
        thread.join(20)

    assert answers == [AppendStatus.PUT_OK] * 9
    assert disk.syncs == 2  # one for the leader, one for the eight that came meanwhile


@pytest.mark.feature("F64")
def test_a_stuck_disk_gives_a_flush_timeout(parts, disk):
    clock = parts.clock
    group = GroupCommit(parts.flusher, clock, 5_000)
    answers: dict[str, tuple[AppendStatus, str]] = {}

    def put(name: str) -> None:
        result = parts.log.append_one(make_request(0))
        answers[name] = group.wait(result.log_offset + result.size)

    disk.go_on.clear()
    leader = threading.Thread(target=put, args=("leader",))
    leader.start()
    assert disk.started.wait(20)
    follower = threading.Thread(target=put, args=("follower",))
    follower.start()
    until(lambda: group._arriving)
    clock.advance(5_001)
    follower.join(20)  # it does not wait for the disk any longer
    assert answers["follower"][0] is AppendStatus.FLUSH_DISK_TIMEOUT
    assert "syncFlushTimeout" in answers["follower"][1]
    disk.go_on.set()
    leader.join(20)

    assert answers["leader"][0] is AppendStatus.FLUSH_DISK_TIMEOUT
    result = parts.log.append_one(make_request(1))
    assert group.wait(result.log_offset + result.size)[0] is AppendStatus.PUT_OK


def test_after_a_failed_sync_nothing_is_synced_and_appends_stop(tmp_path):
    disk = FaultyDisk()
    with LogParts(small_config(tmp_path), disk=disk) as parts:
        parts.log.append_one(make_request(0))
        fault = disk.fail("sync_data", "*/commitlog/*", errno.EIO)

        with pytest.raises(StoreIOError, match="00000000000000000000: sync failed"):
            parts.flusher.flush(0)

        refused = parts.log.append_one(make_request(1))
        assert refused.status is AppendStatus.SERVICE_NOT_AVAILABLE
        assert "00000000000000000000: sync failed" in refused.reason
        with pytest.raises(StoreFailedError):  # although the disk would work again
            parts.flusher.flush(0)
        assert fault.seen == 1
        assert parts.log.flushed_offset == 0


def test_who_waits_for_a_failed_sync_never_hears_ok(tmp_path):
    disk = FaultyDisk()
    with LogParts(small_config(tmp_path), disk=disk) as parts:
        group = GroupCommit(parts.flusher, FakeClock(), 5_000)
        result = parts.log.append_one(make_request(0))
        disk.fail("sync_data", "*/commitlog/*", errno.EIO)

        for _ in range(2):
            status, reason = group.wait(result.log_offset + result.size)
            assert status is AppendStatus.FLUSH_DISK_TIMEOUT
            assert "sync failed" in reason


def test_a_failed_commit_stops_appends_too(tmp_path):
    disk = FaultyDisk()
    with LogParts(small_config(tmp_path, transient_pool=True), disk=disk) as parts:
        parts.log.append_one(make_request(0))
        disk.fail("write_at", "*/commitlog/*", errno.EIO)

        with pytest.raises(StoreIOError):
            parts.flusher.commit()

        assert not parts.flags.writable
