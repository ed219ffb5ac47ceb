"""Settings of a store: sizes, flush, retention, limits. RocketMQ's key stands beside each field."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from orbitmq.errors import ConfigError
from orbitmq.files.layout import StoreLayout
from orbitmq.format.cq_unit import rounded_file_bytes
from orbitmq.message import Host
from orbitmq.settings import field_values, java_boolean, require, value_text
from orbitmq.units import HOUR_MS, MINUTE_MS, SECOND_MS, GiB, KiB, MiB

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
DEFAULT_STORE_HOST: Final = Host(b"\x7f\x00\x00\x01", 10911)

_FILE_BYTES_MAX: Final = 2**31 - 1  # the Java store maps a file as one buffer of at most this size
_UNIT_MS: Final = {"s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": 24 * HOUR_MS}


class FlushMode(Enum):
    """When an append is answered: at once, or after its bytes are on disk."""

    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


class DispatchMode(Enum):
    """Who makes queues and index from the log."""

    LIVE = "live"  # the store itself
    SPARK = "spark"  # `orbitmq spark dispatch`; the store follows


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Everything that a store is configured with. The defaults are RocketMQ's."""

    root: Path  # storePathRootDir
    commit_log_paths: tuple[Path, ...] = ()  # storePathCommitLog; empty: root/commitlog
    read_only_commit_log_paths: tuple[Path, ...] = ()  # readOnlyCommitLogStorePaths
    store_host: Host = DEFAULT_STORE_HOST  # brokerIP1, listenPort
    role: Role = Role.ASYNC_PRIMARY  # brokerRole

    # Sizes of files. They are not written in the files: all who use a store must agree on them.
    segment_bytes: int = 1 * GiB  # mappedFileSizeCommitLog
    cq_file_bytes: int = 6_000_000  # mappedFileSizeConsumeQueue
    ext_file_bytes: int = 48 * MiB  # mappedFileSizeConsumeQueueExt
    batch_cq_file_bytes: int = 13_800_000  # mapperFileSizeBatchConsumeQueue (sic)
    index_slots: int = 5_000_000  # maxHashSlotNum
    index_items: int = 20_000_000  # maxIndexNum

    # Append.
    message_bytes_max: int = 4 * MiB  # maxMessageSize
    auto_version: bool = True  # autoMessageVersionOnTopicLen
    property_crc: bool = False  # enabledAppendPropCRC
    page_cache_busy_ms: int = 1 * SECOND_MS  # osPageCacheBusyTimeOutMills
    delay_ms: tuple[int, ...] = field(
        default_factory=lambda: parse_delay_levels(DELAY_LEVELS)
    )  # messageDelayLevel; index = level, 0 unused
    enable_lmq: bool = False  # enableLmq
    enable_multi_dispatch: bool = False  # enableMultiDispatch
    lmq_count_max: int = 20_000  # maxLmqConsumeQueueNum
    enable_cq_ext: bool = False  # enableConsumeQueueExt
    index_enabled: bool = True  # messageIndexEnable
    index_safe: bool = False  # messageIndexSafe: after a crash, believe full index files only

    # Segments.
    warm_segments: bool = False  # warmMapedFileEnable
    warm_flush_pages: int = 4096  # flushLeastPagesWhenWarmMapedFile
    read_ahead: bool = True  # dataReadAheadEnable
    allocate_wait_ms: int = 5 * SECOND_MS  # how long an append waits for the next segment
    transient_pool: bool = False  # transientStorePoolEnable
    transient_pool_size: int = 5  # transientStorePoolSize

    # Flush.
    flush_mode: FlushMode = FlushMode.ASYNC  # flushDiskType
    flush_interval_ms: int = 500  # flushIntervalCommitLog
    flush_timed: bool = True  # flushCommitLogTimed
    flush_least_pages: int = 4  # flushCommitLogLeastPages
    flush_thorough_ms: int = 10 * SECOND_MS  # flushCommitLogThoroughInterval
    wake_flush_on_append: bool = False  # wakeFlushWhenPutMessage
    commit_interval_ms: int = 200  # commitIntervalCommitLog
    commit_least_pages: int = 4  # commitCommitLogLeastPages
    commit_thorough_ms: int = 200  # commitCommitLogThoroughInterval
    wake_commit_on_append: bool = True  # wakeCommitWhenPutMessage
    sync_flush_timeout_ms: int = 5 * SECOND_MS  # syncFlushTimeout
    queue_flush_interval_ms: int = 1 * SECOND_MS  # flushIntervalConsumeQueue
    queue_flush_least_pages: int = 2  # flushConsumeQueueLeastPages
    queue_flush_thorough_ms: int = 60 * SECOND_MS  # flushConsumeQueueThoroughInterval
    read_uncommitted: bool = False  # readUnCommitted

    # Dispatch.
    dispatch: DispatchMode = DispatchMode.LIVE  # ours: dispatch

    # Kernels. The compiled ones take most of a second and 90 MB to load.
    plain_records: int = 0  # ours: they are loaded after so many dispatched records; 0: at once
    plain_recovery_bytes: int = 2 * MiB  # ours: and for a recovery that reads more than this

    # Recovery.
    check_crc_on_recover: bool = True  # checkCRCOnRecover
    force_property_crc: bool = False  # forceVerifyPropCRC

    # Cleaning.
    delete_hours: tuple[int, ...] = (4,)  # deleteWhen, local time
    retention_ms: int = 72 * HOUR_MS  # fileReservedTime, which counts hours
    clean_start_ms: int = 60 * SECOND_MS  # fixed in RocketMQ
    clean_interval_ms: int = 10 * SECOND_MS  # cleanResourceInterval
    delete_batch_max: int = 10  # deleteFileBatchMax
    delete_pause_ms: int = 100  # deleteCommitLogFilesInterval
    queue_delete_pause_ms: int = 100  # deleteConsumeQueueFilesInterval
    destroy_forced_ms: int = 120 * SECOND_MS  # destroyMapedFileIntervalForcibly
    redelete_hanged_ms: int = 120 * SECOND_MS  # redeleteHangedFileInterval
    clean_forced: bool = True  # cleanFileForciblyEnable
    disk_used_max: int = 75  # diskMaxUsedSpaceRatio, per cent
    disk_forced: int = 85  # diskSpaceCleanForciblyRatio, per cent
    disk_warning: int = 90  # diskSpaceWarningLevelRatio, per cent
    replicas_per_disk: int = 1  # replicasPerDiskPartition
    logical_disk_forced: float = 0.8  # logicalDiskSpaceCleanForciblyThreshold

    # Reading.
    memory_bytes: int = 0  # ours: physical memory for the 40 % rule; 0: ask the machine
    in_memory_ratio: int = 40  # accessMessageInMemoryMaxRatio, per cent
    transfer_bytes_in_memory: int = 256 * KiB  # maxTransferBytesOnMessageInMemory
    transfer_count_in_memory: int = 32  # maxTransferCountOnMessageInMemory
    transfer_bytes_on_disk: int = 64 * KiB  # maxTransferBytesOnMessageInDisk
    transfer_count_on_disk: int = 8  # maxTransferCountOnMessageInDisk
    filter_bytes_max: int = 16_000  # maxFilterMessageSize
    cq_files_per_read: int = 1  # travelCqFileNumWhenGetMessage
    query_count_max: int = 64  # maxMsgsNumBatch

    def __post_init__(self) -> None:
        _require_file_bytes("segment_bytes", self.segment_bytes, 256, 1)
        _require_file_bytes("cq_file_bytes", self.cq_file_bytes, 20, 20)
        _require_file_bytes("ext_file_bytes", self.ext_file_bytes, 24, 1)
        _require_file_bytes("batch_cq_file_bytes", self.batch_cq_file_bytes, 46, 46)
        for name in ("index_slots", "message_bytes_max", "transient_pool_size", "delete_batch_max"):
            require(name, getattr(self, name), getattr(self, name) >= 1, "must be at least 1")
        require("index_items", self.index_items, self.index_items >= 2, "must be at least 2")
        require("delay_ms", self.delay_ms, len(self.delay_ms) >= 2, "needs at least one level")
        hours_fit = all(0 <= hour <= 23 for hour in self.delete_hours)
        require("delete_hours", self.delete_hours, hours_fit, "must be hours from 0 to 23")
        used_fits = 10 <= self.disk_used_max <= 95
        require("disk_used_max", self.disk_used_max, used_fits, "must be between 10 and 95")

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
        written = {key: _written(key, getattr(self, name)) for key, (name, _) in _KEYS.items()}
        paths = self.commit_log_paths or (self.root / "commitlog",)
        written["storePathCommitLog"] = ",".join(map(str, paths))
        return {"storePathRootDir": str(self.root), **written}

    @property
    def sync_flush(self) -> bool:
        return self.flush_mode is FlushMode.SYNC

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
    for key, (name, _) in _KEYS.items():
        if name == error.setting and key in settings:
            return ConfigError(key, settings[key], error.rule)
    return error


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(Path(part.strip()) for part in text.split(",") if part.strip())


def _cq_file_bytes(text: str) -> int:
    return rounded_file_bytes(int(text))


def _batch_cq_file_bytes(text: str) -> int:
    # As with simple queues: whole units.
    return -(-int(text) // 46) * 46


def _hours(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(";") if part.strip())


def _hours_ms(text: str) -> int:
    return int(text) * HOUR_MS


def _clamped_per_cent(text: str) -> int:
    return min(max(int(text), 10), 95)


def _written(key: str, value: Any) -> str:
    """Return a value as broker.conf has it."""
    match key:
        case "fileReservedTime":
            return str(value // HOUR_MS)
        case "deleteWhen":
            return ";".join(f"{hour:02}" for hour in value)
        case "messageDelayLevel":
            return " ".join(map(_delay_text, value[1:]))
        case "readOnlyCommitLogStorePaths":
            return ",".join(map(str, value))
    return value_text(value)


def _delay_text(delay_ms: int) -> str:
    for unit in ("d", "h", "m"):
        if delay_ms and delay_ms % _UNIT_MS[unit] == 0:
            return f"{delay_ms // _UNIT_MS[unit]}{unit}"
    return f"{delay_ms // SECOND_MS}s"


def _host(address: str, port: str) -> Host:
    import ipaddress

    try:
        return Host(ipaddress.ip_address(address).packed, int(port))
    except ValueError as cause:
        raise ConfigError("brokerIP1", f"{address}:{port}", "must be an IP address") from cause


LIVE_KEYS: Final = frozenset(
    """
    accessMessageInMemoryMaxRatio autoMessageVersionOnTopicLen checkCRCOnRecover
    cleanFileForciblyEnable cleanResourceInterval commitCommitLogLeastPages
    commitCommitLogThoroughInterval commitIntervalCommitLog dataReadAheadEnable
    deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval deleteFileBatchMax deleteWhen
    destroyMapedFileIntervalForcibly diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio
    diskSpaceWarningLevelRatio fileReservedTime flushCommitLogLeastPages
    flushCommitLogThoroughInterval flushCommitLogTimed flushConsumeQueueLeastPages
    flushConsumeQueueThoroughInterval flushIntervalCommitLog flushIntervalConsumeQueue
    flushLeastPagesWhenWarmMapedFile forceVerifyPropCRC logicalDiskSpaceCleanForciblyThreshold
    maxFilterMessageSize maxLmqConsumeQueueNum maxMessageSize maxMsgsNumBatch
    maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory
    maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory osPageCacheBusyTimeOutMills
    redeleteHangedFileInterval replicasPerDiskPartition syncFlushTimeout
    travelCqFileNumWhenGetMessage wakeCommitWhenPutMessage wakeFlushWhenPutMessage
    warmMapedFileEnable
""".split()  # noqa: SIM905  (a list of quoted names is no easier to read)
)
"""Settings that an open store can be given (`MessageStore.reconfigure`).

Those of recovery count at the next start, which is when they are used.
"""

_KEYS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "storePathCommitLog": ("commit_log_paths", _paths),
    "readOnlyCommitLogStorePaths": ("read_only_commit_log_paths", _paths),
    "brokerRole": ("role", Role),
    "mappedFileSizeCommitLog": ("segment_bytes", int),
    "mappedFileSizeConsumeQueue": ("cq_file_bytes", _cq_file_bytes),
    "mappedFileSizeConsumeQueueExt": ("ext_file_bytes", int),
    "mapperFileSizeBatchConsumeQueue": ("batch_cq_file_bytes", _batch_cq_file_bytes),
    "maxHashSlotNum": ("index_slots", int),
    "maxIndexNum": ("index_items", int),
    "maxMessageSize": ("message_bytes_max", int),
    "autoMessageVersionOnTopicLen": ("auto_version", java_boolean),
    "enabledAppendPropCRC": ("property_crc", java_boolean),
    "osPageCacheBusyTimeOutMills": ("page_cache_busy_ms", int),
    "messageDelayLevel": ("delay_ms", parse_delay_levels),
    "enableLmq": ("enable_lmq", java_boolean),
    "enableMultiDispatch": ("enable_multi_dispatch", java_boolean),
    "maxLmqConsumeQueueNum": ("lmq_count_max", int),
    "enableConsumeQueueExt": ("enable_cq_ext", java_boolean),
    "messageIndexEnable": ("index_enabled", java_boolean),
    "messageIndexSafe": ("index_safe", java_boolean),
    "warmMapedFileEnable": ("warm_segments", java_boolean),
    "flushLeastPagesWhenWarmMapedFile": ("warm_flush_pages", int),
    "dataReadAheadEnable": ("read_ahead", java_boolean),
    "transientStorePoolEnable": ("transient_pool", java_boolean),
    "transientStorePoolSize": ("transient_pool_size", int),
    "flushDiskType": ("flush_mode", FlushMode),
    "flushIntervalCommitLog": ("flush_interval_ms", int),
    "flushCommitLogTimed": ("flush_timed", java_boolean),
    "flushCommitLogLeastPages": ("flush_least_pages", int),
    "flushCommitLogThoroughInterval": ("flush_thorough_ms", int),
    "wakeFlushWhenPutMessage": ("wake_flush_on_append", java_boolean),
    "commitIntervalCommitLog": ("commit_interval_ms", int),
    "commitCommitLogLeastPages": ("commit_least_pages", int),
    "commitCommitLogThoroughInterval": ("commit_thorough_ms", int),
    "wakeCommitWhenPutMessage": ("wake_commit_on_append", java_boolean),
    "syncFlushTimeout": ("sync_flush_timeout_ms", int),
    "flushIntervalConsumeQueue": ("queue_flush_interval_ms", int),
    "flushConsumeQueueLeastPages": ("queue_flush_least_pages", int),
    "flushConsumeQueueThoroughInterval": ("queue_flush_thorough_ms", int),
    "readUnCommitted": ("read_uncommitted", java_boolean),
    "dispatch": ("dispatch", DispatchMode),
    "checkCRCOnRecover": ("check_crc_on_recover", java_boolean),
    "forceVerifyPropCRC": ("force_property_crc", java_boolean),
    "deleteWhen": ("delete_hours", _hours),
    "fileReservedTime": ("retention_ms", _hours_ms),
    "cleanResourceInterval": ("clean_interval_ms", int),
    "deleteFileBatchMax": ("delete_batch_max", int),
    "deleteCommitLogFilesInterval": ("delete_pause_ms", int),
    "deleteConsumeQueueFilesInterval": ("queue_delete_pause_ms", int),
    "destroyMapedFileIntervalForcibly": ("destroy_forced_ms", int),
    "redeleteHangedFileInterval": ("redelete_hanged_ms", int),
    "cleanFileForciblyEnable": ("clean_forced", java_boolean),
    "diskMaxUsedSpaceRatio": ("disk_used_max", _clamped_per_cent),
    "diskSpaceCleanForciblyRatio": ("disk_forced", int),
    "diskSpaceWarningLevelRatio": ("disk_warning", int),
    "replicasPerDiskPartition": ("replicas_per_disk", int),
    "logicalDiskSpaceCleanForciblyThreshold": ("logical_disk_forced", float),
    "accessMessageInMemoryMaxRatio": ("in_memory_ratio", int),
    "maxTransferBytesOnMessageInMemory": ("transfer_bytes_in_memory", int),
    "maxTransferCountOnMessageInMemory": ("transfer_count_in_memory", int),
    "maxTransferBytesOnMessageInDisk": ("transfer_bytes_on_disk", int),
    "maxTransferCountOnMessageInDisk": ("transfer_count_on_disk", int),
    "maxFilterMessageSize": ("filter_bytes_max", int),
    "travelCqFileNumWhenGetMessage": ("cq_files_per_read", int),
    "maxMsgsNumBatch": ("query_count_max", int),
}
"""broker.conf key -> (field, how its text becomes a value). storePathRootDir comes as `root`."""

KEYS: Final = frozenset(_KEYS)
"""What has an effect on a store."""
