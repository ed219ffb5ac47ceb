"""Settings of a name server, by RocketMQ's keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from orbitmq.logs.config import LogConfig
from orbitmq.net.config import NetConfig
from orbitmq.setting_keys import LOG_KEYS, NAMESRV_KEYS
from orbitmq.settings import (
    STRICT_READERS,
    field_texts,
    field_values,
    key,
    keys_of,
    load_settings,
    require,
    require_least,
)
from orbitmq.units import SECOND_MS

DEFAULT_PORT: Final = 9876
KEPT_FILE: Final = "orbitmq.namesrv.properties"
"""Beside kvConfig.json: changed settings of a name server that was started without a file of its own."""
BROKER_EXPIRES_MS: Final = 120 * SECOND_MS
"""How long a broker may be silent if it does not say so itself."""


def _show_path(value: Path | None) -> str:
    return "" if value is None else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
    """Settings of a name server (RocketMQ's key beside each)."""

    host: str = key("bindAddress", "0.0.0.0")
    port: int = key("listenPort", DEFAULT_PORT)  # 0 takes a free one
    # None: the table ends with the process.
    kv_config_path: Path | None = key("kvConfigPath", None, read=Path, show=_show_path)
    scan_interval_ms: int = key("scanNotActiveBrokerInterval", 5 * SECOND_MS, least=1)
    # Routes tell where ordered topics live.
    order_message_enable: bool = key("orderMessageEnable", False)
    return_order_topics: bool = key("returnOrderTopicConfigToBroker", True)
    wait_for_service: bool = key("needWaitForService", False)  # no routes right after the start
    wait_for_service_ms: int = key("waitSecondsForService", 45 * SECOND_MS, unit=SECOND_MS, least=0)
    list_all_topics: bool = key("enableAllTopicList", True)
    list_topics: bool = key("enableTopicList", True)
    delete_topics_on_registration: bool = key("deleteTopicWithBrokerRegistration", False)
    support_acting_master: bool = key("supportActingMaster", False)
    black_list: str = key("configBlackList", "configBlackList;configStorePath;kvConfigPath")
    idle_ms: int = key("serverChannelMaxIdleTimeSeconds", 120 * SECOND_MS, unit=SECOND_MS, least=1)
    graceful_stop: bool = key("enableShutdownGracefully", False)  # a stop sends clients away first
    # And waits so long for them.
    graceful_stop_ms: int = key("shutdownWaitTimeSeconds", 30 * SECOND_MS, unit=SECOND_MS, least=0)

    logs: LogConfig = field(default_factory=LogConfig)
    given: Mapping[str, str] = field(default_factory=dict)
    """Keys that were given and have no effect here."""
    file: Path | None = None  # the configuration file; changes are kept there
    stronger: Mapping[str, str] = field(default_factory=dict)
    """Keys that flags or the environment set, and where: at a start they win over the file."""

    def __post_init__(self) -> None:
        port_fits = 0 <= self.port <= 65535
        require("listenPort", self.port, port_fits, "must be at least 0 and at most 65535")
        require_least(self, _KEYS)

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], **overrides: Any) -> "NamesrvConfig":
        """Return the config that these keys make. ConfigError: a value cannot work."""
        values = {"kv_config_path": _kv_path(settings), **field_values(settings, _KEYS, "{}")}
        parts = {"given": _without_effect(settings), "logs": LogConfig.from_settings(settings)}
        return cls(**{**values, **parts, **overrides})

    @classmethod
    def load(cls, file: Path | None, flags: Mapping[str, object]) -> "NamesrvConfig":
        """Return the config of a name server that is started with this file and these flags.

        Without a file, what was changed while it ran lies beside its kvConfig.json. ConfigError: a
        value cannot work, or the file cannot be read.
        """
        settings = load_settings(file, flags=flags)
        if file is None:
            settings.add_file(_kv_path(settings).parent / KEPT_FILE)
        return cls.from_settings(settings, file=file, stronger=settings.stronger_than_files())

    @property
    def kept_file(self) -> Path | None:
        """Where changes of settings are kept for the next start; None: they end with the process."""
        if self.file is not None or self.kv_config_path is None:
            return self.file
        return self.kv_config_path.parent / KEPT_FILE

    def changed(self, settings: Mapping[str, str]) -> "NamesrvConfig":
        """Return this config with these keys. ConfigError: a value cannot work."""
        given = {**self.given, **_without_effect(settings)}
        logs = self.logs.changed(settings)
        return replace(self, **field_values(settings, _KEYS, "{}"), given=given, logs=logs)

    def properties(self) -> dict[str, str]:
        """Return all settings by RocketMQ's keys, in their order."""
        kept = {"configStorePath": _show_path(self.kept_file)}
        own = {**field_texts(self, _KEYS), **self.logs.properties()}
        return dict(sorted({**self.given, **own, **kept}.items()))

    def is_locked(self, key: str) -> bool:
        """Return whether a key may not be changed from outside."""
        return key in _NEVER_FROM_OUTSIDE or key in self.black_list.split(";")

    @property
    def net(self) -> NetConfig:
        return NetConfig(idle_ms=self.idle_ms)


def _kv_path(settings: Mapping[str, str]) -> Path:
    return Path(settings.get("kvConfigPath") or Path.home() / "namesrv" / "kvConfig.json")


def _without_effect(settings: Mapping[str, str]) -> dict[str, str]:
    idle = KNOWN_KEYS - _KEYS.keys() - LOG_KEYS - {"configStorePath"}
    return {key: value for key, value in settings.items() if key in idle}


_KEYS: Final = keys_of(NamesrvConfig, STRICT_READERS)
_NETTY_KEYS: Final = frozenset(
    """
    serverAsyncSemaphoreValue serverCallbackExecutorThreads serverNettyWorkerGroupEnable
    serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads
    serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
    shutdownWaitTimeSeconds useEpollNativeSelector writeBufferHighWaterMark writeBufferLowWaterMark
""".split()  # noqa: SIM905  (a list of quoted names is no easier to read)
)
KNOWN_KEYS: Final = NAMESRV_KEYS | _NETTY_KEYS | LOG_KEYS
"""Keys of RocketMQ's name server, and ours."""
FIXED_KEYS: Final = frozenset({"bindAddress", "listenPort", "serverChannelMaxIdleTimeSeconds"})
"""What counts at a start only."""
LIVE_KEYS: Final = (_KEYS.keys() | LOG_KEYS) - FIXED_KEYS - {"kvConfigPath", "configBlackList"}
"""What a running name server follows as soon as it is changed."""
_NEVER_FROM_OUTSIDE: Final = frozenset(
    {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
)
