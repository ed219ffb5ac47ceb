"""The process that is killed: appends, dispatches, rolls, flushes and cleans as fast as it can.

Everything is small and hurried, so that a moment chosen at random is likely to lie in the middle of
something: segments of a few dozen records, queue files of 40 units, index files of 120 items,
background work every few milliseconds.
"""

import json
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from crash.workload import (
    ENDLESS,
    FLUSHED,
    NOWHERE,
    OPENED,
    TOGETHER_MAX,
    Ack,
    request,
    write_topics,
)
from orbitmq.clock import SystemClock
from orbitmq.files.disk import Disk
from orbitmq.message import AppendRequest, AppendResult, AppendStatus
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.power_cut import PowerCutDisk
from orbitmq.units import HOUR_MS, PAGE_BYTES, KiB

MODES: Final = ("async", "sync", "pool")
CLOCK_START_MS: Final = (
    time.time_ns() // 1_000_000
)  # of the fork server: clocks of later lives go on
_KEYS: Final = b"KEYS\x01k%d\x02"
RETENTION_MS: Final = 40  # with cleaning: old enough after this; far less than a round takes


def config(root: Path, mode: str, *, clean: bool = False, ext: bool = False) -> StoreConfig:
    """Return the settings of the crash tests."""
    return StoreConfig(
        root=root,
        segment_bytes=32 * KiB,
        cq_file_bytes=800,
        ext_file_bytes=1000,
        batch_cq_file_bytes=920,
        enable_cq_ext=ext,
        index_slots=64,
        index_items=120,
        message_bytes_max=16 * KiB,
        flush_mode=FlushMode.SYNC if mode == "sync" else FlushMode.ASYNC,
        transient_pool=mode == "pool",
        flush_interval_ms=4,
        flush_least_pages=2,
        flush_thorough_ms=20,
        commit_interval_ms=3,
        commit_thorough_ms=6,
        queue_flush_interval_ms=5,
        queue_flush_least_pages=1,
        queue_flush_thorough_ms=30,
        retention_ms=RETENTION_MS if clean else 72 * HOUR_MS,
        delete_hours=tuple(range(24)) if clean else (),
        clean_start_ms=5,
        clean_interval_ms=10,
        delete_pause_ms=1,
        queue_delete_pause_ms=1,
        clean_forced=False,  # a full disk of the machine that runs the tests is not the subject
    )


class HurriedClock(SystemClock):
    """A wall clock that runs `factor` times too fast; durations and waits are real."""

    def __init__(self, factor: int) -> None:
        self._factor = factor

    def now_ms(self) -> int:
        real_ms = super().now_ms()
        return real_ms + (real_ms - CLOCK_START_MS) * (self._factor - 1)


def preload() -> None:
    """Load what a store and a broker need, kernels included, before the first fork."""
    from crash import forked_broker
    from orbitmq.format.kernels import compiled

    assert forked_broker.serve
    compiled()


def broker(config: str) -> None:
    """Serve as a broker until killed."""
    from crash import forked_broker

    forked_broker.serve(config)


def run(
    root: str,
    seed: int,
    first: int,
    mode: str,
    acks: str,
    *,
    clean: bool = False,
    ext: bool = False,
    batches: bool = False,
    count: int = ENDLESS,
    shadow: str = "",
    hurry: int = 1,
) -> None:
    """Append messages `first`, `first` + 1, ... until killed, or until `count` are in; then close.

    With a `shadow` directory the disk writes down there what a power cut would leave. `hurry`: how many
    times faster than ours the store's wall clock runs.
    """
    fd = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    chance = random.Random(f"writer {seed} {first}")
    disk = PowerCutDisk(Path(root), shadow=Path(shadow)) if shadow else Disk()
    settings = config(Path(root), mode, clean=clean, ext=ext)
    if batches:
        write_topics(Path(root), disk)
    with MessageStore.open(settings, disk=disk, clock=HurriedClock(hurry)) as store:
        os.write(fd, Ack(OPENED, store.max_log_offset).packed())
        number = first
        while number < first + count:
            number = _append_some(store, seed, number, chance, fd, batches=batches)
            if chance.random() < 0.05:
                os.write(fd, Ack(FLUSHED, store.flushed_offset).packed())
            if chance.random() < 0.01:
                store.flush()
            if clean and chance.random() < 0.05:
                store.delete_expired_now()  # the timer alone would come too late in so short a life


def run_uncommitted(root: str, told: str) -> None:
    """Fill the transient pool with a message that is committed and some that are not; tell, and wait."""
    settings = replace(
        config(Path(root), "pool"),
        commit_interval_ms=1,
        commit_least_pages=1,
        commit_thorough_ms=HOUR_MS,
        wake_commit_on_append=False,
        flush_interval_ms=HOUR_MS,
    )
    store = MessageStore.open(settings)
    large = store.append(AppendRequest("T", 0, bytes(2 * PAGE_BYTES), _KEYS % 0))
    committed = store.max_log_offset
    # Somebody who waited for it would have it committed: look on.
    deadline = time.monotonic() + 20
    while store.dispatched_offset < committed and time.monotonic() < deadline:
        time.sleep(0.001)
    small = [store.append(AppendRequest("T", 0, b"small", _KEYS % number)) for number in (1, 2, 3)]
    time.sleep(0.05)  # sleep: fifty rounds of the commit thread, which must not commit them
    seen = {
        "statuses": [result.status.name for result in (large, *small)],
        "committed": committed,
        "written": store.max_log_offset,
        "dispatched": store.dispatched_offset,
        "queue_end": store.max_offset("T", 0),
        "got": len(store.get("T", 0, 0, 32).records),
        "got_behind": len(store.get("T", 0, 1, 32).records),
        "queried": [len(store.query("T", f"k{number}")) for number in range(4)],
        "read": [store.record_at(result.log_offset) is not None for result in (large, *small)],
    }
    Path(told).with_suffix(".new").write_text(json.dumps(seen))
    Path(told).with_suffix(".new").rename(told)
    signal.pause()


def _append_some(
    store: MessageStore, seed: int, number: int, chance: random.Random, fd: int, *, batches: bool
) -> int:
    """Append one message or several, acknowledge, return the next number."""
    size = 1 if chance.random() < 0.7 else chance.randrange(2, TOGETHER_MAX)
    requests = [request(seed, number + i, batches=batches) for i in range(size)]
    results = [store.append(requests[0])] if size == 1 else store.append_many(requests)
    acks = [_ack(number + i, result) for i, result in enumerate(results)]
    # One write: a kill leaves all of a batch's acknowledgements or a clean part of them.
    os.write(fd, b"".join(acks))
    return number + size


def _ack(number: int, result: AppendResult) -> bytes:
    if result.status is AppendStatus.OS_PAGE_CACHE_BUSY:
        return Ack(number, NOWHERE).packed()  # the transient pool is small and we are in a hurry
    if result.status is not AppendStatus.PUT_OK:
        raise AssertionError(f"message {number}: {result.status.name} {result.reason}")
    return Ack(number, result.log_offset, result.queue_offset, result.size).packed()


def run_timers(root: str, seed: int, first: int, acks: str, shadow: str = "") -> None:
    """Append timer messages and deliver them until killed; see `timer_writer`."""
    from crash import timer_writer

    timer_writer.run(root, seed, first, acks, shadow)
