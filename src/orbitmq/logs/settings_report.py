"""A server says its settings at its start: all of them, and which are not the default."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol, Self

logger = logging.getLogger("orbitmq.settings")

_PLACES: Final = ("storePathRootDir", "kvConfigPath")
"""Other defaults follow from these: only they themselves count as changed."""
_NOT_SETTINGS: Final = frozenset({"configStorePath"})


class ServerConfig(Protocol):
    """What the configs of brokers and name servers have in common."""

    @property
    def stronger(self) -> Mapping[str, str]: ...

    @property
    def kept_file(self) -> Path | None: ...

    def properties(self) -> dict[str, str]: ...

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> Self: ...


def log_settings(config: ServerConfig) -> None:
    """Log all settings in one record: `settings`, and `changed` with the default and who set it.

    Secret ones are hidden by whoever writes the line.
    """
    now = {
        name: value
        for name, value in sorted(config.properties().items())
        if name not in _NOT_SETTINGS
    }
    defaults = _defaults(config, now)
    changed = {
        name: {"default": defaults.get(name, "-"), "from": _source(config, name)}
        for name, value in now.items()
        if defaults.get(name) != value
    }
    logger.info("settings", extra={"settings": now, "changed": changed})


def _defaults(config: ServerConfig, now: Mapping[str, str]) -> dict[str, str]:
    places = {name: now[name] for name in _PLACES if name in now}
    plain = type(config).from_settings({}).properties()
    there = type(config).from_settings(places).properties()
    return there | {name: plain[name] for name in places}


def _source(config: ServerConfig, name: str) -> str:
    if name in config.stronger or config.kept_file is None:
        return config.stronger.get(name, "-")
    return config.kept_file.name
