"""Settings of a name server, by RocketMQ's keys."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from orbitmq.errors import ConfigError
from orbitmq.net.config import NetConfig
from orbitmq.setting_keys import NAMESRV_KEYS
from orbitmq.settings import load_settings, value_text
from orbitmq.units import SECOND_MS

DEFAULT_PORT: Final = 9876
KEPT_FILE: Final = "orbitmq.namesrv.properties"
"""Beside kvConfig.json: changed settings of a name server that was started without a file of its own."""
BROKER_EXPIRES_MS: Final = 120 * SECOND_MS
"""How long a broker may be silent if it does not say so itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
    """Settings of a name server (RocketMQ's key beside each)."""

    host: str = "0.0.0.0"  # bindAddress
    port: int = DEFAULT_PORT  # listenPort; 0 takes a free one
    kv_config_path: Path | None = None  # kvConfigPath; None: the table ends with the process
    scan_interval_ms: int = 5 * SECOND_MS  # scanNotActiveBrokerInterval
    order_message_enable: bool = False  # orderMessageEnable: routes tell where ordered topics live
    return_order_topics: bool = True  # returnOrderTopicConfigToBroker
    wait_for_service: bool = False  # needWaitForService: no routes right after the start
    wait_for_service_ms: int = 45 * SECOND_MS  # waitSecondsForService
    list_all_topics: bool = True  # enableAllTopicList
    list_topics: bool = True  # enableTopicList
    delete_topics_on_registration: bool = False  # deleteTopicWithBrokerRegistration
    support_acting_master: bool = False  # supportActingMaster
    black_list: str = "configBlackList;configStorePath;kvConfigPath"  # configBlackList
    idle_ms: int = 120 * SECOND_MS  # serverChannelMaxIdleTimeSeconds
    graceful_stop: bool = False  # enableShutdownGracefully: a stop sends clients away first
    graceful_stop_ms: int = 30 * SECOND_MS  # shutdownWaitTimeSeconds: and waits so long for them

    given: Mapping[str, str] = field(default_factory=dict)
    """Keys that were given and have no effect here."""
    file: Path | None = None  # the configuration file; changes are kept there
    stronger: Mapping[str, str] = field(default_factory=dict)
    """Keys that flags or the environment set, and where: at a start they win over the file."""

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("listenPort", self.port, 0, 65535),
            ("scanNotActiveBrokerInterval", self.scan_interval_ms, 1, None),
            ("serverChannelMaxIdleTimeSeconds", self.idle_ms, 1, None),
            ("waitSecondsForService", self.wait_for_service_ms, 0, None),
            ("shutdownWaitTimeSeconds", self.graceful_stop_ms, 0, None),
        ):
            if value < least or (most is not None and value > most):
                rule = f"must be at least {least}" + (f" and at most {most}" if most else "")
                raise ConfigError(name, value, rule)

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], **overrides: Any) -> "NamesrvConfig":
        """Return the config that these keys make. ConfigError: a value cannot work."""
        values = {"kv_config_path": _kv_path(settings), **_values(settings)}
        return cls(**{**values, "given": _without_effect(settings), **overrides})

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
        return replace(self, **_values(settings), given=given)

    def properties(self) -> dict[str, str]:
        """Return all settings by RocketMQ's keys, in their order."""
        shown = {key: show(getattr(self, name)) for key, (name, _, show) in _KEYS.items()}
        path = _show_path(self.kept_file)
        return dict(sorted({**self.given, **shown, "configStorePath": path}.items()))

    def is_locked(self, key: str) -> bool:
        """Return whether a key may not be changed from outside."""
        return key in _NEVER_FROM_OUTSIDE or key in self.black_list.split(";")

    @property
    def net(self) -> NetConfig:
        return NetConfig(idle_ms=self.idle_ms)


def _kv_path(settings: Mapping[str, str]) -> Path:
    return Path(settings.get("kvConfigPath") or Path.home() / "namesrv" / "kvConfig.json")


def _without_effect(settings: Mapping[str, str]) -> dict[str, str]:
    idle = KNOWN_KEYS - _KEYS.keys() - {"configStorePath"}
    return {key: value for key, value in settings.items() if key in idle}


def _values(settings: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for key, text in settings.items():
        if key in _KEYS:
            name, read, _ = _KEYS[key]
            try:
                found[name] = read(text.strip())
            except ValueError as cause:
                raise ConfigError(key, text, str(cause)) from cause
    return found


def _read_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None


def _read_seconds(text: str) -> int:
    return _read_int(text) * SECOND_MS


def _read_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _show_seconds(value: int) -> str:
    return str(value // SECOND_MS)


def _show_path(value: Path | None) -> str:
    return "" if value is None else str(value)


_Key = tuple[str, Callable[[str], Any], Callable[[Any], str]]

_KEYS: Final[dict[str, _Key]] = {
    "bindAddress": ("host", str, value_text),
    "listenPort": ("port", _read_int, value_text),
    "kvConfigPath": ("kv_config_path", Path, _show_path),
    "scanNotActiveBrokerInterval": ("scan_interval_ms", _read_int, value_text),
    "orderMessageEnable": ("order_message_enable", _read_bool, value_text),
    "returnOrderTopicConfigToBroker": ("return_order_topics", _read_bool, value_text),
    "needWaitForService": ("wait_for_service", _read_bool, value_text),
    "waitSecondsForService": ("wait_for_service_ms", _read_seconds, _show_seconds),
    "enableAllTopicList": ("list_all_topics", _read_bool, value_text),
    "enableTopicList": ("list_topics", _read_bool, value_text),
    "deleteTopicWithBrokerRegistration": ("delete_topics_on_registration", _read_bool, value_text),
    "supportActingMaster": ("support_acting_master", _read_bool, value_text),
    "configBlackList": ("black_list", str, value_text),
    "serverChannelMaxIdleTimeSeconds": ("idle_ms", _read_seconds, _show_seconds),
    "enableShutdownGracefully": ("graceful_stop", _read_bool, value_text),
    "shutdownWaitTimeSeconds": ("graceful_stop_ms", _read_seconds, _show_seconds),
}
_NETTY_KEYS: Final = frozenset(
    """
    serverAsyncSemaphoreValue serverCallbackExecutorThreads serverNettyWorkerGroupEnable
    serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads
    serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
    shutdownWaitTimeSeconds useEpollNativeSelector writeBufferHighWaterMark writeBufferLowWaterMark
""".split()  # noqa: SIM905  (a list of quoted names is no easier to read)
)
KNOWN_KEYS: Final = NAMESRV_KEYS | _NETTY_KEYS
"""Keys of RocketMQ's name server."""
FIXED_KEYS: Final = frozenset({"bindAddress", "listenPort", "serverChannelMaxIdleTimeSeconds"})
"""What counts at a start only."""
LIVE_KEYS: Final = _KEYS.keys() - FIXED_KEYS - {"kvConfigPath", "configBlackList"}
"""What a running name server follows as soon as it is changed."""
_NEVER_FROM_OUTSIDE: Final = frozenset(
    {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
)
