"""HaServer: a primary's port for replicas (haListenPort)."""

import asyncio
import logging
import os
from collections.abc import Iterable
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.failover.sync_set import SyncSet
from orbitmq.broker.replication.in_sync import InSync
from orbitmq.broker.replication.link import ReplicaLink
from orbitmq.broker.replication.tokens import Tokens
from orbitmq.errors import UnreachableError
from orbitmq.wire.bodies.failover import Member
from orbitmq.wire.bodies.replication import ReplicationStatus

logger = logging.getLogger(__name__)

TICK_MS: Final = 100
"""So often replicas are looked after; what was appended is mostly sent sooner."""
REPLICAS_MAX: Final = 64
"""So many connections are taken; nobody has so many replicas."""


class HaServer:
    """The replicas of a primary. Belongs to the event loop's thread.

    Without replicas it costs nothing: it asks dispatch to be told of new records when the first one comes.
    """

    def __init__(self, context: BrokerContext, in_sync: InSync) -> None:
        self.config, self.clock, self.loop = context.config, context.clock, context.loop
        self.log = context.store.replication
        self._store, self._in_sync = context.store, in_sync
        self._links: set[ReplicaLink] = set()
        self._open: set[ReplicaLink] = set()  # also those that are being closed
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._woken = self._listens = False
        self.port = 0
        self.tokens = Tokens()
        self._sync_set: SyncSet | None = None  # None: nobody asks who a replica is (no failover)
        in_sync.send_soon = self.send

    async def start(self, host: str, port: int, *, other: bool) -> None:
        """Listen; port 0 takes a free one, as does `other` when this one is taken. UnreachableError."""
        try:
            self._server = await self.loop.create_server(self._link, host, port)
        except OSError as cause:
            if other and port:
                logger.info("port %d is taken: replicas are served on another", port)
                await self.start(host, 0, other=False)
                return
            what = f"cannot listen: {os.strerror(cause.errno) if cause.errno else cause}"
            step = "Choose another port (haListenPort), or end the program that has it."
            raise UnreachableError(f"{host}:{port}", what, step) from cause
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for link in list(self._links):
            link.close()
        while self._open:
            await asyncio.sleep(0)

    def know(self, sync_set: SyncSet) -> None:
        """Tell how far each one is who said who it is."""
        self._sync_set = sync_set

    def _link(self) -> ReplicaLink:
        return ReplicaLink(self)

    # --- for tools ---

    @property
    def state(self) -> str:
        """What the list of services tells of it."""
        serves = self._server is not None and self._server.is_serving()
        return f"running, {len(self._links)} connected" if serves else "stopped"

    def status(self) -> ReplicationStatus:
        """Return the replicas that are connected; one that has reported nothing yet is not in sync."""
        end, is_near = self._store.max_log_offset, self._in_sync.is_near
        links = sorted(self._links, key=lambda link: link.peer)
        told = [
            link.status(end, in_sync=link.reported >= 0 and is_near(link.reported))
            for link in links
        ]
        return ReplicationStatus(
            master=True,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(one.in_sync for one in told),
            ha_connection_info=told,
        )

    # --- links ---

    def on_open(self, link: ReplicaLink) -> None:
        self._open.add(link)
        if len(self._links) >= REPLICAS_MAX or self._server is None:
            link.close(f"{len(self._links)} replicas are there already")
            return
        logger.info("replica %s: connected", link.peer)
        self._links.add(link)
        if not self._listens:
            self._listens = True
            self._store.on_dispatched(self._on_dispatched)
        if self._timer is None:
            self._timer = self.loop.call_later(TICK_MS / 1000, self._tick)

    def on_report(self, link: ReplicaLink, log_offset: int) -> None:
        if self._sync_set is not None and link.member is not None and link.member.id:
            self._sync_set.put(link.member, link, log_offset)
        self._in_sync.put(link, log_offset)

    def on_lost(self, link: ReplicaLink) -> None:
        self._links.discard(link)
        self._in_sync.remove(link)
        if self._sync_set is not None and link.member is not None:
            self._sync_set.remove(link.member.id, link)

    def member_of(self, token: int) -> Member | None:
        """Return who was given this token; it is taken once."""
        return self.tokens.take(token)

    def on_gone(self, link: ReplicaLink) -> None:
        self._open.discard(link)

    def send(self) -> None:
        """Send what is new to all replicas."""
        self._woken = False
        for link in list(self._links):
            link.send()

    def _on_dispatched(self, _queues: Iterable[int]) -> None:
        """Called in the dispatching thread."""
        if self._woken or not self._links:
            return
        self._woken = True
        try:
            self.loop.call_soon_threadsafe(self.send)
        except RuntimeError:
            self._woken = False  # the loop is closed

    def _tick(self) -> None:
        self._timer = None
        for link in list(self._links):
            link.tick()
        if self._links and self._server is not None:
            self._timer = self.loop.call_later(TICK_MS / 1000, self._tick)
