"""What a broker tells of its replicas, or of the primary that it follows (907), and of epochs (ours)."""

import msgspec

from orbitmq.wire.bodies.body import Body
from orbitmq.wire.bodies.failover import FailoverTold


class ReplicaConnection(Body):
    """A replica as its primary sees it; the address is that of its connection, not its service."""

    addr: str = ""
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


class PrimaryConnection(Body):
    """The connection of a replica to its primary; of a primary all is empty."""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0


class ReplicationStatus(Body):
    """Body of GET_BROKER_HA_STATUS (907); `in_sync_slave_nums` does not count the primary."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[ReplicaConnection] = []
    ha_client_runtime_info: PrimaryConnection = msgspec.field(default_factory=PrimaryConnection)


class EpochRow(Body):
    """A range of the log, from `start` to the start of the next one."""

    number: int
    start: int
    id: str


class EpochsAnswer(Body):
    """Answer of GET_EPOCHS: under whom the log of a broker was written, and who that broker is."""

    broker_name: str
    primary: bool
    epochs: list[EpochRow] = []
    log_end: int = 0
    ha_address: str = ""
    left_id: int = 0  # the broker id that it had before it was promoted
    token: int = 0  # what a member of failover says first at the HA port; 0: nothing
    failover: FailoverTold | None = None
    tables: str = ""  # another text whenever its topics, groups or request modes have changed


class PromotedAnswer(Body):
    """Answer of PROMOTE_REPLICA: the new epoch."""

    number: int
    start: int
    lacked: int = 0  # bytes that the former primary had more when it last told


class PromiseBody(Body):
    """Body of PROMISE_EPOCH: follow nobody of this name with a lower epoch."""

    broker_name: str
    number: int


class PromiseAnswer(Body):
    """Answer of PROMISE_EPOCH: what was promised, and how long the log is that nobody writes to now."""

    number: int
    log_end: int


class FollowBody(Body):
    """Body of FOLLOW_PRIMARY: where the primary is that is to be followed."""

    address: str
