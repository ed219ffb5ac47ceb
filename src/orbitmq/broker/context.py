"""BrokerContext: the parts of one running broker, for the processors that work with them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from orbitmq.clock import Clock
from orbitmq.message import Host
from orbitmq.net.request_log import RequestLog
from orbitmq.net.tasks import PeriodicJobs
from orbitmq.store.store import MessageStore

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.delivery.long_poll import LongPoll
    from orbitmq.broker.delivery.schedule import Schedule
    from orbitmq.broker.delivery.timers import Timers
    from orbitmq.broker.failover.failover import Failover
    from orbitmq.broker.pop.pop import Pop
    from orbitmq.broker.registration import Registration
    from orbitmq.broker.replication.in_sync import InSync
    from orbitmq.broker.replication.primary import HaServer
    from orbitmq.broker.replication.replica import Replica
    from orbitmq.broker.replication.state_sync import StateSync
    from orbitmq.broker.replication.succession import Succession
    from orbitmq.broker.routes import Routes
    from orbitmq.broker.statistics import BrokerStatistics
    from orbitmq.broker.tables.consumer_offsets import ConsumerOffsets
    from orbitmq.broker.tables.consumers import ConsumerTable
    from orbitmq.broker.tables.groups import GroupTable
    from orbitmq.broker.tables.producers import ProducerTable
    from orbitmq.broker.tables.queue_locks import QueueLocks
    from orbitmq.broker.tables.request_modes import RequestModeTable
    from orbitmq.broker.tables.topics import TopicTable
    from orbitmq.broker.transactions.transactions import Transactions
    from orbitmq.logs.server_log import ServerLog
    from orbitmq.net.connection import Connection


class Service(Protocol):
    """Something that works beside requests: delivers what is due, asks producers, takes back messages."""

    def start(self) -> None:
        """Begin; the broker serves clients already."""

    def stop(self) -> None:
        """End, before state and store are written; make durable what its saved progress speaks of."""


@dataclass(slots=True, kw_only=True)
class BrokerContext:
    """Everything that processors share. Only the event loop's thread may use what is not the store."""

    config: "BrokerConfig"
    clock: Clock
    store: MessageStore
    loop: asyncio.AbstractEventLoop
    store_host: Host  # what records and offset ids carry
    address: str  # "ip:port", what clients are told
    boot_ms: int
    topics: "TopicTable"
    groups: "GroupTable"
    offsets: "ConsumerOffsets"
    producers: "ProducerTable"
    consumers: "ConsumerTable"
    locks: "QueueLocks"
    registration: "Registration"
    succession: "Succession"
    request_modes: "RequestModeTable"
    replicas: "InSync | None" = None  # None: no answer waits for them (not a SYNC_MASTER)
    replication: "HaServer | Replica | None" = None  # by the broker's role; None: not made yet
    state_sync: "StateSync | None" = None  # of a replica
    failover: "Failover | None" = None  # None: no coordinator decides who is the primary
    jobs: PeriodicJobs = field(default_factory=PeriodicJobs)
    log: "ServerLog | None" = None  # None: the broker is part of a program, which has its own
    # These are made with the context, so they are put in after it.
    statistics: "BrokerStatistics" = field(init=False)
    long_poll: "LongPoll" = field(init=False)
    schedule: "Schedule" = field(init=False)
    timers: "Timers | None" = None  # None: there is no timer wheel (timerWheelEnable)
    pop: "Pop" = field(init=False)
    routes: "Routes" = field(init=False)
    transactions: "Transactions" = field(init=False)
    request_log: RequestLog = field(init=False)

    services: list[Service] = field(default_factory=list)
    """Started in this order when clients are served, stopped in the reverse order."""
    on_close: list[Callable[["Connection"], None]] = field(default_factory=list)
    """Called with each connection of a client that has closed."""
    pending: list[Callable[[], int]] = field(default_factory=list)
    """Each returns how many answers are pending with it; a stop waits for them."""
    stopping: bool = False

    def __post_init__(self) -> None:
        self.request_log = RequestLog(self.clock, self.config.logs.slow_request_ms)
