"""Settings of a broker: its name, its ports, its rules. RocketMQ's key stands beside each field."""

import ipaddress
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from orbitmq.errors import ConfigError
from orbitmq.message import Host
from orbitmq.net.config import NetConfig, net_properties, net_values
from orbitmq.settings import field_values, java_boolean, load_settings, require, value_text
from orbitmq.store.config import StoreConfig
from orbitmq.units import SECOND_MS

DEFAULT_PORT: Final = 10911
FAST_PORT_GAP: Final = 2
"""The second port, RocketMQ's "VIP channel", is so much below the first."""
PLAIN_RECORDS: Final = 4_000
"""A broker that is hardly used never pays for the compiled kernels: they are loaded after so many records."""
KEPT_FILE: Final = "orbitmq.properties"
"""In the store's `config`: changed settings of a broker that was started without a file of its own."""
REGISTER_MS_MIN: Final = 10 * SECOND_MS
REGISTER_MS_MAX: Final = 60 * SECOND_MS


def local_address() -> str:
    """Return the address of this machine that its default route uses; loopback if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a documentation address; nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


@dataclass(slots=True, kw_only=True)
class BrokerConfig:
    """Everything that a broker is configured with. `apply` changes it while the broker runs."""

    store: StoreConfig
    net: NetConfig = field(default_factory=NetConfig)

    # Who and where.
    name: str = field(default_factory=socket.gethostname)  # brokerName
    cluster: str = "DefaultCluster"  # brokerClusterName
    broker_id: int = 0  # brokerId; 0: the primary
    host: str = field(default_factory=local_address)  # brokerIP1
    bind_host: str = "0.0.0.0"  # bindAddress
    port: int = DEFAULT_PORT  # listenPort; 0: a free one
    namesrv: tuple[str, ...] = ()  # namesrvAddr
    region: str = "DefaultRegion"  # regionId
    permission: int = 6  # brokerPermission

    # Topics and groups.
    auto_create_topic: bool = True  # autoCreateTopicEnable
    auto_create_group: bool = True  # autoCreateSubscriptionGroup
    default_topic_queues: int = 8  # defaultTopicQueueNums
    cluster_topic: bool = True  # clusterTopicEnable
    broker_topic: bool = True  # brokerTopicEnable
    trace_topic: bool = False  # traceTopicEnable
    trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"  # msgTraceTopicName
    trace_on: bool = True  # traceOn
    revive_queues: int = 8  # reviveQueueNum
    timer_wheel: bool = True  # timerWheelEnable

    # Requests.
    long_polling: bool = True  # longPollingEnable
    short_polling_ms: int = 1 * SECOND_MS  # shortPollingTimeMills
    accept_sends_from_ms: int = 0  # startAcceptSendRequestTimeStamp
    reject_pull_consumers: bool = False  # rejectPullConsumerEnable
    server_side_reset: bool = True  # useServerSideResetOffset
    zero_if_in_memory: bool = True  # ours: a new group reads a young topic from its beginning

    # Clients.
    notify_consumers: bool = True  # notifyConsumerIdsChangedEnable
    client_expiry_ms: int = 120 * SECOND_MS  # channelExpiredTimeout
    client_scan_ms: int = 10 * SECOND_MS  # fixed in RocketMQ
    lock_expiry_ms: int = 60 * SECOND_MS  # fixed in RocketMQ

    # State and registration.
    offset_save_ms: int = 5 * SECOND_MS  # flushConsumerOffsetInterval
    register_ms: int = 30 * SECOND_MS  # registerNameServerPeriod
    register_timeout_ms: int = 24 * SECOND_MS  # registerBrokerTimeoutMills
    force_register: bool = True  # forceRegister; false: only what a name server does not know
    compressed_register: bool = False  # compressedRegister
    graceful_stop: bool = False  # enableShutdownGracefully: a stop sends clients away first
    graceful_stop_seconds: int = 30  # shutdownWaitTimeSeconds: and waits so long for them to leave
    stop_grace_ms: int = 3 * SECOND_MS  # ours: how long a stop waits for answers to leave

    given: dict[str, str] = field(default_factory=dict)
    """What settings said, by RocketMQ's key; also keys that have no effect here."""
    file: Path | None = None
    """The configuration file; changes are kept there. None: in the store's own (`kept_file`)."""
    stronger: dict[str, str] = field(default_factory=dict)
    """Keys that flags or the environment set, and where: at a start they win over the file."""

    def __post_init__(self) -> None:
        require("brokerName", self.name, bool(self.name.strip()), "must not be empty")
        require("brokerClusterName", self.cluster, bool(self.cluster.strip()), "must not be empty")
        require("brokerId", self.broker_id, self.broker_id >= 0, "must be 0 or more")
        ports_fit = self.port == 0 or FAST_PORT_GAP < self.port <= 65535
        require("listenPort", self.port, ports_fit, "must be 0 (any) or from 3 to 65535")
        require("brokerPermission", self.permission, 0 <= self.permission <= 7, "must be 0 to 7")
        for key, least in _LEAST.items():
            value = getattr(self, _KEYS[key][0])
            require(key, value, value >= least, f"must be at least {least}")
        try:
            ipaddress.ip_address(self.host)
        except ValueError as cause:
            raise ConfigError("brokerIP1", self.host, "must be an IP address") from cause
        self.register_ms = min(max(self.register_ms, REGISTER_MS_MIN), REGISTER_MS_MAX)

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], **overrides: Any) -> "BrokerConfig":
        """Return the config that these broker.conf keys make. ConfigError: a value cannot work."""
        values = field_values(settings, _KEYS)
        store = StoreConfig.from_settings(_root(settings), settings, plain_records=PLAIN_RECORDS)
        net = NetConfig(**net_values(settings))
        return cls(**{**values, "store": store, "net": net, "given": dict(settings), **overrides})

    @classmethod
    def load(cls, file: Path | None, flags: Mapping[str, object]) -> "BrokerConfig":
        """Return the config of a broker that is started with this file and these flags.

        Without a file, what was changed while it ran is in the store's own. ConfigError: a value
        cannot work, or the file cannot be read.
        """
        settings = load_settings(file, flags=flags)
        if file is None:
            settings.add_file(_kept_file(_root(settings)))
        return cls.from_settings(settings, file=file, stronger=settings.stronger_than_files())

    @property
    def kept_file(self) -> Path:
        """Where changes of settings are kept for the next start."""
        return self.file if self.file is not None else _kept_file(self.store.root)

    def changed(self, settings: Mapping[str, str]) -> "BrokerConfig":
        """Return this config with these keys. ConfigError: a value cannot work."""
        values = field_values(settings, _KEYS)
        store = self.store.with_settings(settings)
        return replace(self, **values, given={**self.given, **settings}, store=store)

    def take(self, changed: "BrokerConfig") -> None:
        """Become as `changed`, for all who hold this config."""
        for item in fields(self):
            setattr(self, item.name, getattr(changed, item.name))

    def properties(self) -> dict[str, str]:
        """Return all settings as RocketMQ's keys and texts: what is in effect, and what else was given."""
        own = {key: _text(getattr(self, name)) for key, (name, _) in _KEYS.items()}
        return {**self.given, **self.store.properties(), **own, **net_properties(self.net)}

    def store_host(self, port: int) -> Host:
        """Return the address that records carry when clients are served on this port."""
        return Host(ipaddress.ip_address(self.host).packed, port)

    @property
    def writable(self) -> bool:
        return bool(self.permission & 2)

    @property
    def readable(self) -> bool:
        return bool(self.permission & 4)


def _root(settings: Mapping[str, str]) -> Path:
    return Path(settings.get("storePathRootDir") or Path.home() / "store")


def _kept_file(root: Path) -> Path:
    return root / "config" / KEPT_FILE


def _addresses(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())


def _text(value: object) -> str:
    return ";".join(value) if isinstance(value, tuple) else value_text(value)


_KEYS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "brokerName": ("name", str),
    "brokerClusterName": ("cluster", str),
    "brokerId": ("broker_id", int),
    "brokerIP1": ("host", str),
    "bindAddress": ("bind_host", str),
    "listenPort": ("port", int),
    "namesrvAddr": ("namesrv", _addresses),
    "regionId": ("region", str),
    "brokerPermission": ("permission", int),
    "autoCreateTopicEnable": ("auto_create_topic", java_boolean),
    "autoCreateSubscriptionGroup": ("auto_create_group", java_boolean),
    "defaultTopicQueueNums": ("default_topic_queues", int),
    "clusterTopicEnable": ("cluster_topic", java_boolean),
    "brokerTopicEnable": ("broker_topic", java_boolean),
    "traceTopicEnable": ("trace_topic", java_boolean),
    "msgTraceTopicName": ("trace_topic_name", str),
    "traceOn": ("trace_on", java_boolean),
    "reviveQueueNum": ("revive_queues", int),
    "timerWheelEnable": ("timer_wheel", java_boolean),
    "longPollingEnable": ("long_polling", java_boolean),
    "shortPollingTimeMills": ("short_polling_ms", int),
    "startAcceptSendRequestTimeStamp": ("accept_sends_from_ms", int),
    "rejectPullConsumerEnable": ("reject_pull_consumers", java_boolean),
    "useServerSideResetOffset": ("server_side_reset", java_boolean),
    "notifyConsumerIdsChangedEnable": ("notify_consumers", java_boolean),
    "channelExpiredTimeout": ("client_expiry_ms", int),
    "flushConsumerOffsetInterval": ("offset_save_ms", int),
    "registerNameServerPeriod": ("register_ms", int),
    "registerBrokerTimeoutMills": ("register_timeout_ms", int),
    "forceRegister": ("force_register", java_boolean),
    "compressedRegister": ("compressed_register", java_boolean),
    "enableShutdownGracefully": ("graceful_stop", java_boolean),
    "shutdownWaitTimeSeconds": ("graceful_stop_seconds", int),
}
"""broker.conf key -> (field, how its text becomes a value)."""

_LEAST: Final = {
    "defaultTopicQueueNums": 1,
    "reviveQueueNum": 1,
    "shortPollingTimeMills": 0,
    "startAcceptSendRequestTimeStamp": 0,
    "channelExpiredTimeout": 1,
    "flushConsumerOffsetInterval": 1,
    "registerBrokerTimeoutMills": 1,
    "shutdownWaitTimeSeconds": 0,
}
"""What no value may be below."""

KEYS: Final = frozenset(_KEYS)
"""What has an effect on a broker, besides its store and its network."""
