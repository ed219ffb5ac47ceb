"""Headers of client management: heartbeat, unregister, consumer list, notice of changed members."""

from dataclasses import field

from orbitmq.wire.headers.header import Header


class HeartbeatAnswer(Header):
    """Answer of HEART_BEAT (34)."""

    supports_v2: bool = field(default=True, metadata={"wire": "IS_SUPPORT_HEART_BEAT_V2"})
    subscriptions_changed: bool = field(default=True, metadata={"wire": "IS_SUB_CHANGE"})


class UnregisterClient(Header):
    """UNREGISTER_CLIENT (35)."""

    client_id: str | None = field(default=None, metadata={"wire": "clientID"})
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerGroupHeader(Header):
    """GET_CONSUMER_LIST_BY_GROUP, NOTIFY_CONSUMER_IDS_CHANGED, GET_CONSUMER_CONNECTION_LIST (38, 40, 203)."""

    consumer_group: str
