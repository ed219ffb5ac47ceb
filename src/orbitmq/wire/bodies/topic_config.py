"""Topics as a broker describes them: to name servers, to replicas, to tools and in topics.json."""

from typing import Any, Final, Self

import msgspec

from orbitmq.wire.bodies.body import Body

PERM_INHERIT: Final = 1
"""A new topic may copy this one: TBW102 has it."""
PERM_WRITE: Final = 2
PERM_READ: Final = 4

UNIT_FLAG: Final = 1
UNIT_SUBSCRIBED_FLAG: Final = 2
"""Bits of `topic_sys_flag`."""


class DataVersion(Body):
    """Which state of a table this is: replaced by the next one, never changed."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int, state_version: int = 0) -> Self:
        """Return the version behind this one."""
        return msgspec.structs.replace(
            self, counter=self.counter + 1, timestamp=now_ms, state_version=state_version
        )


class TopicConfig(Body):
    """What a broker knows of one topic."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = {}

    @property
    def is_readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)


class TopicTable(Body):
    """All topics of a broker, or those that changed: body of GET_ALL_TOPIC_CONFIG (21)."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = {}
    mapping_data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_queue_mapping_info_map: dict[str, Any] = {}
    topic_queue_mapping_detail_map: dict[str, Any] = {}


class Registration(Body):
    """Body of REGISTER_BROKER (103)."""

    topic_config_serialize_wrapper: TopicTable = msgspec.field(default_factory=TopicTable)
    filter_server_list: list[str] = []


class TopicConfigList(Body):
    """Body of UPDATE_AND_CREATE_TOPIC_LIST (18)."""

    topic_config_list: list[TopicConfig] = []
