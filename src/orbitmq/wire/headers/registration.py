"""Brokers telling name servers that they are there: 103, 104, 322, 904."""

import zlib
from dataclasses import field

from orbitmq.wire.headers.header import Header


class RegisterBroker(Header):
    """REGISTER_BROKER (103); its body is a Registration.

    `body_crc32` is the CRC-32 of the body without its top bit; 0: not to be checked.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str = ""
    broker_id: int = 0
    heartbeat_timeout_millis: int | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: int = 0
    zone_name: str | None = field(default=None, metadata={"wire": "__ZONE_NAME"})


class RegisterBrokerAnswer(Header):
    """Answer of 103: a replica learns where its primary is."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBroker(Header):
    """UNREGISTER_BROKER (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


class QueryDataVersion(Header):
    """QUERY_DATA_VERSION (322); its body is a DataVersion."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int = 0


class QueryDataVersionAnswer(Header):
    """Answer of 322."""

    changed: bool


class BrokerHeartbeat(Header):
    """BROKER_HEARTBEAT (904)."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: int | None = None
    heartbeat_timeout_mills: int | None = None


def body_crc32(body: bytes) -> int:
    """Return the checksum of a registration's body, as brokers send it along."""
    return zlib.crc32(body) & 0x7FFFFFFF
