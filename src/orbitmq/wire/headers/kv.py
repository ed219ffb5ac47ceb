"""The name server's key-value config: 100, 101, 102, 219."""

from typing import Final

from orbitmq.wire.headers.header import Header

ORDER_TOPICS: Final = "ORDER_TOPIC_CONFIG"
"""The namespace that says of ordered topics which broker has how many queues: `broker-a:4;broker-b:4`."""


class PutKv(Header):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


class GetKv(Header):
    """GET_KV_CONFIG (101), DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


class GetKvAnswer(Header):
    """Answer of 101."""

    value: str | None = None


class GetKvList(Header):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str
