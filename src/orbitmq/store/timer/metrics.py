"""How many messages of each topic wait in the wheel; saved as config/timermetrics."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from orbitmq.errors import StateFileError

METRICS_FILE: Final = "timermetrics"


class TimerMetrics:
    """Counts by topic. Belongs to one thread. They are figures for people: a kill may leave them behind."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._counts: dict[str, list[int]] = {}  # topic -> how many, changed when
        self._version = {"counter": 0, "stateVersion": 0, "timestamp": now_ms()}
        self.changes = 0

    def add(self, topic: str, change: int) -> None:
        """Count a message of this topic that waits from now on (1), or no longer (-1)."""
        row = self._counts.setdefault(topic, [0, 0])
        row[0] += change
        row[1] = self._now_ms()
        self.changes += 1

    def count(self, topic: str) -> int:
        return self._counts[topic][0] if topic in self._counts else 0

    def clear(self) -> None:
        """Count from nothing: the wheel is empty."""
        self._counts = {}
        self.changes += 1

    def snapshot(self) -> dict[str, Any]:
        """Return what the file holds, and GET_TIMER_METRICS (61) answers."""
        version = {
            "counter": self._version["counter"] + self.changes,
            "stateVersion": self._version["stateVersion"],
            "timestamp": max((row[1] for row in self._counts.values()), default=self._now_ms()),
        }
        counts = {
            topic: {"count": count, "timeStamp": changed_ms}
            for topic, (count, changed_ms) in sorted(self._counts.items())
        }
        return {"dataVersion": version, "timingCount": counts}

    def take_over(self, told: Mapping[str, Any]) -> None:
        """Count as a primary does. ValueError: it cannot be understood."""
        try:
            self.load(told, Path(METRICS_FILE))
        except StateFileError as cause:
            raise ValueError(cause.what) from cause
        self.changes += 1

    def load(self, state: Mapping[str, Any], path: Path) -> None:
        """Take over what was saved. StateFileError: it cannot be understood."""
        try:
            self._version |= {k: int(v) for k, v in (state.get("dataVersion") or {}).items()}
            self._counts = {
                str(topic): [int(row["count"]), int(row["timeStamp"])]
                for topic, row in (state.get("timingCount") or {}).items()
            }
        except (ValueError, TypeError, AttributeError, KeyError) as cause:
            step = "Move it away: the counts begin anew, no message is lost."
            raise StateFileError(path, f"is no table of counts: {cause}", step) from cause
