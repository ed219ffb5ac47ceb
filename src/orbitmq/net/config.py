"""Limits of connections, each with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from orbitmq.errors import ConfigError
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
    idle_ms: int = 120 * SECOND_MS  # serverChannelMaxIdleTimeSeconds
    connect_timeout_ms: int = 3 * SECOND_MS  # com.rocketmq.remoting.client.connect.timeout
    backlog: int = 1024  # serverSocketBacklog
    reuse_port: bool = False

    def __post_init__(self) -> None:
        if self.frame_bytes_max < 1 * KiB:
            raise ConfigError("frame_bytes_max", self.frame_bytes_max, "must be at least 1024")
        if self.write_buffer_bytes_max < self.write_buffer_bytes:
            rule = "must not be below write_buffer_bytes"
            raise ConfigError("write_buffer_bytes_max", self.write_buffer_bytes_max, rule)
        if self.idle_ms < 1:
            raise ConfigError("serverChannelMaxIdleTimeSeconds", self.idle_ms, "must be at least 1")
        if self.backlog < 1:
            raise ConfigError("serverSocketBacklog", self.backlog, "must be at least 1")


def net_values(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return field -> value of the keys about connections. ConfigError: a value cannot work."""
    values = {}
    for key, (name, factor) in NET_KEYS.items():
        if key in settings:
            try:
                values[name] = int(settings[key]) * factor
            except ValueError as cause:
                raise ConfigError(key, settings[key], "must be a whole number") from cause
    return values


def net_properties(config: NetConfig) -> dict[str, str]:
    """Return the settings about connections by RocketMQ's keys."""
    return {key: str(getattr(config, name) // factor) for key, (name, factor) in NET_KEYS.items()}


NET_KEYS: Final = {
    "serverChannelMaxIdleTimeSeconds": ("idle_ms", SECOND_MS),
    "serverSocketBacklog": ("backlog", 1),
}
"""broker.conf key -> (field, how many of its units the key counts in)."""
