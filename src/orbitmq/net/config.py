"""Limits of connections, each with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.errors import ConfigError
from orbitmq.settings import STRICT_READERS, field_values, key, keys_of, require_least
from orbitmq.units import SECOND_MS, KiB, MiB
from orbitmq.wire.frame import FRAME_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class NetConfig:
    """What one side allows the other (RocketMQ's key or property beside each)."""

    frame_bytes_max: int = FRAME_BYTES_MAX  # com.rocketmq.remoting.frameMaxLength
    connections_max: int = 100_000  # accepted ones; one more is closed at once
    pending_requests_max: int = 65_535  # ours that wait for an answer, per connection
    commands_per_turn: int = 64  # handled before the peer's reading is looked at again
    write_buffer_bytes: int = 1 * MiB  # above this nothing more is read from that peer
    write_buffer_bytes_max: int = 256 * MiB  # above this the peer is given up
    idle_ms: int = key("serverChannelMaxIdleTimeSeconds", 120 * SECOND_MS, unit=SECOND_MS, least=1)
    connect_timeout_ms: int = 3 * SECOND_MS  # com.rocketmq.remoting.client.connect.timeout
    backlog: int = key("serverSocketBacklog", 1024, least=1)

    def __post_init__(self) -> None:
        if self.frame_bytes_max < 1 * KiB:
            raise ConfigError("frame_bytes_max", self.frame_bytes_max, "must be at least 1024")
        if self.write_buffer_bytes_max < self.write_buffer_bytes:
            rule = "must not be below write_buffer_bytes"
            raise ConfigError("write_buffer_bytes_max", self.write_buffer_bytes_max, rule)
        require_least(self, NET_KEYS)

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> "NetConfig":
        """Return the config that these broker.conf keys make. ConfigError: a value cannot work."""
        return cls(**field_values(settings, NET_KEYS, "{}"))


NET_KEYS: Final = keys_of(NetConfig, STRICT_READERS)
"""The settings about connections."""
