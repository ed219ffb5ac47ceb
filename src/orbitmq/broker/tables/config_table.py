"""ConfigTable: configs by name with a version, as topics and groups are kept.

A config in the table is never changed, only replaced: whoever holds one has a snapshot.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from orbitmq.broker.config import BrokerConfig
from orbitmq.clock import Clock
from orbitmq.errors import FieldError, StateFileError
from orbitmq.wire.bodies.body import Body
from orbitmq.wire.bodies.topic_config import DataVersion

C = TypeVar("C", bound=Body)
B = TypeVar("B", bound=Body)


class ConfigTable(ABC, Generic[C]):
    """All configs of a kind. The event loop's thread changes it; any thread may ask for one config."""

    def __init__(self, config: BrokerConfig, clock: Clock, configs: Iterable[C]) -> None:
        self._config, self._clock = config, clock
        self._table = {self.name_of(one): one for one in configs}
        self.version = DataVersion(timestamp=clock.now_ms())
        self.changes = 0
        """Grows with each change: who saves the table remembers what it saved."""
        self.on_change: list[Callable[[str, C | None], None]] = []
        """Called with a name and its new config; None: it was deleted."""

    @abstractmethod
    def name_of(self, config: C) -> str:
        """Return the name under which a config is kept."""

    def get(self, name: str) -> C | None:
        return self._table.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._table

    def all(self) -> Mapping[str, C]:
        return self._table

    def put(self, config: C) -> None:
        """Create or replace one config."""
        self.put_many([config])

    def put_many(self, configs: Iterable[C]) -> None:
        """Create or replace configs; each is a new version of the table, as RocketMQ counts."""
        for config in configs:
            name = self.name_of(config)
            self._table[name] = config
            self._changed(name)

    def delete(self, name: str) -> bool:
        """Remove a config; messages and offsets are the caller's business."""
        if self._table.pop(name, None) is None:
            return False
        self._changed(name)
        return True

    def assign(
        self, configs: Mapping[str, C], version: DataVersion, keep: Callable[[str], bool]
    ) -> list[str]:
        """Become the table that another broker has, with its version; return the names that are gone.

        Names to `keep` stay although the other one does not have them.
        """
        gone = [name for name in self._table if name not in configs and not keep(name)]
        new = [name for name, config in configs.items() if self._table.get(name) != config]
        for name in gone:
            del self._table[name]
        self._table |= {name: configs[name] for name in new}
        self.version = version
        self.changes += 1
        for name in (*gone, *new):
            for listener in self.on_change:
                listener(name, self._table.get(name))
        return gone

    def touch(self) -> None:
        """Count a new version; alone where no config changed, but what name servers are told of them."""
        self.version = self.version.next(self._clock.now_ms())
        self.changes += 1

    def _changed(self, name: str) -> None:
        self.touch()
        for listener in self.on_change:
            listener(name, self._table.get(name))

    def _saved(self, kind: type[B], state: Mapping[str, Any], path: Path, what: str) -> B:
        """Return what a state file holds. StateFileError: it cannot be understood."""
        try:
            return kind.of(state)
        except FieldError as cause:
            step = "Restore the file from a backup, or move it away to start with an empty table."
            raise StateFileError(path, f"is no table of {what}: {cause}", step) from cause
