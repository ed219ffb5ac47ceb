"""A coordinator that a test owns: it answers, or is away, or forgets; and brokers that ask it."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

from async_run import until
from live_broker import live_config
from orbitmq.broker.broker import Broker
from orbitmq.broker.failover.coordinator import Grant
from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import ResponseError, UnreachableError
from orbitmq.store.config import Role
from orbitmq.wire.bodies.failover import FailoverState, Seen

PLACE = "etcd://127.0.0.1:1/test"
# Brokers of one test share a thread: on a busy machine a start can take longer than a short lease lasts.
QUICK: dict[str, Any] = {"state_sync_ms": 20, "state_sync_all_ms": 20, "failover_lease_ms": 5_000}


class FakeEtcd:
    """What an etcd of one broker name holds, in memory: leases end by a clock."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.state: FailoverState | None = None
        self.revision, self.at = 0, 1
        self._holder, self._holder_lease = "", 0
        self._ends: dict[int, float] = {}
        self._lengths: dict[int, int] = {}
        self._numbers = itertools.count(100)
        self.lease_ms = 0  # 0: as long as was asked for

    def is_alive(self, lease: int) -> bool:
        return self._ends.get(lease, 0) > self.clock.monotonic_ms()

    @property
    def holder(self) -> str:
        if self._holder and not self.is_alive(self._holder_lease):
            self._holder, self.at = "", self.at + 1
        return self._holder

    def seen(self) -> Seen:
        holder = self.holder
        return Seen(self.state, self.revision, holder, self.at)

    def grant(self, ms: int) -> Grant:
        lease, ms = next(self._numbers), self.lease_ms or ms
        self._lengths[lease] = ms
        self._ends[lease] = self.clock.monotonic_ms() + ms
        return Grant(lease, ms)

    def keep(self, lease: int) -> int:
        if not self.is_alive(lease):
            return 0
        self._ends[lease] = self.clock.monotonic_ms() + self._lengths[lease]
        return self._lengths[lease]

    def end_lease(self, lease: int = 0) -> None:
        """End a lease, by default the holder's, as if its time had come."""
        self._ends.pop(lease or self._holder_lease, None)

    def take(self, before: Seen, state: FailoverState, member: str, lease: int) -> int:
        if self.revision != before.revision or self.holder != before.holder:
            return 0
        if not self.is_alive(lease):
            raise ResponseError(5, "no such lease", "fake")
        self._holder, self._holder_lease = member, lease
        return self.put(state)

    def put(self, state: FailoverState) -> int:
        self.at += 1
        self.state, self.revision = state, self.at
        return self.revision

    def forget(self) -> None:
        """Lose everything, as an etcd whose disk was given away."""
        self.state, self.revision, self._holder, self.at = None, 0, "", self.at + 1
        self._ends.clear()


class FakeCoordinator:
    """One broker's way to it."""

    def __init__(self, etcd: FakeEtcd) -> None:
        self.etcd = etcd
        self.is_away = False
        self.loses_answers = False  # a change is made, and nobody hears of it
        self.holds_back: list[tuple[Seen, FailoverState]] | None = None  # changes that come late
        self.is_closed = False

    async def _way(self) -> None:
        await asyncio.sleep(0)
        if self.is_away:
            raise UnreachableError("fake", "away")

    async def look(self) -> Seen:
        await self._way()
        return self.etcd.seen()

    async def grant(self, ms: int) -> Grant:
        await self._way()
        return self.etcd.grant(ms)

    async def keep(self, lease: int) -> int:
        await self._way()
        return self.etcd.keep(lease)

    async def revoke(self, lease: int) -> None:
        await self._way()
        self.etcd.end_lease(lease)

    async def take(self, before: Seen, state: FailoverState, member: str, lease: int) -> int:
        await self._way()
        return self._told(self.etcd.take(before, state, member, lease))

    async def change(self, before: Seen, state: FailoverState) -> int:
        await self._way()
        if self.holds_back is not None:
            self.holds_back.append((before, state))
            raise UnreachableError("fake", "no answer")
        if before.revision != self.etcd.revision:
            return 0
        return self._told(self.etcd.put(state))

    def _told(self, revision: int) -> int:
        if self.loses_answers:
            raise UnreachableError("fake", "no answer")
        return revision

    async def wait_change(self, seen: Seen) -> None:
        await until(lambda: self.etcd.seen().at != seen.at and not self.is_away, seconds=600)

    def close(self) -> None:
        self.is_closed = True


def member_broker(
    root: Path,
    etcd: FakeEtcd,
    broker_id: int = 0,
    store: dict[str, Any] | None = None,
    **given: Any,
) -> tuple[Broker, FakeCoordinator]:
    """Return a broker of the name, a primary by its configuration if its id is 0, and its coordinator."""
    role = Role.REPLICA if broker_id else Role.SYNC_PRIMARY
    coordinator = FakeCoordinator(etcd)
    config = live_config(
        root,
        store={"role": role, **(store or {})},
        **{"broker_id": broker_id, "failover": PLACE, **QUICK, **given},
    )
    return Broker(config, coordinator=coordinator), coordinator
