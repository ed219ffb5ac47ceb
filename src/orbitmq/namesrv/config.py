"""What a name server can be told, by RocketMQ's keys."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from orbitmq.errors import ConfigError
from orbitmq.net.config import NetConfig
from orbitmq.units import SECOND_MS

DEFAULT_PORT: Final = 9876
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

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("listenPort", self.port, 0, 65535),
            ("scanNotActiveBrokerInterval", self.scan_interval_ms, 1, None),
            ("serverChannelMaxIdleTimeSeconds", self.idle_ms, 1, None),
            ("waitSecondsForService", self.wait_for_service_ms, 0, None),
        ):
            if value < least or (most is not None and value > most):
                rule = f"must be at least {least}" + (f" and at most {most}" if most else "")
                raise ConfigError(name, value, rule)

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], **overrides: Any) -> "NamesrvConfig":
        """Return the config that these keys make. ConfigError: a value cannot work."""
        path = Path.home() / "namesrv" / "kvConfig.json"
        values = {"kv_config_path": path, **_values(settings), **overrides}
        return cls(**values)

    def changed(self, settings: Mapping[str, str]) -> "NamesrvConfig":
        """Return this config with these keys; what has to be known at the start stays as it is."""
        live = {key: value for key, value in settings.items() if key not in _AT_START}
        return replace(self, **_values(live))

    def properties(self) -> dict[str, str]:
        """Return all settings by RocketMQ's keys, in their order."""
        shown = {key: show(getattr(self, name)) for key, (name, _, show) in _KEYS.items()}
        return dict(sorted(shown.items()))

    def is_locked(self, key: str) -> bool:
        """Return whether a key may not be changed from outside."""
        return key in _NEVER_FROM_OUTSIDE or key in self.black_list.split(";")

    @property
    def net(self) -> NetConfig:
        return NetConfig(idle_ms=self.idle_ms)


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


def _show(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _show_seconds(value: int) -> str:
    return str(value // SECOND_MS)


def _show_path(value: Path | None) -> str:
    return "" if value is None else str(value)


_Key = tuple[str, Callable[[str], Any], Callable[[Any], str]]

_KEYS: Final[dict[str, _Key]] = {
    "bindAddress": ("host", str, _show),
    "listenPort": ("port", _read_int, _show),
    "kvConfigPath": ("kv_config_path", Path, _show_path),
    "scanNotActiveBrokerInterval": ("scan_interval_ms", _read_int, _show),
    "orderMessageEnable": ("order_message_enable", _read_bool, _show),
    "returnOrderTopicConfigToBroker": ("return_order_topics", _read_bool, _show),
    "needWaitForService": ("wait_for_service", _read_bool, _show),
    "waitSecondsForService": ("wait_for_service_ms", _read_seconds, _show_seconds),
    "enableAllTopicList": ("list_all_topics", _read_bool, _show),
    "enableTopicList": ("list_topics", _read_bool, _show),
    "deleteTopicWithBrokerRegistration": ("delete_topics_on_registration", _read_bool, _show),
    "supportActingMaster": ("support_acting_master", _read_bool, _show),
    "configBlackList": ("black_list", str, _show),
    "serverChannelMaxIdleTimeSeconds": ("idle_ms", _read_seconds, _show_seconds),
}
_AT_START: Final = frozenset(
    {"bindAddress", "listenPort", "kvConfigPath", "serverChannelMaxIdleTimeSeconds"}
)
_NEVER_FROM_OUTSIDE: Final = frozenset(
    {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
)
