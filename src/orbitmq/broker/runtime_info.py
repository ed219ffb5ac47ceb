"""The runtime figures of a broker, as names and texts that RocketMQ's tools read (28).

What has no meaning here (thread pools and their queues) is given as empty, since tools fail on a
figure that is missing. Figures of our own stand beside them; tools print what they do not know.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.services import service_figures
from orbitmq.broker.statistics import StoreSample
from orbitmq.store.clean import disk_ratio
from orbitmq.store.config import Role
from orbitmq.store.statistics import EDGES_US, StoreStatistics
from orbitmq.units import HOUR_MS, MINUTE_MS, SECOND_MS
from orbitmq.wire.codes import VERSION

if TYPE_CHECKING:
    from orbitmq.store.memory.store_with_memory import StoreWithMemory

VERSION_NAME: Final = "V5_3_3"
"""The name of `VERSION`: what we are compatible with."""

_SPANS: Final = (10, 60, 600)  # seconds over which rates are counted
_NO_POOL: Final = 0x7FFFFFFF  # what is left of a pool that is not used
_BUCKETS: Final = {
    "<=0ms": 1,  # RocketMQ counts whole milliseconds
    "0~10ms": 10,
    "10~50ms": 50,
    "50~100ms": 100,
    "100~200ms": 200,
    "200~500ms": 500,
    "500ms~1s": 1_000,
    "1~2s": 2_000,
    "2~3s": 3_000,
    "3~4s": 4_000,
    "4~5s": 5_000,
    "5~10s": 10_000,
}
"""Name of a span of time -> its end in milliseconds."""

_BYTE_UNITS: Final = "KMGTPE"

_POOLS: Final = {
    "sendThreadPoolQueue": 10_000,
    "pullThreadPoolQueue": 100_000,
    "litePullThreadPoolQueue": 100_000,
    "queryThreadPoolQueue": 20_000,
    "ackThreadPoolQueue": 100_000,
}
"""RocketMQ's queues in front of its thread pools and how long they may get; here nothing waits in them."""


def runtime_info(context: BrokerContext) -> dict[str, str]:
    """Return all figures."""
    figures = context.store.statistics()
    return {
        **_identity(context),
        **_totals(context),
        **_puts(figures),
        **_gets(figures),
        **_rates(context),
        **_log(context, figures),
        **_disks(context),
        **_memory(context),
        **_health(context, figures),
        **dict(_schedule(context)),
        **_timer(context),
        **_pools(),
        **service_figures(context),
    }


def _identity(context: BrokerContext) -> dict[str, str]:
    return {
        "brokerActive": str(context.config.store.role is not Role.REPLICA).lower(),
        "brokerVersion": str(VERSION),
        "brokerVersionDesc": VERSION_NAME,
        "bootTimestamp": str(context.boot_ms),
        "runtime": _duration(context.clock.now_ms() - context.boot_ms),
        "startAcceptSendRequestTimeStamp": str(context.config.accept_sends_from_ms),
    }


def _duration(elapsed_ms: int) -> str:
    elapsed_ms = max(elapsed_ms, 0)
    days, hours = divmod(elapsed_ms // HOUR_MS, 24)
    minutes = elapsed_ms % HOUR_MS // MINUTE_MS
    seconds = elapsed_ms % MINUTE_MS // SECOND_MS
    # Java's MessageFormat groups thousands.
    return f"[ {days:,} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _totals(context: BrokerContext) -> dict[str, str]:
    put, get = context.statistics.put_totals(), context.statistics.get_totals()
    return {
        f"msg{name}Total{when}": str(count)
        for name, totals in (("Put", put), ("Get", get))
        for when, count in zip(
            ("YesterdayMorning", "TodayMorning", "TodayNow"), totals, strict=True
        )
    }


def _puts(figures: StoreStatistics) -> dict[str, str]:
    times = max(figures.appended_messages, 1)  # RocketMQ never tells 0: others divide by it
    return {
        "putMessageTimesTotal": str(times),
        "putMessageFailedTimes": str(figures.refused_messages),
        "putMessageBusyTimes": str(figures.busy_messages),
        "putMessageSizeTotal": str(figures.appended_bytes),
        "putMessageAverageSize": str(figures.appended_bytes / times),
        "putMessageEntireTimeMax": str(round(figures.append_max_us / 1000)),
        "putMessageDistributeTime": _distribution(figures.append_counts),
        "putLatency99": f"{figures.append_p99_us / 1000:.2f}",
        "putLatency999": f"{figures.append_p999_us / 1000:.2f}",
    }


def _distribution(counts: Sequence[int]) -> str:
    """Return how many of the timed appends took how long."""
    parts, at = [], 0
    for name, end_ms in _BUCKETS.items():
        end = EDGES_US.index(end_ms * 1_000) + 1
        parts.append(f"[{name}]:{sum(counts[at:end])} ")
        at = end
    return "".join((*parts, f"[10s~]:{sum(counts[at:])} "))


def _gets(figures: StoreStatistics) -> dict[str, str]:
    return {"getMessageEntireTimeMax": str(round(figures.get_max_us / 1000))}


def _rates(context: BrokerContext) -> dict[str, str]:
    spans = [context.statistics.store_samples(seconds) for seconds in _SPANS]
    rates = {
        name: " ".join("" if span is None else str(_tps(span, counters)) for span in spans)
        for name, counters in (
            ("putTps", ("put",)),
            ("getFoundTps", ("found",)),
            ("getMissTps", ("missed",)),
            ("getTransferredTps", ("transferred",)),
        )
    }
    totals = (0.0 if span is None else _tps(span, ("found", "missed")) for span in spans)
    return {**rates, "getTotalTps": " ".join(map(str, totals))}


def _tps(span: tuple[StoreSample, StoreSample], counters: tuple[str, ...]) -> float:
    before, now = span
    elapsed = now.at_ms - before.at_ms
    count = sum(getattr(now, name) - getattr(before, name) for name in counters)
    return count * SECOND_MS / elapsed if elapsed > 0 else 0.0


def _log(context: BrokerContext, figures: StoreStatistics) -> dict[str, str]:
    free = figures.free_buffers
    mode = {} if not context.config.store.follows_spark else {"dispatchMode": "spark"}
    if figures.waits_for:
        mode["segmentsWaitFor"] = figures.waits_for
    return {
        **mode,
        "commitLogMinOffset": str(figures.min_log_offset if figures.max_log_offset else -1),
        "commitLogMaxOffset": str(figures.max_log_offset),
        "dispatchBehindBytes": str(figures.dispatch_behind_bytes),
        "dispatchMaxBuffer": "0",
        "pageCacheLockTimeMills": str(figures.append_lock_ms),
        "earliestMessageTimeStamp": str(context.store.earliest_time()),
        "remainHowManyDataToFlush": _bytes_text(figures.unflushed_bytes),
        "remainTransientStoreBufferNumbs": str(_NO_POOL if free is None else free),
        "mappedFiles": str(figures.mapped_files),
        "mappedBytes": str(figures.mapped_bytes),
    }


def _memory(context: BrokerContext) -> dict[str, str]:
    """Tell how full the room of topics in memory is, if there are such."""
    if not context.config.memory_topics:
        return {}
    memory = cast("StoreWithMemory", context.store).memory
    return {
        "memoryTopicBytesMax": str(memory.bytes_max),
        "memoryTopicBytes": str(memory.held_bytes),
        "memoryTopicBytesAllocated": str(memory.allocated_bytes),
        "memoryTopicMessagesEvicted": str(memory.evicted_messages),
    }


def _health(context: BrokerContext, figures: StoreStatistics) -> dict[str, str]:
    """Return figures under names of our own: `orbitmq doctor` reads them."""
    ahead = ";".join(
        f"{parked.topic}@{parked.queue_id}@{parked.offset}@{end}"
        for parked, end in context.long_poll.ahead()
    )
    texts = {"storeRefusal": figures.refusal, "parkedPullsAhead": ahead}
    return {
        "unflushedBytes": str(figures.unflushed_bytes),
        "flushAverageMicros": str(round(figures.flush_average_us)),
        "flushMaxMicros": str(round(figures.flush_max_us)),
        "parkedPulls": str(context.long_poll.count),
        **{name: text for name, text in texts.items() if text},
    }


def _disks(context: BrokerContext) -> dict[str, str]:
    store = context.config.store
    paths = store.commit_log_paths or (store.root / "commitlog",)
    ratios = {path: disk_ratio(path) for path in paths}
    disks = {f"commitLogDiskRatio_{path}": str(ratio) for path, ratio in ratios.items()}
    return {
        **disks,
        "commitLogDiskRatio": str(min(ratios.values())),
        "consumeQueueDiskRatio": str(disk_ratio(store.root)),
        "commitLogDirCapacity": _capacity(store.root),
    }


def _capacity(root: Path) -> str:
    try:
        disk = os.statvfs(root)
    except OSError:
        return "Total : 0 B, Free : 0 B."
    total, free = disk.f_blocks * disk.f_frsize, disk.f_bfree * disk.f_frsize
    return f"Total : {_bytes_text(total)}, Free : {_bytes_text(free)}."


def _bytes_text(count: int) -> str:
    """Return a number of bytes for people: 233.9 GiB."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(_BYTE_UNITS))
    return f"{count / 1024**power:.1f} {_BYTE_UNITS[power - 1]}iB"


def _schedule(context: BrokerContext) -> Iterator[tuple[str, str]]:
    """Yield how far each delay level is that was ever used, and how far it could be."""
    for level, (offset, end) in sorted(context.schedule.progress().items()):
        yield f"scheduleMessageOffset_{level}", f"{offset},{end}"


def _timer(context: BrokerContext) -> dict[str, str]:
    timers = context.timers
    if timers is None:
        counts = dict.fromkeys(("timerReadBehind", "timerOffsetBehind", "timerCongestNum"), "0")
        return counts | dict.fromkeys(("timerEnqueueTps", "timerDequeueTps"), "0.0")
    enqueue_tps, dequeue_tps = timers.rates
    return {
        "timerReadBehind": str(timers.store.read_behind_ms // 1000),
        "timerOffsetBehind": str(timers.store.queue_behind),
        "timerCongestNum": str(timers.store.waiting()),
        "timerEnqueueTps": str(round(enqueue_tps, 1)),
        "timerDequeueTps": str(round(dequeue_tps, 1)),
    }


def _pools() -> dict[str, str]:
    queues = {"EndTransactionQueueSize": "0", "EndTransactionThreadPoolQueueCapacity": "100000"}
    for name, capacity in _POOLS.items():
        queues[f"{name}Size"] = "0"
        queues[f"{name}Capacity"] = str(capacity)
        queues[f"{name}HeadWaitTimeMills"] = "0"
    return queues
