"""Settings of a broker: its name, its ports, its rules. RocketMQ's key stands beside each field."""

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from orbitmq.broker.failover.access import Access
from orbitmq.broker.failover.place import parse_place
from orbitmq.errors import ConfigError
from orbitmq.format.ha_frame import BATCH_BYTES_MAX
from orbitmq.logs.config import LogConfig
from orbitmq.message import Host
from orbitmq.net.config import NET_KEYS, NetConfig
from orbitmq.settings import (
    JAVA_READERS,
    field_texts,
    field_values,
    key,
    keys_of,
    load_settings,
    require,
    require_least,
)
from orbitmq.store.config import Role, StoreConfig
from orbitmq.units import SECOND_MS, KiB, MiB

DEFAULT_PORT: Final = 10911
DEFAULT_HA_PORT: Final = 10912
_OLD_KEYS: Final = {"haSlaveFallbehindMax": "haMaxGapNotInSync"}  # of RocketMQ 4
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


def _addresses(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())


class Transfer(Enum):
    """How the records of a pull get from the log into the socket; the bytes are the same."""

    AUTO = "auto"  # as transferMsgByHeap says: true copies, false sends slices
    COPY = "copy"  # joined to one frame
    SLICES = "slices"  # straight from the mapped log
    SENDFILE = "sendfile"  # by the kernel, from the file


@dataclass(slots=True, kw_only=True)
class BrokerConfig:
    """Everything that a broker is configured with. `apply` changes it while the broker runs."""

    store: StoreConfig
    net: NetConfig = field(default_factory=NetConfig)
    logs: LogConfig = field(default_factory=LogConfig)

    # Who and where.
    name: str = key("brokerName", factory=socket.gethostname)
    cluster: str = key("brokerClusterName", "DefaultCluster")
    broker_id: int = key("brokerId", 0)  # 0: the primary
    host: str = key("brokerIP1", factory=local_address)
    bind_host: str = key("bindAddress", "0.0.0.0")
    port: int = key("listenPort", DEFAULT_PORT)  # 0: a free one
    namesrv: tuple[str, ...] = key("namesrvAddr", (), read=_addresses, show=";".join, live=True)
    region: str = key("regionId", "DefaultRegion", live=True)
    permission: int = key("brokerPermission", 6, live=True)

    # Replication (`replication/`).
    ha_port: int = key("haListenPort", DEFAULT_HA_PORT)  # not given: listenPort + 1 if that is free
    ha_primary: str = key("haMasterAddress", "")  # empty: as name servers say
    primary_address: str = key("primaryAddress", "")  # ours: where it answers requests
    ha_batch_bytes: int = key("haTransferBatchSize", 32 * KiB, least=1, live=True)
    ha_heartbeat_ms: int = key("haSendHeartbeatInterval", 5 * SECOND_MS, least=1, live=True)
    ha_silence_ms: int = key("haHousekeepingInterval", 20 * SECOND_MS, least=1, live=True)
    in_sync_gap_bytes: int = key("haMaxGapNotInSync", 256 * MiB, least=1, live=True)
    replica_timeout_ms: int = key("slaveTimeout", 3 * SECOND_MS, least=1, live=True)
    in_sync_replicas: int = key("inSyncReplicas", 1, least=1, live=True)  # the primary counts
    min_in_sync_replicas: int = key("minInSyncReplicas", 1, least=1, live=True)
    auto_in_sync: bool = key("enableAutoInSyncReplicas", False, live=True)
    state_sync_ms: int = key("stateSyncInterval", 3 * SECOND_MS, least=1, live=True)  # ours
    state_sync_all_ms: int = key("stateSyncAllInterval", 60 * SECOND_MS, least=1, live=True)  # ours
    sync_as_v4: bool = key("syncMasterAsInV4", False, live=True)  # ours
    sync_lag_ms: int = key("haMaxTimeSlaveNotCatchup", 15 * SECOND_MS, least=1, live=True)

    # Failover by a coordinator (`failover/`). Ours.
    failover: str = key("failover", "")  # etcd://host:port[,host:port][/prefix]; empty: none
    failover_lease_ms: int = key("failoverLeaseMs", 10 * SECOND_MS, least=2 * SECOND_MS)
    failover_ca_file: str = key("failoverCaFile", "")
    failover_cert_file: str = key("failoverCertFile", "")
    failover_key_file: str = key("failoverKeyFile", "")
    failover_user: str = key("failoverUser", "")
    failover_password_file: str = key("failoverPasswordFile", "")

    # Topics and groups.
    auto_create_topic: bool = key("autoCreateTopicEnable", True, live=True)
    auto_create_group: bool = key("autoCreateSubscriptionGroup", True, live=True)
    default_topic_queues: int = key("defaultTopicQueueNums", 8, least=1)
    cluster_topic: bool = key("clusterTopicEnable", True)
    broker_topic: bool = key("brokerTopicEnable", True)
    trace_topic: bool = key("traceTopicEnable", False, live=True)
    trace_topic_name: str = key("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC")
    trace_on: bool = key("traceOn", True, live=True)
    revive_queues: int = key("reviveQueueNum", 8, least=1)
    timer_wheel: bool = key("timerWheelEnable", True)
    recall: bool = key("recallMessageEnable", False, live=True)
    recall_unwritable: bool = key("allowRecallWhenBrokerNotWriteable", True, live=True)
    memory_topics: bool = key("memoryTopicEnable", False)
    memory_topic_bytes_max: int = key("memoryTopicBytesMax", 0, least=0)  # 0: see `default_limit`

    # Requests.
    long_polling: bool = key("longPollingEnable", True, live=True)
    short_polling_ms: int = key("shortPollingTimeMills", 1 * SECOND_MS, least=0, live=True)
    transfer_by_heap: bool = key("transferMsgByHeap", True, live=True)
    pull_transfer: Transfer = key("pullTransfer", Transfer.AUTO, live=True)  # ours
    property_filter: bool = key(
        "enablePropertyFilter", True, live=True
    )  # RocketMQ's default is false
    accept_sends_from_ms: int = key("startAcceptSendRequestTimeStamp", 0, least=0, live=True)
    store_replies: bool = key("storeReplyMessageEnable", True, live=True)
    reject_pull_consumers: bool = key("rejectPullConsumerEnable", False, live=True)
    server_side_reset: bool = key("useServerSideResetOffset", True, live=True)
    zero_if_in_memory: bool = True  # ours: a new group reads a young topic from its beginning

    # Pop.
    revive_ms: int = key("reviveInterval", 1 * SECOND_MS, least=1, live=True)
    pop_polls_each: int = key("popPollingSize", 1_024, least=0, live=True)
    pop_polls_max: int = key("maxPopPollingSize", 100_000, least=0, live=True)
    pop_buffer: bool = key("enablePopBufferMerge", False, live=True)
    pop_buffer_stay_ms: int = key("popCkStayBufferTime", 10 * SECOND_MS, least=0, live=True)
    pop_buffer_timeout_ms: int = key("popCkStayBufferTimeOut", 3 * SECOND_MS, least=0, live=True)
    pop_buffer_size: int = key("popCkMaxBufferSize", 200_000, least=0, live=True)
    pop_buffer_steps: int = key("popCkOffsetMaxQueueSize", 20_000, least=0, live=True)
    pop_batch_ack: bool = key("enablePopBatchAck", False, live=True)
    retry_topic_v2: bool = key("enableRetryTopicV2", False, live=True)
    retry_topic_both: bool = key("retrieveMessageFromPopRetryTopicV1", True, live=True)
    pop_retry_percent: int = key("popFromRetryProbability", 20, least=0, live=True)
    pop_actual_retry_topic: bool = key("popResponseReturnActualRetryTopic", False, live=True)
    pop_in_flight_limit: bool = key("enablePopMessageThreshold", False, live=True)
    pop_in_flight_max: int = key("popInflightMessageThreshold", 10_000, least=0, live=True)
    pop_init_in_memory: bool = key("initPopOffsetByCheckMsgInMem", True, live=True)
    pop_order_notify: bool = key("enableNotifyAfterPopOrderLockRelease", True, live=True)
    pop_give_up: bool = key("skipWhenCKRePutReachMaxTimes", False, live=True)
    server_assignment: bool = key("serverLoadBalancerEnable", True, live=True)
    default_request_mode: str = key("defaultMessageRequestMode", "PULL", live=True)
    default_share_queues: int = key("defaultPopShareQueueNum", -1, live=True)

    # Lag of groups with a filter: counted, or estimated after so many units or matches.
    estimate_lag: bool = key("estimateAccumulation", True, live=True)
    lag_scan_max: int = key("maxConsumeQueueScan", 20_000, least=1, live=True)
    lag_matches_max: int = key("sampleCountThreshold", 5_000, least=1, live=True)

    # Transactions.
    reject_transactions: bool = key("rejectTransactionMessage", False, live=True)
    transaction_ms: int = key("transactionTimeOut", 6 * SECOND_MS, least=0, live=True)
    transaction_check_max: int = key("transactionCheckMax", 15, least=0, live=True)
    transaction_check_ms: int = key("transactionCheckInterval", 30 * SECOND_MS, least=1, live=True)
    op_message_bytes_max: int = key("transactionOpMsgMaxSize", 4096, least=1, live=True)
    op_batch_ms: int = key("transactionOpBatchInterval", 3 * SECOND_MS, least=0, live=True)

    # Clients.
    notify_consumers: bool = key("notifyConsumerIdsChangedEnable", True, live=True)
    client_expiry_ms: int = key("channelExpiredTimeout", 120 * SECOND_MS, least=1, live=True)
    client_scan_ms: int = 10 * SECOND_MS  # fixed in RocketMQ
    lock_expiry_ms: int = 60 * SECOND_MS  # fixed in RocketMQ

    # State and registration.
    offset_save_ms: int = key("flushConsumerOffsetInterval", 5 * SECOND_MS, least=1, live=True)
    register_ms: int = key("registerNameServerPeriod", 30 * SECOND_MS, live=True)
    register_timeout_ms: int = key("registerBrokerTimeoutMills", 24 * SECOND_MS, least=1, live=True)
    # False: only what a name server does not know.
    force_register: bool = key("forceRegister", True, live=True)
    compressed_register: bool = key("compressedRegister", False, live=True)
    # A changed topic is told alone (217), not as a registration with one topic (103).
    single_topic_register: bool = key("enableSingleTopicRegister", False, live=True)
    # All topics are told in parts.
    split_register: bool = key("enableSplitRegistration", False, live=True)
    split_register_size: int = key("splitRegistrationSize", 800, least=1, live=True)
    # A stop sends clients away first, and waits so long for them to leave.
    graceful_stop: bool = key("enableShutdownGracefully", False, live=True)
    graceful_stop_seconds: int = key("shutdownWaitTimeSeconds", 30, least=0, live=True)
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
        require("haListenPort", self.ha_port, 0 <= self.ha_port <= 65535, "must be 0 to 65535")
        fits = self.ha_batch_bytes <= BATCH_BYTES_MAX
        rule = f"must be at most {BATCH_BYTES_MAX}: a replica has no room for more"
        require("haTransferBatchSize", self.ha_batch_bytes, fits, rule)
        named = self.broker_id > 0 or self.store.role is not Role.REPLICA
        require("brokerId", self.broker_id, named, "must be above 0 for brokerRole=SLAVE")
        if self.failover:
            self._require_failover()
        require("brokerPermission", self.permission, 0 <= self.permission <= 7, "must be 0 to 7")
        modes = self.default_request_mode in ("PULL", "POP")
        require(
            "defaultMessageRequestMode", self.default_request_mode, modes, "must be PULL or POP"
        )
        require_least(self, _KEYS)
        try:
            ipaddress.ip_address(self.host)
        except ValueError as cause:
            raise ConfigError("brokerIP1", self.host, "must be an IP address") from cause
        self.register_ms = min(max(self.register_ms, REGISTER_MS_MIN), REGISTER_MS_MAX)

    def _require_failover(self) -> None:
        self.failover_access.require(tls=parse_place(self.failover).tls)
        waits = self.store.role is not Role.ASYNC_PRIMARY
        rule = "must be SYNC_MASTER or SLAVE with failover: only who has all may take over"
        require("brokerRole", self.store.role.value, waits, rule)
        rule = "must be empty with failover: the coordinator says who is the primary"
        for name, value in (
            ("haMasterAddress", self.ha_primary),
            ("primaryAddress", self.primary_address),
        ):
            require(name, value, not value, rule)

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], **overrides: Any) -> "BrokerConfig":
        """Return the config that these broker.conf keys make. ConfigError: a value cannot work."""
        old = {new: settings[name] for name, new in _OLD_KEYS.items() if name in settings}
        settings = {**old, **settings}
        values = field_values(settings, _KEYS)
        store = StoreConfig.from_settings(_root(settings), settings, plain_records=PLAIN_RECORDS)
        net = NetConfig.from_settings(settings)
        logs = LogConfig.from_settings(settings)
        parts = {"store": store, "net": net, "logs": logs, "given": dict(settings)}
        return cls(**{**values, **parts, **overrides})

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
        store, logs = self.store.with_settings(settings), self.logs.changed(settings)
        return replace(self, **values, given={**self.given, **settings}, store=store, logs=logs)

    def take(self, changed: "BrokerConfig") -> None:
        """Become as `changed`, for all who hold this config."""
        for item in fields(self):
            setattr(self, item.name, getattr(changed, item.name))

    def properties(self) -> dict[str, str]:
        """Return all settings as RocketMQ's keys and texts: what is in effect, and what else was given."""
        own, net = field_texts(self, _KEYS), field_texts(self.net, NET_KEYS)
        return {**self.given, **self.store.properties(), **own, **net, **self.logs.properties()}

    def store_host(self, port: int) -> Host:
        """Return the address that records carry when clients are served on this port."""
        return Host(ipaddress.ip_address(self.host).packed, port)

    @property
    def is_replica(self) -> bool:
        return self.store.role is Role.REPLICA

    @property
    def failover_access(self) -> Access:
        """How this broker gets into its coordinator."""
        return Access(
            self.failover_ca_file,
            self.failover_cert_file,
            self.failover_key_file,
            self.failover_user,
            self.failover_password_file,
        )

    @property
    def ha_port_given(self) -> bool:
        """Whether replicas are to be served on `ha_port` and nowhere else."""
        return "haListenPort" in self.given or self.ha_port != DEFAULT_HA_PORT

    @property
    def transfer(self) -> Transfer:
        if self.pull_transfer is not Transfer.AUTO:
            return self.pull_transfer
        return Transfer.COPY if self.transfer_by_heap else Transfer.SLICES

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


_KEYS: Final = keys_of(BrokerConfig, JAVA_READERS)
KEYS: Final = frozenset(_KEYS)
"""What has an effect on a broker, besides its store and its network."""
LIVE_KEYS: Final = frozenset(name for name, one in _KEYS.items() if one.live)
