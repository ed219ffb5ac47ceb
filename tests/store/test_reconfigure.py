"""Settings of an open store that change while it is open."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.message import AppendRequest, AppendStatus
from orbitmq.store.config import LIVE_KEYS, StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.units import HOUR_MS, KiB

SEGMENT = 64 * KiB


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MessageStore]:
    config = StoreConfig(root=tmp_path, segment_bytes=SEGMENT, index_slots=64, index_items=256)
    with MessageStore.open(
        config, clock=clock, background=False, disk_ratio=lambda path: 0.1
    ) as opened:
        yield opened


def change(store: MessageStore, **settings: str) -> None:
    assert settings.keys() <= LIVE_KEYS
    store.reconfigure(store.config.with_settings(settings))


def fill(store: MessageStore, count: int, **given: object) -> None:
    for _ in range(count):
        store.append(AppendRequest("T", 0, b"x" * 100, **given))  # type: ignore[arg-type]
    store.wait_dispatched()


def test_only_those_keys_change(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path, segment_bytes=SEGMENT)

    changed = config.with_settings({"fileReservedTime": "1", "brokerName": "x"})

    assert changed.retention_ms == HOUR_MS
    assert changed.with_settings({"fileReservedTime": "72"}) == config


def test_size_limit_holds_for_the_next_append(store: MessageStore) -> None:
    change(store, maxMessageSize="50")
    fits, too_long = AppendRequest("T", 0, b"x" * 50), AppendRequest("T", 0, b"x" * 51)

    assert store.append(fits).status is AppendStatus.PUT_OK
    assert store.append(too_long).status is AppendStatus.MESSAGE_ILLEGAL
    assert [r.status for r in store.append_many([fits, too_long])] == [
        AppendStatus.PUT_OK,
        AppendStatus.MESSAGE_ILLEGAL,
    ]


def test_read_limits_hold_for_the_next_read(store: MessageStore) -> None:
    fill(store, 5, properties=b"KEYS\x01k\x02")

    change(store, maxTransferCountOnMessageInMemory="2", maxMsgsNumBatch="3")

    assert len(store.get("T", 0, 0).records) == 2
    assert len(store.query("T", "k", 10)) == 3


def test_flush_follows_its_new_interval(store: MessageStore, clock: FakeClock) -> None:
    change(store, flushIntervalCommitLog="5000", flushCommitLogThoroughInterval="1")
    clock.advance(600)
    store.tick()
    fill(store, 1)

    clock.advance(4_000)
    store.tick()
    early = store.flushed_offset
    clock.advance(1_100)
    store.tick()

    assert early == 0
    assert store.flushed_offset == store.max_log_offset


def test_retention_holds_for_the_next_round(store: MessageStore, clock: FakeClock) -> None:
    fill(store, 1_000)
    store.flush()
    assert store.max_log_offset > 2 * SEGMENT
    clock.set_now_ms(int(time.time() * 1000) + 2 * HOUR_MS)  # files have the real time

    change(store, fileReservedTime="1", deleteFileBatchMax="1", cleanResourceInterval="1")
    store.delete_expired_now()

    assert store.min_log_offset == SEGMENT
