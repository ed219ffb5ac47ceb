"""Who is online: clients of groups as tools are told."""

from typing import Any

import msgspec

from orbitmq.wire.bodies.body import Body


class ClientConnection(Body):
    """One client of a group."""

    client_id: str
    client_addr: str
    language: str = "OTHER"
    version: int = 0


class ConsumerConnections(Body):
    """Body of GET_CONSUMER_CONNECTION_LIST (203)."""

    connection_set: list[ClientConnection] = []
    subscription_table: dict[str, Any] = {}
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnections(Body):
    """Body of GET_PRODUCER_CONNECTION_LIST (204)."""

    connection_set: list[ClientConnection] = []


class ProducerInfo(Body):
    """One producer; the address begins with a slash, as Java writes it."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str = "OTHER"
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTable(Body):
    """Body of GET_ALL_PRODUCER_INFO (328), by group."""

    data: dict[str, list[ProducerInfo]] = {}


class GroupSubscription(Body):
    """Body of QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str
    topic: str
    subscription_data: Any = None
