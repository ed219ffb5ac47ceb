"""Full index files, mapped for reading; only a few stay mapped."""

from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Final

import numpy as np

from orbitmq.files.disk import Disk
from orbitmq.format.columns import Bytes

MAPS_MAX: Final = 8


class IndexMaps:
    """A bounded cache of read-only maps. Any thread may use it."""

    def __init__(self, disk: Disk, maps_max: int = MAPS_MAX) -> None:
        self._disk = disk
        self._maps_max = maps_max
        self._lock = Lock()  # guards the table
        self._maps: OrderedDict[str, Bytes] = OrderedDict()

    def get(self, path: str) -> Bytes:
        """Return the bytes of a file. A map goes away with its last user, so none is ever pulled away."""
        with self._lock:
            found = self._maps.get(path)
            if found is not None:
                self._maps.move_to_end(path)
                return found
        mapped = self._map(path)
        with self._lock:
            self._maps[path] = mapped
            while len(self._maps) > self._maps_max:
                self._maps.popitem(last=False)
        return mapped

    def _map(self, path: str) -> Bytes:
        fd = self._disk.open(Path(path), writable=False)
        try:
            length = self._disk.length(path, fd)
            mapped = self._disk.map(Path(path), fd, length, writable=False)
        finally:
            self._disk.close(Path(path), fd)
        return np.frombuffer(mapped, dtype=np.uint8)

    def forget(self, path: str) -> None:
        with self._lock:
            self._maps.pop(path, None)

    def clear(self) -> None:
        with self._lock:
            self._maps.clear()
