"""Settings of a store: sizes, flush, retention, limits. RocketMQ's key stands beside each field."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from orbitmq.errors import ConfigError
from orbitmq.files.layout import StoreLayout
from orbitmq.format.cq_unit import rounded_file_bytes
from orbitmq.message import Host
from orbitmq.settings import (
    JAVA_READERS,
    field_texts,
    field_values,
    key,
    keys_of,
    require,
    require_least,
)
from orbitmq.units import HOUR_MS, MINUTE_MS, SECOND_MS, GiB, KiB, MiB

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
DEFAULT_STORE_HOST: Final = Host(b"\x7f\x00\x00\x01", 10911)

_FILE_BYTES_MAX: Final = 2**31 - 1  # the Java store maps a file as one buffer of at most this size
_PRECISIONS_MS: Final = (100, 200, 500, 1000)
_UNIT_MS: Final = {"s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": 24 * HOUR_MS}


class FlushMode(Enum):
    """When an append is answered: at once, or after its bytes are on disk."""

    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


class DispatchMode(Enum):
    """Who makes queues and index from the log."""

    LIVE = "live"  # the store itself
    SPARK = "spark"  # `orbitmq spark dispatch`; the store follows


class WaitFor(Enum):
    """Whose reading keeps old segments from being deleted (`readers.py`)."""

    OFF = "off"
    QUEUES = "queues"
    GROUPS = "groups"


class Role(Enum):
    """Who takes writes."""

    ASYNC_PRIMARY = "ASYNC_MASTER"
    SYNC_PRIMARY = "SYNC_MASTER"
    REPLICA = "SLAVE"


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the delay of each level in milliseconds; index 0 is unused, because levels start at 1."""
    levels = [0]
    for part in text.split():
        number, unit = part[:-1], part[-1]
        if unit not in _UNIT_MS or not number.isdigit():
            rule = "must be numbers with one of the units s, m, h, d, separated by spaces"
            raise ConfigError("messageDelayLevel", text, rule)
        levels.append(int(number) * _UNIT_MS[unit])
    return tuple(levels)


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(Path(part.strip()) for part in text.split(",") if part.strip())


def _paths_text(paths: tuple[Path, ...]) -> str:
    return ",".join(map(str, paths))


def _cq_file_bytes(text: str) -> int:
    return rounded_file_bytes(int(text))


def _batch_cq_file_bytes(text: str) -> int:
    # As with simple queues: whole units.
    return -(-int(text) // 46) * 46


def _hours(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(";") if part.strip())


def _hours_text(hours: tuple[int, ...]) -> str:
    return ";".join(f"{hour:02}" for hour in hours)


def _timer_precision(text: str) -> int:
    """Return one of the four precisions that there are: the next below, as RocketMQ does."""
    return max((step for step in _PRECISIONS_MS if step <= int(text)), default=_PRECISIONS_MS[0])


def _clamped_per_cent(text: str) -> int:
    return min(max(int(text), 10), 95)


def _delays_text(delay_ms: tuple[int, ...]) -> str:
    return " ".join(map(_delay_text, delay_ms[1:]))


def _delay_text(delay_ms: int) -> str:
    for unit in ("d", "h", "m"):
        if delay_ms and delay_ms % _UNIT_MS[unit] == 0:
            return f"{delay_ms // _UNIT_MS[unit]}{unit}"
    return f"{delay_ms // SECOND_MS}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Everything that a store is configured with. The defaults are RocketMQ's."""

    root: Path  # storePathRootDir
    # Empty: root/commitlog.
    commit_log_paths: tuple[Path, ...] = key(
        "storePathCommitLog", (), read=_paths, show=_paths_text
    )
    read_only_commit_log_paths: tuple[Path, ...] = key(
        "readOnlyCommitLogStorePaths", (), read=_paths, show=_paths_text
    )
    store_host: Host = DEFAULT_STORE_HOST  # brokerIP1, listenPort
    role: Role = key("brokerRole", Role.ASYNC_PRIMARY)

    # Sizes of files. They are not written in the files: all who use a store must agree on them.
    segment_bytes: int = key("mappedFileSizeCommitLog", 1 * GiB)
    cq_file_bytes: int = key("mappedFileSizeConsumeQueue", 6_000_000, read=_cq_file_bytes)
    ext_file_bytes: int = key("mappedFileSizeConsumeQueueExt", 48 * MiB)
    # "mapper" is RocketMQ's.
    batch_cq_file_bytes: int = key(
        "mapperFileSizeBatchConsumeQueue", 13_800_000, read=_batch_cq_file_bytes
    )
    index_slots: int = key("maxHashSlotNum", 5_000_000)
    index_items: int = key("maxIndexNum", 20_000_000)

    # Append.
    message_bytes_max: int = key("maxMessageSize", 4 * MiB, live=True)
    auto_version: bool = key("autoMessageVersionOnTopicLen", True, live=True)
    property_crc: bool = key("enabledAppendPropCRC", False)
    page_cache_busy_ms: int = key("osPageCacheBusyTimeOutMills", 1 * SECOND_MS, live=True)
    delay_ms: tuple[int, ...] = key(  # index = level, 0 unused
        "messageDelayLevel",
        factory=lambda: parse_delay_levels(DELAY_LEVELS),
        read=parse_delay_levels,
        show=_delays_text,
    )
    enable_lmq: bool = key("enableLmq", False)
    enable_multi_dispatch: bool = key("enableMultiDispatch", False)
    lmq_count_max: int = key("maxLmqConsumeQueueNum", 20_000, live=True)
    enable_cq_ext: bool = key("enableConsumeQueueExt", False)
    index_enabled: bool = key("messageIndexEnable", True)
    # After a crash, believe full index files only.
    index_safe: bool = key("messageIndexSafe", False)
    # Ours: a file with an entry older than this is followed by a new one; 0: only a full one is.
    index_roll_ms: int = key("indexFileRollInterval", 0, least=0)
    # Ours: so many of the newest files are kept; 0: as long as the log has their records.
    index_files_max: int = key("maxIndexFileNum", 0, least=0)

    # Timer messages. The wheel is the broker's (timerWheelEnable).
    timer_log_file_bytes: int = key("mappedFileSizeTimerLog", 100 * MiB)
    timer_precision_ms: int = key("timerPrecisionMs", 1 * SECOND_MS, read=_timer_precision)
    timer_window_slots: int = key("timerRollWindowSlot", 2 * 24 * 3600)
    timer_flush_interval_ms: int = key("timerFlushIntervalMs", 1 * SECOND_MS, live=True)
    timer_delay_max_ms: int = key(
        "timerMaxDelaySec", 3 * 24 * HOUR_MS, unit=SECOND_MS, least=0, live=True
    )
    timer_slot_count_max: int = key("timerCongestNumEachSlot", 2**31 - 1, least=0, live=True)
    timer_stop_enqueue: bool = key("timerStopEnqueue", False, live=True)
    timer_stop_dequeue: bool = key("timerStopDequeue", False, live=True)

    # Segments.
    warm_segments: bool = key("warmMapedFileEnable", False, live=True)
    warm_flush_pages: int = key("flushLeastPagesWhenWarmMapedFile", 4096, live=True)
    read_ahead: bool = key("dataReadAheadEnable", True, live=True)
    allocate_wait_ms: int = 5 * SECOND_MS  # how long an append waits for the next segment
    transient_pool: bool = key("transientStorePoolEnable", False)
    transient_pool_size: int = key("transientStorePoolSize", 5)

    # Flush.
    flush_mode: FlushMode = key("flushDiskType", FlushMode.ASYNC)
    flush_interval_ms: int = key("flushIntervalCommitLog", 500, live=True)
    flush_timed: bool = key("flushCommitLogTimed", True, live=True)
    flush_least_pages: int = key("flushCommitLogLeastPages", 4, live=True)
    flush_thorough_ms: int = key("flushCommitLogThoroughInterval", 10 * SECOND_MS, live=True)
    wake_flush_on_append: bool = key("wakeFlushWhenPutMessage", False, live=True)
    commit_interval_ms: int = key("commitIntervalCommitLog", 200, live=True)
    commit_least_pages: int = key("commitCommitLogLeastPages", 4, live=True)
    commit_thorough_ms: int = key("commitCommitLogThoroughInterval", 200, live=True)
    wake_commit_on_append: bool = key("wakeCommitWhenPutMessage", True, live=True)
    sync_flush_timeout_ms: int = key("syncFlushTimeout", 5 * SECOND_MS, live=True)
    queue_flush_interval_ms: int = key("flushIntervalConsumeQueue", 1 * SECOND_MS, live=True)
    queue_flush_least_pages: int = key("flushConsumeQueueLeastPages", 2, live=True)
    queue_flush_thorough_ms: int = key(
        "flushConsumeQueueThoroughInterval", 60 * SECOND_MS, live=True
    )
    read_uncommitted: bool = key("readUnCommitted", False)

    # Dispatch.
    dispatch: DispatchMode = key("dispatch", DispatchMode.LIVE)  # ours

    # Kernels. The compiled ones take most of a second and 90 MB to load.
    plain_records: int = 0  # ours: they are loaded after so many dispatched records; 0: at once
    plain_recovery_bytes: int = 2 * MiB  # ours: and for a recovery that reads more than this

    # Recovery.
    check_crc_on_recover: bool = key("checkCRCOnRecover", True, live=True)
    force_property_crc: bool = key("forceVerifyPropCRC", False, live=True)

    # Cleaning. The hours are local time.
    delete_hours: tuple[int, ...] = key(
        "deleteWhen", (4,), read=_hours, show=_hours_text, live=True
    )
    retention_ms: int = key("fileReservedTime", 72 * HOUR_MS, unit=HOUR_MS, live=True)
    clean_start_ms: int = 60 * SECOND_MS  # fixed in RocketMQ
    clean_interval_ms: int = key("cleanResourceInterval", 10 * SECOND_MS, live=True)
    delete_batch_max: int = key("deleteFileBatchMax", 10, live=True)
    delete_pause_ms: int = key("deleteCommitLogFilesInterval", 100, live=True)
    queue_delete_pause_ms: int = key("deleteConsumeQueueFilesInterval", 100, live=True)
    destroy_forced_ms: int = key("destroyMapedFileIntervalForcibly", 120 * SECOND_MS, live=True)
    redelete_hanged_ms: int = key("redeleteHangedFileInterval", 120 * SECOND_MS, live=True)
    clean_forced: bool = key("cleanFileForciblyEnable", True, live=True)
    # Per cent.
    disk_used_max: int = key("diskMaxUsedSpaceRatio", 75, read=_clamped_per_cent, live=True)
    disk_forced: int = key("diskSpaceCleanForciblyRatio", 85, live=True)
    disk_warning: int = key("diskSpaceWarningLevelRatio", 90, live=True)
    replicas_per_disk: int = key("replicasPerDiskPartition", 1, live=True)
    logical_disk_forced: float = key("logicalDiskSpaceCleanForciblyThreshold", 0.8, live=True)
    wait_for_readers: WaitFor = key("waitForReaders", WaitFor.OFF)  # ours

    # Reading.
    memory_bytes: int = 0  # ours: physical memory for the 40 % rule; 0: ask the machine
    in_memory_ratio: int = key("accessMessageInMemoryMaxRatio", 40, live=True)  # per cent
    transfer_bytes_in_memory: int = key("maxTransferBytesOnMessageInMemory", 256 * KiB, live=True)
    transfer_count_in_memory: int = key("maxTransferCountOnMessageInMemory", 32, live=True)
    transfer_bytes_on_disk: int = key("maxTransferBytesOnMessageInDisk", 64 * KiB, live=True)
    transfer_count_on_disk: int = key("maxTransferCountOnMessageInDisk", 8, live=True)
    filter_bytes_max: int = key("maxFilterMessageSize", 16_000, live=True)
    cq_files_per_read: int = key("travelCqFileNumWhenGetMessage", 1, live=True)
    query_count_max: int = key("maxMsgsNumBatch", 64, live=True)

    def __post_init__(self) -> None:
        _require_file_bytes("segment_bytes", self.segment_bytes, 256, 1)
        _require_file_bytes("cq_file_bytes", self.cq_file_bytes, 20, 20)
        _require_file_bytes("ext_file_bytes", self.ext_file_bytes, 24, 1)
        _require_file_bytes("batch_cq_file_bytes", self.batch_cq_file_bytes, 46, 46)
        _require_file_bytes("timer_log_file_bytes", self.timer_log_file_bytes, 68, 1)
        fits = self.timer_precision_ms in _PRECISIONS_MS
        require(
            "timer_precision_ms", self.timer_precision_ms, fits, "must be 100, 200, 500 or 1000"
        )
        for name in ("index_slots", "message_bytes_max", "transient_pool_size", "delete_batch_max"):
            require(name, getattr(self, name), getattr(self, name) >= 1, "must be at least 1")
        require("index_items", self.index_items, self.index_items >= 2, "must be at least 2")
        require("delay_ms", self.delay_ms, len(self.delay_ms) >= 2, "needs at least one level")
        hours_fit = all(0 <= hour <= 23 for hour in self.delete_hours)
        require("delete_hours", self.delete_hours, hours_fit, "must be hours from 0 to 23")
        used_fits = 10 <= self.disk_used_max <= 95
        require("disk_used_max", self.disk_used_max, used_fits, "must be between 10 and 95")
        require_least(self, _KEYS)

    @classmethod
    def from_settings(
        cls, root: Path | str, settings: Mapping[str, str], **overrides: Any
    ) -> "StoreConfig":
        """Return the config that these broker.conf keys make; keys of other components are passed over."""
        values: dict[str, Any] = {"root": Path(root), **field_values(settings, _KEYS)}
        if host := settings.get("brokerIP1"):
            values["store_host"] = _host(host, settings.get("listenPort", "10911"))
        try:
            return cls(**{**values, **overrides})
        except ConfigError as error:
            raise _as_given(error, settings) from error

    def with_settings(self, settings: Mapping[str, str]) -> "StoreConfig":
        """Return this config with these keys changed; keys of other components are passed over."""
        try:
            return replace(self, **field_values(settings, _KEYS))
        except ConfigError as error:
            raise _as_given(error, settings) from error

    def layout(self) -> StoreLayout:
        """Return the paths and sizes of this store's files."""
        return StoreLayout(
            self.root,
            commit_log_paths=self.commit_log_paths,
            read_only_commit_log_paths=self.read_only_commit_log_paths,
            segment_bytes=self.segment_bytes,
            cq_file_bytes=self.cq_file_bytes,
            ext_file_bytes=self.ext_file_bytes,
            batch_cq_file_bytes=self.batch_cq_file_bytes,
            index_slots=self.index_slots,
            index_items=self.index_items,
        )

    def properties(self) -> dict[str, str]:
        """Return everything as broker.conf keys and texts; `from_settings` would make the same of it."""
        written = field_texts(self, _KEYS)
        if not self.commit_log_paths:
            written["storePathCommitLog"] = str(self.root / "commitlog")
        return {"storePathRootDir": str(self.root), **written}

    @property
    def sync_flush(self) -> bool:
        return self.flush_mode is FlushMode.SYNC

    @property
    def uses_pool(self) -> bool:
        return self.transient_pool and not self.pool_objection

    @property
    def pool_objection(self) -> str:
        """Why these settings leave no use for a transient pool; empty: they do."""
        if self.sync_flush:
            return "flushDiskType=SYNC_FLUSH waits for the disk anyway"
        if self.role is Role.REPLICA:
            return "brokerRole=SLAVE appends nothing of its own"
        return ""

    @property
    def follows_spark(self) -> bool:
        return self.dispatch is DispatchMode.SPARK

    @property
    def delay_level_max(self) -> int:
        return len(self.delay_ms) - 1


def _require_file_bytes(name: str, value: int, least: int, multiple: int) -> None:
    rule = f"must be a multiple of {multiple} from {least} to {_FILE_BYTES_MAX}"
    require(name, value, least <= value <= _FILE_BYTES_MAX and value % multiple == 0, rule)


def _as_given(error: ConfigError, settings: Mapping[str, str]) -> ConfigError:
    """Return the error with the key and the text that the settings have, if it is about one of them."""
    for name, one in _KEYS.items():
        if one.field == error.setting and name in settings:
            return ConfigError(name, settings[name], error.rule)
    return error


def _host(address: str, port: str) -> Host:
    import ipaddress

    try:
        return Host(ipaddress.ip_address(address).packed, int(port))
    except ValueError as cause:
        raise ConfigError("brokerIP1", f"{address}:{port}", "must be an IP address") from cause


_KEYS: Final = keys_of(StoreConfig, JAVA_READERS)  # storePathRootDir comes as `root`
KEYS: Final = frozenset(_KEYS)
"""What has an effect on a store."""
LIVE_KEYS: Final = frozenset(name for name, one in _KEYS.items() if one.live)
"""Settings that an open store can be given (`MessageStore.reconfigure`).

Those of recovery count at the next start, which is when they are used.
"""
