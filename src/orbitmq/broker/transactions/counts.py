"""HalfCounts: how many transactions of each topic have not ended; saved as config/transactionMetrics."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from orbitmq.clock import Clock
from orbitmq.errors import StateFileError
from orbitmq.wire.bodies.topic_config import DataVersion

COUNTS_FILE: Final = "transactionMetrics"


class HalfCounts:
    """Open transactions by topic. Belongs to the event loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._table: dict[str, tuple[int, int]] = {}  # count, and when it changed
        self._version = DataVersion(timestamp=clock.now_ms())
        self.changes = 0
        self._numbered = 0  # changes that the version counts
        self._changed_ms = 0

    def add(self, topic: str, count: int) -> None:
        """Count transactions that began, or with a negative number that ended."""
        before, _ = self._table.get(topic, (0, 0))
        now = self._clock.now_ms()
        self._table[topic] = before + count, now
        self._changed(now)

    def remove(self, topic: str) -> None:
        """Forget a topic that was deleted."""
        if self._table.pop(topic, None) is not None:
            self._changed(self._clock.now_ms())

    def _changed(self, now: int) -> None:
        self._changed_ms = now
        self.changes += 1

    @property
    def version(self) -> DataVersion:
        """Which state this is; made when somebody asks, since it changes with each transaction."""
        version, changes = self._version, self.changes - self._numbered
        if changes:
            counter = version.counter + changes - 1
            version = msgspec.structs.replace(version, counter=counter).next(self._changed_ms)
            self._version, self._numbered = version, self.changes
        return version

    def snapshot(self) -> dict[str, Any]:
        """Return what transactionMetrics holds."""
        counts = {
            topic: {"count": count, "timeStamp": changed_ms}
            for topic, (count, changed_ms) in self._table.items()
        }
        return {"dataVersion": self.version, "transactionCount": counts}

    def load(self, state: Mapping[str, Any], path: Path) -> None:
        """Take over what transactionMetrics holds. StateFileError: it cannot be understood."""
        try:
            counts = state.get("transactionCount") or {}
            self._table = {
                topic: (int(one["count"]), int(one["timeStamp"])) for topic, one in counts.items()
            }
            self._version = DataVersion.of(state.get("dataVersion") or {})
            self._numbered = self.changes
        except (ValueError, TypeError, KeyError, AttributeError) as cause:
            step = "Move it away: open transactions are then counted anew, none is lost."
            raise StateFileError(path, f"is no table of transactions: {cause}", step) from cause
