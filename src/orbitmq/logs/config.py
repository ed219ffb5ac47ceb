"""Settings of a server's log. RocketMQ has none of them: it leaves that to a file of its logging library."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orbitmq.setting_keys import LOG_KEYS
from orbitmq.settings import STRICT_READERS, field_texts, field_values, key, keys_of, require_least
from orbitmq.units import SECOND_MS, MiB

LEVELS: Final = ("debug", "info", "warning", "error")


def _level(text: str) -> str:
    if text.lower() not in LEVELS:
        raise ValueError(f"must be one of {', '.join(LEVELS)}")
    return text.lower()


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _path_text(path: Path | None) -> str:
    return "" if path is None else str(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """What is logged, and where. A running server follows the changes of each."""

    level: str = key("logLevel", "info", read=_level)
    # None: standard error.
    file: Path | None = key("logFile", None, read=_path, show=_path_text)
    # A longer file is renamed to NAME.1, that one to NAME.2, ... ; 0: somebody else rotates.
    file_bytes: int = key("logFileBytes", 128 * MiB, least=0)
    file_count: int = key("logFileCount", 10, least=1)  # old files that are kept
    # A request that keeps the loop so long is logged; 0: every request.
    slow_request_ms: int = key("slowRequestMillis", SECOND_MS // 2, least=0)

    def __post_init__(self) -> None:
        require_least(self, _KEYS)

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> "LogConfig":
        """Return the config that these keys make. ConfigError: a value cannot work."""
        return cls(**field_values(settings, _KEYS, "{}"))

    def changed(self, settings: Mapping[str, str]) -> "LogConfig":
        """Return this config with these keys. ConfigError: a value cannot work."""
        return replace(self, **field_values(settings, _KEYS, "{}"))

    def properties(self) -> dict[str, str]:
        """Return the settings as texts."""
        return field_texts(self, _KEYS)


_KEYS: Final = keys_of(LogConfig, STRICT_READERS)
assert _KEYS.keys() == LOG_KEYS
