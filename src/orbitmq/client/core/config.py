"""What a client can be told: name servers, identity, timeouts, retries. RocketMQ's key beside each."""

import difflib
import itertools
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from orbitmq.errors import ConfigError
from orbitmq.format.compression import Compression
from orbitmq.units import SECOND_MS, KiB, MiB
from orbitmq.wire.command import Encoding

NAMESRV_PORT: Final = 9876
CREATION_TOPIC: Final = "TBW102"
"""The topic whose brokers take a send to a topic that does not exist yet."""

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""Where traces are written if nobody names another topic."""

_PORT_MAX: Final = 65535
_instances: Final = itertools.count()


def parse_addresses(text: str | Sequence[str]) -> tuple[str, ...]:
    """Return the addresses of "a:1;b:2" (or with commas, or as a list); the port 9876 may be left out."""
    parts = text.replace(",", ";").split(";") if isinstance(text, str) else list(text)
    addresses = tuple(_parse_address(part.strip()) for part in parts if part.strip())
    if not addresses:
        raise ConfigError("namesrv", text, "must name a name server, for example 127.0.0.1:9876")
    return tuple(dict.fromkeys(addresses))


def _parse_address(text: str) -> str:
    bare = text.removeprefix("http://").removeprefix("tcp://").rstrip("/")
    if bare.startswith("["):  # [::1]:9876
        host, _, rest = bare.partition("]")
        host, port = host + "]", rest.removeprefix(":")
    else:
        host, _, port = bare.rpartition(":") if ":" in bare else (bare, "", "")
    port = port or str(NAMESRV_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
        raise ConfigError("namesrv", text, "must look like host:port, for example 127.0.0.1:9876")
    return f"{host}:{int(port)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Everything that producers, consumers and admin clients are configured with."""

    namesrv: tuple[str, ...] = ("127.0.0.1:9876",)  # namesrvAddr
    client_ip: str = ""  # clientIP; empty: the address towards the first name server
    instance_name: str = ""  # instanceName; empty: one of its own for each client
    unit_name: str = ""  # unitName
    encoding: Encoding = Encoding.JSON  # rocketmq.serialize.type
    vip_channel: bool = False  # com.rocketmq.sendMessageWithVIPChannel
    access_key: str = ""  # rocketmq.client.accessKey
    secret_key: str = field(default="", repr=False)  # rocketmq.client.secretKey
    security_token: str = field(default="", repr=False)

    # Times.
    request_timeout_ms: int = 3 * SECOND_MS  # mqClientApiTimeout
    admin_timeout_ms: int = 5 * SECOND_MS
    connect_timeout_ms: int = 3 * SECOND_MS  # com.rocketmq.remoting.client.connect.timeout
    route_interval_ms: int = 30 * SECOND_MS  # pollNameServerInterval
    heartbeat_interval_ms: int = 30 * SECOND_MS  # heartbeatBrokerInterval

    # Sending.
    send_timeout_ms: int = 3 * SECOND_MS  # sendMsgTimeout: the whole call, retries included
    send_try_timeout_ms: int = 0  # sendMsgMaxTimeoutPerRequest; 0: what is left of the whole
    retries: int = 2  # retryTimesWhenSendFailed
    async_retries: int = 2  # retryTimesWhenSendAsyncFailed
    retry_when_not_flushed: bool = False  # retryAnotherBrokerWhenNotStoreOK
    fault_avoidance: bool = False  # sendLatencyFaultEnable
    compress_bytes_min: int = 4 * KiB  # compressMsgBodyOverHowmuch
    compression: Compression = Compression.ZLIB  # rocketmq.message.compressType
    compression_level: int = 5  # rocketmq.message.compressLevel
    message_bytes_max: int = 4 * MiB  # maxMessageSize
    creation_topic: str = CREATION_TOPIC  # createTopicKey
    creation_queues: int = 4  # defaultTopicQueueNums
    pending_sends_max: int = 4_000
    """Sends on their way at once; the next one waits for an answer (RocketMQ: clientAsyncSemaphoreValue)."""

    # Message trace: what is sent and consumed is told to a topic of its own.
    trace: bool | str = False  # enableTrace; a text: to this topic (traceTopic)
    trace_batch: int = 10  # traceMsgBatchNum; at most 20

    def __post_init__(self) -> None:
        object.__setattr__(self, "namesrv", parse_addresses(self.namesrv))
        for name in ("request_timeout_ms", "connect_timeout_ms", "send_timeout_ms"):
            if getattr(self, name) <= 0:
                raise ConfigError(name, getattr(self, name), "must be at least 1 millisecond")
        for name in ("retries", "async_retries", "send_try_timeout_ms", "compress_bytes_min"):
            if getattr(self, name) < 0:
                raise ConfigError(name, getattr(self, name), "must not be negative")
        for name in ("pending_sends_max", "creation_queues", "message_bytes_max", "trace_batch"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "must be at least 1")
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("access_key", self.access_key, "needs a secret_key, and the reverse")

    @property
    def trace_topic(self) -> str:
        """The topic that traces are written to; empty: none are."""
        return self.trace if isinstance(self.trace, str) else TRACE_TOPIC if self.trace else ""

    def named(self) -> "ClientConfig":
        """Return the configuration with an address and an instance name of its own where it had none."""
        return replace(
            self,
            client_ip=self.client_ip or local_ip(self.namesrv[0]),
            instance_name=self.instance_name or new_instance_name(),
        )

    @property
    def client_id(self) -> str:
        """Who we are for brokers, as RocketMQ composes it: <ip>@<instance>[@<unit>]."""
        unit = f"@{self.unit_name}" if self.unit_name else ""
        return f"{self.client_ip}@{self.instance_name}{unit}"


def config_of(
    namesrv: str | Sequence[str] | None, config: ClientConfig | None, settings: Mapping[str, Any]
) -> ClientConfig:
    """Return the configuration that a client's arguments mean; single settings win."""
    require_known(settings, "client", {item.name for item in fields(ClientConfig)})
    changes = dict(settings)
    if namesrv is not None:
        changes["namesrv"] = parse_addresses(namesrv)
    return replace(config or ClientConfig(), **changes)


def require_known(settings: Mapping[str, Any], noun: str, names: set[str]) -> None:
    """ConfigError: a setting is none of these; says which may have been meant."""
    for name, value in settings.items():
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(name, value, f"is no setting of a {noun}{hint}")


def new_instance_name() -> str:
    """Return a name that no other client has: process id, time, and a count against a coarse clock."""
    return f"{os.getpid()}#{time.time_ns() + next(_instances)}"


def local_ip(towards: str) -> str:
    """Return the address from which this machine would talk to a peer. Nothing is sent."""
    host = towards.rpartition(":")[0].strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
