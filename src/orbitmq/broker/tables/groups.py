"""GroupTable: the consumer groups of a broker and what they may do.

Saved as config/subscriptionGroup.json. A config in the table is never changed, only replaced.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from orbitmq.broker.config import BrokerConfig
from orbitmq.clock import Clock
from orbitmq.errors import FieldError, StateFileError
from orbitmq.wire.bodies.group_config import GroupConfig
from orbitmq.wire.bodies.group_config import GroupTable as GroupTableBody
from orbitmq.wire.bodies.topic_config import DataVersion

logger = logging.getLogger(__name__)

GROUP_CHARACTERS_MAX: Final = 120
_GROUP_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")

START_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
"""Groups that every broker has from the start."""


def group_name_problem(group: str) -> str | None:
    """Return what is wrong with a group's name, or None."""
    if not group.strip():
        return "The specified group is blank."
    if len(group) > GROUP_CHARACTERS_MAX:
        return f"The specified group is longer than group max length: {GROUP_CHARACTERS_MAX}."
    if not _GROUP_NAME.fullmatch(group):
        return "The specified group contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    return None


class GroupTable:
    """All consumer groups by name. Belongs to the event loop's thread."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._table = {name: GroupConfig(group_name=name) for name in START_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}
        self.version = DataVersion(timestamp=clock.now_ms())
        self.changes = 0
        self.on_change: list[Callable[[], None]] = []

    # Asking

    def get(self, group: str) -> GroupConfig | None:
        return self._table.get(group)

    def __contains__(self, group: str) -> bool:
        return group in self._table

    def all(self) -> Mapping[str, GroupConfig]:
        return self._table

    def get_or_create(self, group: str) -> GroupConfig | None:
        """Return the group, a new one where that is allowed; None: unknown, or no name for a group."""
        known = self._table.get(group)
        if known is not None:
            return known
        if not self._config.auto_create_group or group_name_problem(group) is not None:
            return None
        logger.info("group %s: created", group)
        created = GroupConfig(group_name=group)
        self.put(created)
        return created

    def forbidden(self, group: str, topic: str) -> int:
        """Return the bits of what the group may not do with the topic; bit 1 << n is action n."""
        return max(self._forbidden.get(group, {}).get(topic, 0), 0)

    # Changing

    def put(self, config: GroupConfig) -> None:
        """Create or replace one group."""
        self.put_many([config])

    def put_many(self, configs: Iterable[GroupConfig]) -> None:
        for config in configs:
            self._table[config.group_name] = config
            self._bump()

    def delete(self, group: str) -> bool:
        """Remove a group; its offsets and retry topic are the caller's business."""
        self._forbidden.pop(group, None)
        if self._table.pop(group, None) is None:
            return False
        self._bump()
        return True

    def set_forbidden(self, group: str, topic: str, bits: int) -> None:
        """Set what the group may not do with the topic; no bits: it may do everything."""
        topics = self._forbidden.setdefault(group, {})
        if bits > 0:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
        if not topics:
            del self._forbidden[group]
        self._bump()

    # Saving

    def body(self) -> GroupTableBody:
        return GroupTableBody(
            data_version=self.version,
            forbidden_table=self._forbidden,
            subscription_group_table=self._table,
        )

    def snapshot(self) -> dict[str, Any]:
        """Return what subscriptionGroup.json holds; its parts never change."""
        return {
            "dataVersion": self.version,
            "forbiddenTable": {group: dict(row) for group, row in self._forbidden.items()},
            "subscriptionGroupTable": dict(self._table),
        }

    def load(self, state: Mapping[str, Any], path: Path) -> None:
        """Take over what subscriptionGroup.json holds. StateFileError: it cannot be understood."""
        if not state:
            return
        try:
            body = GroupTableBody.of(state)
        except FieldError as cause:
            step = "Restore the file from a backup, or move it away to start with an empty table."
            raise StateFileError(path, f"is no table of groups: {cause}", step) from cause
        self._table |= body.subscription_group_table
        self._forbidden |= body.forbidden_table
        self.version = body.data_version

    def _bump(self) -> None:
        self.version = self.version.next(self._clock.now_ms())
        self.changes += 1
        for listener in self.on_change:
            listener()
