"""GroupTable: the consumer groups of a broker and what they may do.

Saved as config/subscriptionGroup.json.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.tables.config_table import ConfigTable
from orbitmq.clock import Clock
from orbitmq.wire.bodies.group_config import GroupConfig
from orbitmq.wire.bodies.group_config import GroupTable as GroupTableBody

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


class GroupTable(ConfigTable[GroupConfig]):
    """All consumer groups by name. Belongs to the event loop's thread."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        super().__init__(config, clock, (GroupConfig(group_name=name) for name in START_GROUPS))
        self._forbidden: dict[str, dict[str, int]] = {}

    def name_of(self, config: GroupConfig) -> str:
        return config.group_name

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

    def delete(self, name: str) -> bool:
        """Remove a group; its offsets and retry topic are the caller's business."""
        self._forbidden.pop(name, None)
        return super().delete(name)

    def set_forbidden(self, group: str, topic: str, bits: int) -> None:
        """Set what the group may not do with the topic; no bits: it may do everything."""
        topics = self._forbidden.setdefault(group, {})
        if bits > 0:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
        if not topics:
            del self._forbidden[group]
        self._changed(group)

    def take_over(self, told: GroupTableBody) -> None:
        """Become the table that a primary tells."""
        if told.forbidden_table != self._forbidden:
            self._forbidden = {group: dict(row) for group, row in told.forbidden_table.items()}
        self.assign(told.subscription_group_table, told.data_version, START_GROUPS.__contains__)

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
        body = self._saved(GroupTableBody, state, path, "groups")
        self._table |= body.subscription_group_table
        self._forbidden |= body.forbidden_table
        self.version = body.data_version
