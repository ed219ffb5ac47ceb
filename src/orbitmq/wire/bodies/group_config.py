"""Consumer groups as a broker keeps them: for tools and in subscriptionGroup.json."""

from typing import Any

import msgspec

from orbitmq.wire.bodies.body import Body
from orbitmq.wire.bodies.topic_config import DataVersion


class GroupConfig(Body):
    """What a broker knows of one consumer group (RocketMQ: SubscriptionGroupConfig)."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: dict[str, Any] = msgspec.field(
        default_factory=lambda: {"type": "CUSTOMIZED"}
    )
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: list[dict[str, Any]] | None = None
    attributes: dict[str, str] = {}


class GroupTable(Body):
    """All groups of a broker: answer of GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    forbidden_table: dict[str, dict[str, int]] = {}
    subscription_group_table: dict[str, GroupConfig] = {}


class GroupConfigList(Body):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""

    group_config_list: list[GroupConfig] = []
