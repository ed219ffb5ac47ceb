"""A disk that fails: each time a typed error or a status with path and next step, and a way back."""

import errno
import shutil

import pytest

from conf_store import ConfStore, request_of
from orbitmq.errors import (
    NoPermissionError,
    NoSpaceError,
    OrbitError,
    StateFileError,
    StoreError,
    StoreFailedError,
    StoreIOError,
    WrongFileError,
)
from orbitmq.message import AppendStatus
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.testing.fake_disk import FaultyDisk
from store_parts import until

SEGMENT = 16 * 1024


@pytest.fixture
def config(tmp_path):
    return make_config(tmp_path / "store")


def make_config(root, **changes) -> StoreConfig:
    sizes = {"segment_bytes": SEGMENT, "cq_file_bytes": 400, "index_slots": 50, "index_items": 100}
    return StoreConfig(**{"root": root, **sizes, **changes})


def fill(config: StoreConfig, count: int = 300) -> None:
    with MessageStore.open(config, background=False) as store:
        results = store.append_many([make_request(n, keys=f"k{n}") for n in range(count)])
        assert {result.status for result in results} == {AppendStatus.PUT_OK}


def require_whole(config: StoreConfig, count: int) -> None:
    """Open the store with a sound disk: all messages are there, and more can be appended."""
    with MessageStore.open(config, background=False) as store:
        assert sum(store.max_offset("TopicTest", queue_id) for queue_id in range(4)) == count
        for number in range(0, count, 29):
            assert len(store.query("TopicTest", f"k{number}", exact=True)) == 1
        assert store.append(make_request(count)).status is AppendStatus.PUT_OK
    assert not config.layout().abort.exists()


def require_helpful(error: OrbitError) -> None:
    assert isinstance(error, StoreError)
    assert str(error.path) in str(error)
    assert error.next_step
    assert error.exit_code == 4


def test_no_space_for_the_next_segment(config):
    disk = FaultyDisk()
    with MessageStore.open(config, disk=disk, background=False) as store:
        store.append(make_request(0, keys="k0"))
        fault = disk.fail("allocate", "*/commitlog/*", errno.ENOSPC, times=None)
        for stored in range(1, SEGMENT):
            result = store.append(make_request(stored, keys=f"k{stored}"))
            if not result.status.stored:
                break
            store.tick()

        assert result.status is AppendStatus.CREATE_MAPPED_FILE_FAILED
        assert "00000000000000016384" in result.reason
        assert "Free space" in result.reason
        assert fault.hits > 1
        assert len(list(config.layout().commit_log.iterdir())) == 1  # nothing half made
        disk.heal()
        assert store.append(make_request(stored, keys=f"k{stored}")).log_offset == SEGMENT
    require_whole(config, stored + 1)


@pytest.mark.parametrize("call", ["open", "map", "sync_data", "sync_directory"])
def test_any_failure_while_making_a_segment_leaves_no_trace(config, call):
    disk = FaultyDisk()
    with MessageStore.open(config, disk=disk, background=False) as store:
        disk.fail(call, "*commitlog*", errno.EIO)
        refused = store.append(make_request(0, keys="k0"))

        assert refused.status is AppendStatus.CREATE_MAPPED_FILE_FAILED
        assert "commitlog" in refused.reason
        assert list(config.layout().commit_log.iterdir()) == []
        assert store.append(make_request(0, keys="k0")).status is AppendStatus.PUT_OK
    require_whole(config, 1)


def test_a_failed_sync_of_the_log_stops_appends_and_leaves_the_abort_file(config):
    disk, clock = FaultyDisk(), FakeClock()
    store = MessageStore.open(config, disk=disk, clock=clock, background=False)
    store.append_many([make_request(n, keys=f"k{n}") for n in range(30)])
    disk.fail("sync_data", "*/commitlog/00000000000000000000", errno.EIO)
    clock.advance(10_000)

    with pytest.raises(StoreIOError) as raised:
        store.tick()

    require_helpful(raised.value)
    refused = store.append(make_request(30))
    assert refused.status is AppendStatus.SERVICE_NOT_AVAILABLE
    assert "00000000000000000000: sync failed" in refused.reason
    assert not store.statistics().writable
    with pytest.raises(StoreFailedError, match="not closed in order") as raised:
        store.close()
    require_helpful(raised.value)
    assert config.layout().abort.exists()
    require_whole(config, 30)  # the page cache had them


def test_a_segment_whose_end_cannot_be_written_stops_the_appends_and_leaves_no_segment(tmp_path):
    given = {"flushDiskType": "SYNC_FLUSH"}
    case = ConfStore(tmp_path, given)
    case.append(request_of(40 * 1024))
    case.disk.fail("write_at", "*/commitlog/00000000000000000000")

    refused = case.store.append(request_of(40 * 1024))
    again = case.store.append(request_of(200))

    assert {refused.status, again.status} == {AppendStatus.SERVICE_NOT_AVAILABLE}
    assert "could not be written" in refused.reason
    assert "00000000000000000000: write failed" in again.reason
    assert case.store.max_log_offset == 40 * 1024
    with pytest.raises(StoreFailedError):
        case.store.close()
    assert list(case.files("commitlog")) == ["commitlog/00000000000000000000"]
    with ConfStore(tmp_path, given) as case:
        assert case.append(request_of(40 * 1024))[0].log_offset == 64 * 1024


def test_of_a_batch_that_could_not_be_written_nothing_is_acknowledged(tmp_path):
    case = ConfStore(tmp_path, {"flushDiskType": "SYNC_FLUSH"})
    case.append(request_of(200))
    case.disk.fail("write_at", "*/commitlog/00000000000000000000")

    results = case.store.append_many([request_of(200) for _ in range(3)])

    assert [result.status for result in results] == [AppendStatus.SERVICE_NOT_AVAILABLE] * 3
    assert all("could not be written" in result.reason for result in results)
    with pytest.raises(StoreFailedError):
        case.store.close()


def test_a_failed_sync_in_a_background_thread_is_noticed_by_the_next_append(tmp_path):
    config = make_config(
        tmp_path, segment_bytes=64 * 1024 * 1024, flush_interval_ms=10, flush_least_pages=0
    )
    disk = FaultyDisk()
    store = MessageStore.open(config, disk=disk)
    store.append(make_request(0))
    disk.fail("sync_data", "*/commitlog/*", errno.EIO, times=None)
    until(lambda: not store.append(make_request(0)).status.stored)
    result = store.append(make_request(0))

    assert result.status is AppendStatus.SERVICE_NOT_AVAILABLE
    assert "sync failed" in result.reason
    with pytest.raises(StoreFailedError):
        store.close()


def test_sync_flush_never_acknowledges_what_could_not_be_synced(tmp_path):
    config = make_config(tmp_path, flush_mode=FlushMode.SYNC)
    disk = FaultyDisk()
    store = MessageStore.open(config, disk=disk)
    assert store.append(make_request(0, keys="k0")).status is AppendStatus.PUT_OK
    disk.fail("sync_data", "*/commitlog/00000000000000000000", errno.EIO)

    first = store.append(make_request(1, keys="k1"))
    many = store.append_many([make_request(n) for n in range(3)])

    assert first.status is AppendStatus.FLUSH_DISK_TIMEOUT
    assert "00000000000000000000: sync failed" in first.reason
    assert {result.status for result in many} == {AppendStatus.SERVICE_NOT_AVAILABLE}
    assert not store.wait_flushed()
    with pytest.raises(StoreFailedError):
        store.close()
    require_whole(config, 2)


def test_a_failed_sync_of_the_queues_stops_appends_and_the_last_snapshot_counts(config):
    disk = FaultyDisk()
    store = MessageStore.open(config, disk=disk, background=False)
    store.append_many([make_request(n, keys=f"k{n}") for n in range(60)])
    store.wait_dispatched()
    store.flush()
    store.append_many([make_request(n, keys=f"k{n}") for n in range(60, 90)])
    store.wait_dispatched()
    snapshot = config.layout().snapshot.read_bytes()
    disk.fail("sync_data", "*/consumequeue/*", errno.EIO)

    with pytest.raises(StoreIOError):
        store.flush()

    refused = store.append(make_request(90))
    assert refused.status is AppendStatus.SERVICE_NOT_AVAILABLE
    assert "consumequeue" in refused.reason
    with pytest.raises(StoreFailedError):
        store.close()
    assert config.layout().snapshot.read_bytes() == snapshot
    assert config.layout().abort.exists()
    require_whole(config, 90)


def test_no_space_for_queue_units_is_over_when_there_is_space_again(config):
    disk, clock = FaultyDisk(), FakeClock()
    with MessageStore.open(config, disk=disk, clock=clock, background=False) as store:
        store.append_many([make_request(n, keys=f"k{n}") for n in range(60)])
        store.wait_dispatched()
        disk.fail("write_at", "*/consumequeue/*", errno.ENOSPC, times=None)
        clock.advance(1_000)

        with pytest.raises(NoSpaceError) as raised:
            store.tick()

        require_helpful(raised.value)
        assert store.append(make_request(0)).status is AppendStatus.SERVICE_NOT_AVAILABLE
        disk.heal()
        clock.advance(1_000)
        store.tick()
        assert store.append(make_request(60, keys="k60")).status is AppendStatus.PUT_OK
    require_whole(config, 61)


@pytest.mark.parametrize(
    ("call", "glob"),
    [
        ("make_directory", "*/store"),
        ("open", "*/lock"),
        ("open", "*/commitlog/*"),
        ("open", "*/checkpoint"),
        ("open", "*/abort"),
    ],
)
def test_permission_denied_at_open_names_the_path_and_frees_the_lock(config, call, glob):
    fill(config)
    disk = FaultyDisk()
    disk.fail(call, glob, errno.EACCES)

    with pytest.raises(NoPermissionError, match="permission") as raised:
        MessageStore.open(config, disk=disk, background=False)

    require_helpful(raised.value)
    require_whole(config, 300)


def test_a_truncated_last_segment_is_made_whole_when_others_prove_its_size(config):
    fill(config)
    last = max(config.layout().commit_log.iterdir())
    with last.open("r+b") as file:
        file.truncate(SEGMENT - 1)

    require_whole(config, 300)
    assert last.stat().st_size == SEGMENT


def test_a_truncated_only_segment_is_an_error(config):
    fill(config, 10)
    (only,) = config.layout().commit_log.iterdir()
    with only.open("r+b") as file:
        file.truncate(SEGMENT - 1)

    with pytest.raises(WrongFileError) as raised:
        MessageStore.open(config, background=False)

    require_helpful(raised.value)
    assert raised.value.path == only
    assert only.stat().st_size == SEGMENT - 1


@pytest.mark.parametrize("segment_bytes", [SEGMENT // 2, SEGMENT * 2])
def test_another_segment_size_than_the_store_has_is_an_error(config, segment_bytes):
    fill(config)

    with pytest.raises(WrongFileError) as raised:
        MessageStore.open(make_config(config.root, segment_bytes=segment_bytes), background=False)

    require_helpful(raised.value)
    require_whole(config, 300)


@pytest.mark.parametrize(
    "name",
    [
        "commitlog/00000000000000000000",
        "checkpoint",
        "orbitmq.snapshot",
        "lock",
        "abort",
        "consumequeue/TopicTest/0/00000000000000001200",  # the last of its queue
    ],
)
def test_a_directory_in_place_of_a_file_is_an_error_that_names_it(config, name):
    fill(config)
    path = config.root / name
    if path.is_file():
        path.unlink()
    path.mkdir(parents=True)

    with pytest.raises(StoreError) as raised:
        MessageStore.open(config, background=False)

    require_helpful(raised.value)
    assert raised.value.path == path
    path.rmdir()
    if not name.startswith("commitlog"):
        require_whole(config, 300)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"topicConfigTable": 5}', '{"topicConfigTable": {"T": 7}}', "\x00\xff"],
    ids=["cut", "array", "no table", "no topic", "binary"],
)
def test_a_garbage_topic_table_is_an_error_that_names_it(config, text):
    fill(config)
    path = config.layout().config("topics.json")
    path.parent.mkdir()
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(StateFileError) as raised:
        MessageStore.open(config, background=False)

    require_helpful(raised.value)
    assert raised.value.path == path
    shutil.rmtree(path.parent)
    require_whole(config, 300)


@pytest.mark.parametrize(
    ("call", "glob"),
    [
        ("sync_data", "*/commitlog/*"),
        ("write_at", "*/consumequeue/*"),
        ("write_at", "*/index/*"),
        ("rename", "*orbitmq.snapshot*"),
        ("write_at", "*/checkpoint"),
        ("remove", "*/abort"),
    ],
)
def test_a_failure_while_closing_leaves_the_abort_file(config, call, glob):
    disk = FaultyDisk()
    store = MessageStore.open(config, disk=disk, background=False)
    store.append_many([make_request(n, keys=f"k{n}") for n in range(50)])
    fault = disk.fail(call, glob, errno.EIO, times=None)

    with pytest.raises(StoreFailedError) as raised:
        store.close()

    assert fault.hits
    require_helpful(raised.value)
    assert config.layout().abort.exists()
    require_whole(config, 50)


def test_an_exception_inside_the_with_block_is_not_replaced_by_that_of_close(config):
    disk = FaultyDisk()

    def use_and_fail() -> None:
        with MessageStore.open(config, disk=disk, background=False) as store:
            store.append(make_request(0))
            disk.fail("sync_data", "*/commitlog/*", errno.EIO)
            raise KeyError

    with pytest.raises(KeyError):
        use_and_fail()
    assert config.layout().abort.exists()
