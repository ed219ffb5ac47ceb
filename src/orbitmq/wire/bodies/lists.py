"""Plain lists and tables of texts, which many conversations answer with."""

from typing import Final

from orbitmq.wire.bodies.body import Body

SERVICE_PREFIX: Final = "service_"
"""Ours: what the names of services begin with among a broker's runtime figures (28)."""


class TopicList(Body):
    """Names of topics; `broker_addr` is some primary where a name server could tell (304)."""

    topic_list: list[str] = []
    broker_addr: str | None = None


class GroupList(Body):
    """Names of groups: body of QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    group_list: list[str] = []


class KvTable(Body):
    """Names and texts: one namespace of the key-value config, a broker's runtime figures (28)."""

    table: dict[str, str] = {}
