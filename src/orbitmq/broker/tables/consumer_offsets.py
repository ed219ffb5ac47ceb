"""ConsumerOffsets: how far each group has read each queue.

Saved as config/consumerOffset.json. An offset is never ahead of what a consumer acknowledged: it comes
from the consumer itself, or from an operator's reset.

Pending resets: `reset` sets an offset that its consumer does not know of yet. Until a pull takes it
(`take_reset`), what the consumer reports comes from before the reset and is passed over.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from orbitmq.clock import Clock
from orbitmq.errors import FieldError, StateFileError
from orbitmq.wire.bodies.offsets import OffsetTable
from orbitmq.wire.bodies.topic_config import DataVersion

logger = logging.getLogger(__name__)

SEPARATOR: Final = "@"
VERSION_STEP: Final = 500  # consumerOffsetUpdateVersionStep: offsets per version
NO_OFFSET: Final = -1

Offsets = dict[int, int]
"""Queue id -> next queue offset."""


class ConsumerOffsets:
    """Offsets by topic and group. Belongs to the event loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._table: dict[tuple[str, str], Offsets] = {}  # (topic, group)
        self._resets: dict[tuple[str, str], Offsets] = {}
        self._pulls: dict[tuple[str, str], Offsets] = {}
        self.version = DataVersion(timestamp=clock.now_ms())
        self.changes = 0

    # Asking

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """Return the next offset that the group reads, a pending reset before all; -1: none known."""
        key = topic, group
        if self._resets:
            reset = self._resets.get(key)
            if reset is not None and queue_id in reset:
                return reset[queue_id]
        row = self._table.get(key)
        return row.get(queue_id, NO_OFFSET) if row is not None else NO_OFFSET

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the offsets of all queues of a topic that the group has any for."""
        return self._table.get((topic, group), {})

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have offsets of a topic."""
        return {group for name, group in self._table if name == topic}

    def topics_of(self, group: str) -> set[str]:
        """Return the topics that a group has offsets of."""
        return {topic for topic, name in self._table if name == group}

    def all(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """Return every row by (topic, group)."""
        return self._table

    # Consumers

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Set an offset that a consumer reports, smaller ones too. False: a reset is pending."""
        key = topic, group
        if self._resets and queue_id in self._resets.get(key, ()):
            return False
        row = self._table.get(key)
        if row is None:
            row = self._table[key] = {}
        row[queue_id] = offset
        self._count()
        return True

    def remember_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note from where the group pulled last; it is not saved."""
        key = topic, group
        row = self._pulls.get(key)
        if row is None:
            row = self._pulls[key] = {}
        row[queue_id] = offset

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return from where the group pulled last; before its first pull, where it would go on."""
        row = self._pulls.get((topic, group))
        if row is not None and queue_id in row:
            return row[queue_id]
        return self.get(group, topic, queue_id)

    # Operators

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset that the group's next pull of the queue has to follow."""
        self._table.setdefault((topic, group), {})[queue_id] = offset
        self._resets.setdefault((topic, group), {})[queue_id] = offset
        self._count()

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset of a pending reset and end its pending; None: there is none."""
        if not self._resets:
            return None
        row = self._resets.get((topic, group))
        if row is None or queue_id not in row:
            return None
        offset = row.pop(queue_id)
        if not row:
            del self._resets[topic, group]
        return offset

    def assign(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset without a pending reset: the group is told by other means, or is offline."""
        self._table.setdefault((topic, group), {})[queue_id] = offset
        self._count()

    def merge(self, told: OffsetTable, before: OffsetTable) -> None:
        """Take over what another broker tells of offsets: the greater of both, queue by queue.

        A smaller one counts only where that broker told a greater one `before`: somebody reset it there.
        ValueError: a row is not named topic@group.
        """
        rows = {
            _key(name): (row, before.offset_table.get(name, {}))
            for name, row in told.offset_table.items()
        }
        for key, (row, row_before) in rows.items():
            mine = self._table.setdefault(key, {})
            for queue_id, offset in row.items():
                is_reset = offset < row_before.get(queue_id, NO_OFFSET)
                wanted = offset if is_reset else max(offset, mine.get(queue_id, NO_OFFSET))
                if mine.get(queue_id) != wanted:
                    mine[queue_id] = wanted
                    self._count()

    def clear(self) -> None:
        """Forget everything."""
        self._remove(list(self._keys()))

    def limit(self, end: Callable[[str, int], int]) -> None:
        """Take back offsets beyond the end of their queue."""
        for (topic, _), row in self._table.items():
            for queue_id, offset in row.items():
                if offset > end(topic, queue_id):
                    row[queue_id] = end(topic, queue_id)
                    self._count()

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give one group the offsets of another."""
        row = self._table.get((topic, source))
        if row is not None:
            self._table[topic, target] = dict(row)
            self._count()

    def remove_group(self, group: str) -> None:
        """Forget everything of a group."""
        self._remove([key for key in self._keys() if key[1] == group])

    def remove_topic(self, topic: str) -> None:
        """Forget everything of a topic."""
        self._remove([key for key in self._keys() if key[0] == topic])

    def _keys(self) -> set[tuple[str, str]]:
        return self._table.keys() | self._resets.keys() | self._pulls.keys()

    def _remove(self, keys: list[tuple[str, str]]) -> None:
        for key in keys:
            self._table.pop(key, None)
            self._resets.pop(key, None)
            self._pulls.pop(key, None)
        if keys:
            self.changes += 1

    def _count(self) -> None:
        self.changes += 1
        if self.changes % VERSION_STEP == 0:
            self.version = self.version.next(self._clock.now_ms())

    # Saving

    def snapshot(self) -> dict[str, Any]:
        """Return what consumerOffset.json holds, as it is now."""
        topics: dict[str, list[str]] = {}
        for topic, group in self._table:
            topics.setdefault(group, []).append(topic)
        rows = {
            f"{topic}{SEPARATOR}{group}": dict(row) for (topic, group), row in self._table.items()
        }
        return {"dataVersion": self.version, "groupTopicMap": topics, "offsetTable": rows}

    def body(self) -> OffsetTable:
        state = self.snapshot()
        return OffsetTable(
            data_version=state["dataVersion"],
            group_topic_map=state["groupTopicMap"],
            offset_table=state["offsetTable"],
        )

    def load(self, state: Mapping[str, Any], path: Path) -> None:
        """Take over what consumerOffset.json holds. StateFileError: it cannot be understood."""
        table = state.get("offsetTable") or {}
        try:
            rows = {_key(name): _row(row) for name, row in table.items()}
            self.version = DataVersion.of(state.get("dataVersion") or {})
        except (FieldError, ValueError, TypeError, AttributeError) as cause:
            step = "Restore it from a backup, or move it away: all groups then start anew."
            raise StateFileError(path, f"is no table of offsets: {cause}", step) from cause
        self._table |= rows


def _key(name: str) -> tuple[str, str]:
    topic, separator, group = name.partition(SEPARATOR)
    if not separator:
        raise ValueError(f"{name!r} is not topic@group")
    return topic, group


def _row(row: Mapping[str, Any]) -> Offsets:
    return {int(queue_id): int(offset) for queue_id, offset in row.items()}
