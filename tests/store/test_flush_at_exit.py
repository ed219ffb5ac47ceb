"""A clean stop leaves nothing unflushed; a disk that fails then is tried ten times, and the truth is told."""

import errno
from pathlib import Path

import pytest

from conf_store import ConfStore
from live_broker import LOOPBACK, LiveClient, run_live
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import StoreFailedError, StoreIOError
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_disk import PowerCutDisk
from orbitmq.testing.power_cut import NOTHING, power_cut

COUNT = 300
MODES = [
    pytest.param({}, id="async flush"),
    pytest.param({"transientStorePoolEnable": True}, id="pool"),
    pytest.param({"flushDiskType": "SYNC_FLUSH"}, id="sync flush"),
]
POOL = {"transientStorePoolEnable": True}

pytestmark = pytest.mark.feature("F117")


def fill(case: ConfStore) -> None:
    for number in range(COUNT):
        case.store.append(make_request(number, queue_id=0, body_bytes=500))


def stored(case: ConfStore) -> int:
    return case.store.max_offset("TopicTest", 0)


@pytest.mark.parametrize("background", [True, False], ids=["threads", "no threads"])
@pytest.mark.parametrize("given", MODES)
def test_after_a_clean_stop_a_power_cut_loses_nothing(tmp_path, given, background):
    root, shadow, after = tmp_path / "store", tmp_path / "shadow", tmp_path / "after"
    disk = PowerCutDisk(root, shadow=shadow)
    with ConfStore(tmp_path, given, inner_disk=disk, background=background) as case:
        fill(case)

    assert case.store.statistics().unflushed_bytes == 0
    power_cut(root, shadow, after / "store", seed=1, survival=NOTHING)
    assert not (after / "store" / "abort").exists()
    with ConfStore(after, given) as again:
        assert stored(again) == COUNT
        assert not again.store.recovery_report.records  # nothing had to be made from the log


@pytest.mark.parametrize("pool", ["true", "false"])
def test_a_broker_that_was_stopped_has_everything_on_disk(tmp_path, pool):
    file = tmp_path / "broker.conf"
    file.write_text(
        f"brokerIP1={LOOPBACK}\nbindAddress={LOOPBACK}\nlistenPort=0\n"
        f"mappedFileSizeCommitLog=262144\nmaxHashSlotNum=64\nmaxIndexNum=256\n"
        f"transientStorePoolEnable={pool}\nflushIntervalCommitLog=600000\n"
        "commitIntervalCommitLog=600000\nwakeCommitWhenPutMessage=false\n"
    )

    async def main() -> MessageStore:
        config = BrokerConfig.load(file, {"storePathRootDir": tmp_path / "store"})
        async with Broker(config) as broker:
            for _ in range(5):
                assert (await LiveClient(broker.address).send("T", b"x")).code == 0
            assert broker.context.store.statistics().unflushed_bytes > 0
            return broker.context.store

    store = run_live(main)

    assert store.statistics().unflushed_bytes == 0
    assert not (tmp_path / "store" / "abort").exists()


def log_file(case: ConfStore) -> Path:
    return case.root / "commitlog" / f"{0:020}"


@pytest.mark.parametrize("failures", [1, 9])
def test_a_write_that_fails_at_the_stop_is_made_again_up_to_ten_times(tmp_path, failures):
    case = ConfStore(tmp_path, POOL)
    case.store.append(make_request(0))
    fault = case.disk.fail("write_at", "*/commitlog/*", errno.ENOSPC, times=failures)

    case.store.close()

    assert fault.hits == failures
    assert case.store.statistics().unflushed_bytes == 0
    assert not (case.root / "abort").exists()


def test_after_ten_failed_writes_the_store_is_not_stopped_cleanly(tmp_path):
    case = ConfStore(tmp_path, POOL)
    case.store.append(make_request(0))
    fault = case.disk.fail("write_at", "*/commitlog/*", errno.ENOSPC, times=None)

    with pytest.raises(StoreFailedError, match="not closed in order"):
        case.store.close()

    assert fault.hits == 10
    assert case.store.statistics().unflushed_bytes > 0
    assert (case.root / "abort").exists()


@pytest.mark.parametrize(("failures", "tried"), [(1, 2), (9, 10), (None, 10)])
@pytest.mark.parametrize("given", [{}, POOL], ids=["async flush", "pool"])
def test_a_failed_sync_is_repeated_but_never_makes_the_stop_a_clean_one(
    tmp_path, given, failures, tried
):
    case = ConfStore(tmp_path, given)
    case.store.append(make_request(0))
    case.disk.forget()
    case.disk.fail("sync_data", "*/commitlog/*", errno.EIO, times=failures)

    with pytest.raises(StoreFailedError, match="not closed in order"):
        case.store.close()

    assert len(case.disk.seen("sync_data", "commitlog/")) == tried
    assert case.store.statistics().unflushed_bytes > 0  # a second sync may lie
    assert (case.root / "abort").exists()
    with ConfStore(tmp_path) as again:  # recovery looked at what there is
        assert stored(again) == 1


def test_what_a_failed_commit_left_in_the_pool_is_written_at_the_stop(tmp_path):
    case = ConfStore(tmp_path, POOL)
    result = case.store.append(make_request(0))
    case.disk.fail("write_at", "*/commitlog/*", errno.EIO)
    case.clock.advance(1_000)
    with pytest.raises(StoreIOError):
        case.store.tick()
    assert case.store.failure is not None

    with pytest.raises(StoreFailedError):
        case.store.close()

    assert any(log_file(case).read_bytes()[: result.size])
    with ConfStore(tmp_path) as again:
        assert stored(again) == 1
