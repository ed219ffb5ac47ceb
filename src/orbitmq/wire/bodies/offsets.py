"""Offsets of all groups, as a broker gives them to a replica."""

import msgspec

from orbitmq.wire.bodies.body import Body
from orbitmq.wire.bodies.topic_config import DataVersion


class OffsetTable(Body):
    """Answer of GET_ALL_CONSUMER_OFFSET (43); rows are named topic@group."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    group_topic_map: dict[str, list[str]] = {}
    offset_table: dict[str, dict[int, int]] = {}


class DelayOffsets(Body):
    """Answer of GET_ALL_DELAY_OFFSET (45): progress by delay level."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    offset_table: dict[int, int] = {}
