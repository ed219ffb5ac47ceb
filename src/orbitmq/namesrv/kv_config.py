"""KvConfig: texts by namespace and key that a name server keeps for others, in kvConfig.json.

The file is RocketMQ's: `{"configTable":{"ORDER_TOPIC_CONFIG":{"Orders":"broker-a:4"}}}`.
"""

from pathlib import Path
from typing import Any

from orbitmq.errors import StateFileError
from orbitmq.files.disk import Disk
from orbitmq.files.state_file import read_state, write_state

Namespaces = dict[str, dict[str, str]]


class KvConfig:
    """The table. `save` may run in another thread, on a snapshot; all else belongs to one thread."""

    def __init__(self, path: Path | None = None, *, disk: Disk | None = None) -> None:
        self._path, self._disk = path, disk or Disk()
        self._table: Namespaces = {}

    def load(self) -> None:
        """Read the file, if there is one. StateFileError: it is there and cannot be understood."""
        if self._path is not None:
            self._table = _table_of(self._path, read_state(self._path, disk=self._disk))

    def put(self, namespace: str, key: str, value: str) -> None:
        self._table.setdefault(namespace, {})[key] = value

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        self._table.get(namespace, {}).pop(key, None)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return a copy of one namespace; None: nobody ever put anything there."""
        found = self._table.get(namespace)
        return None if found is None else dict(found)

    def snapshot(self) -> Namespaces:
        return {namespace: dict(values) for namespace, values in self._table.items()}

    def save(self, table: Namespaces) -> None:
        """Write a snapshot to the file; durable when this returns. StoreError: it could not be."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_state(self._disk, self._path, {"configTable": table})


def _table_of(path: Path, state: dict[str, Any]) -> Namespaces:
    table = state.get("configTable", {})
    if isinstance(table, dict) and all(isinstance(values, dict) for values in table.values()):
        return {
            namespace: {key: str(value) for key, value in values.items()}
            for namespace, values in table.items()
        }
    step = "Restore it from its .bak or a backup, or move it away to start with an empty table."
    raise StateFileError(path, "is no table of namespaces with texts", step)
