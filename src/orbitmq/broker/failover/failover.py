"""Failover: a broker keeps its lease of the primary, or takes the place of one whose lease has ended.

Three tasks: one keeps the lease, one looks at what the coordinator holds and does what `rules.decide` says,
one waits for changes there. They live as long as the broker, over the starts that a change of its role is.

An answer to a producer asks `reached` at that moment: is the lease valid by our own clock, and do all have
the message that may take over? The second alone keeps what was acknowledged, whatever clocks do: who takes
over has it, and a primary that lost its place cannot publish a smaller set any more.
"""

import asyncio
import logging
from typing import Final

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.context import BrokerContext
from orbitmq.broker.failover.coordinator import Coordinator
from orbitmq.broker.failover.etcd import EtcdCoordinator
from orbitmq.broker.failover.following import demote, lead
from orbitmq.broker.failover.own_lease import OwnLease
from orbitmq.broker.failover.place import parse_place
from orbitmq.broker.failover.published import Published
from orbitmq.broker.failover.rules import Act, Decision, Standing, decide, heirs
from orbitmq.broker.failover.sync_set import SyncSet, least_of
from orbitmq.broker.replication.in_sync import InSync
from orbitmq.broker.replication.primary import HaServer
from orbitmq.broker.replication.replica import Replica
from orbitmq.broker.replication.succession import Succession
from orbitmq.clock import Clock
from orbitmq.errors import OrbitError, WireError
from orbitmq.store.epochs import Epoch
from orbitmq.store.flags import Flag
from orbitmq.wire.bodies.failover import FailoverState, FailoverTold, Member, Seen

logger = logging.getLogger(__name__)

TICK_MS: Final = 50
"""So often it looks how far replicas are, and whether the lease still lasts."""
SILENT: Final = "it has not answered yet"
TURNS: Final = 5
"""So often in the time of a lease it is kept, and the coordinator is looked at."""


class Failover:
    """The part of one broker in its broker name. Belongs to the event loop's thread."""

    def __init__(
        self,
        config: BrokerConfig,
        succession: Succession,
        clock: Clock,
        coordinator: Coordinator | None = None,
    ) -> None:
        self._config, self._succession, self._clock = config, succession, clock
        self._turn_ms = config.failover_lease_ms / TURNS
        self._coordinator = coordinator or EtcdCoordinator(
            parse_place(config.failover),
            config.cluster,
            config.name,
            self._turn_ms,
            config.failover_access,
        )
        self._lease = OwnLease(self._coordinator, clock, config.failover_lease_ms)
        self._attached: BrokerContext | None = None
        self._context: BrokerContext | None = None  # None: the broker is not there, or starts again
        self._in_sync: InSync | None = None  # of a primary, as the next one
        self._published: Published | None = None
        self._seen = Seen()
        self._is_primary = False  # the coordinator said so when it was last looked at
        self._why = ""  # what keeps it from being the primary
        self._trouble = SILENT  # with the coordinator; empty: it answers
        self._wake, self._looked = asyncio.Event(), asyncio.Event()
        self._turning = asyncio.Lock()  # a turn, or an operator's wish
        self._tasks: list[asyncio.Task[None]] = []

    # The broker

    async def begin(self) -> None:
        """Become a replica before a primary serves whose successor answers. The coordinator may be away."""
        if self._config.is_replica:
            return
        try:
            self._note(await self._coordinator.look())
            decision = decide(self._standing(), self._seen)
            state = self._seen.state
            if decision.act is Act.FOLLOW and state is not None:
                await demote(self._succession, state.primary.address)
                self._succession.begin()
        except (OrbitError, OSError) as error:
            logger.info("failover: at a start: %s", error)

    def attach(self, context: BrokerContext, in_sync: InSync | None) -> None:
        """Work for a broker that has opened its store; a primary's messages wait for the lease."""
        self._attached, self._in_sync, self._published = context, in_sync, None
        self._is_primary, self._why = False, ""
        own, store, replication = self._own(context), context.store, context.replication
        if in_sync is not None and isinstance(replication, HaServer):
            sync = SyncSet(own, self._config, self._clock, lambda: store.max_log_offset)
            replication.know(sync)
            self._published = Published(self._coordinator, sync, in_sync)
            in_sync.guard = self
        elif isinstance(replication, Replica):
            replication.hello = own.encode()
        self._fence()

    def start(self) -> None:
        """Begin, or go on at once in another role; the broker serves clients already."""
        self._context = self._attached
        self._wake.set()
        if not self._tasks:
            runs = self._keep_run(), self._run(), self._watch()
            self._tasks = [asyncio.ensure_future(run) for run in runs]

    def stop(self) -> None:
        """Do nothing more for this start of the broker but keep the lease."""
        self._context = None

    async def end(self) -> None:
        """Stop for good: the lease is given back, so that somebody else can have it at once."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._give_back()
        except WireError as error:
            logger.info("failover: the lease ends by itself: %s", error)
        self._coordinator.close()
        self._seen, self._why, self._trouble = Seen(), "", SILENT

    # What answers and appends ask

    @property
    def is_primary(self) -> bool:
        """Whether this broker is the primary for certain, at this moment."""
        return self._is_primary and self._lease.is_valid

    def reached(self, log_offset: int) -> bool:
        """Tell whether everything before this offset may be acknowledged now."""
        published = self._published
        return published is not None and self.is_primary and published.sync.reached(log_offset)

    @property
    def least(self) -> int:
        return least_of(self._config)

    @property
    def refusal(self) -> str:
        """Why messages are refused; empty: they are not."""
        if self.is_primary:
            return ""
        return f"no lease says that this broker is the primary: {self._reason()}"

    def _reason(self) -> str:
        trouble = f"{self._config.failover}: {self._trouble}" if self._trouble else ""
        return trouble or self._why or "it waits for one"

    # The lease

    async def _keep_run(self) -> None:
        while True:
            try:
                if await self._lease.keep():
                    self._wake.set()
            except WireError as error:
                self._tell(str(error))
            await asyncio.sleep(self._turn_ms / 1000)

    async def _take(self, state: FailoverState) -> bool:
        """Become the holder with this state; tell whether that was so."""
        before = self._seen
        revision = await self._lease.take(before, state)
        if not revision:
            return False
        self._seen = Seen(state, revision, state.primary.id, before.at)
        self._succession.joined()
        logger.warning("failover: has the lease of the primary, epoch %d", state.epoch)
        return True

    async def _give_back(self) -> None:
        self._is_primary = False
        await self._lease.give_back()

    def _fence(self) -> None:
        """Have the store of a primary take appends only while it has the lease."""
        context = self._attached
        if context is None or self._config.is_replica:
            return
        flags, fenced = context.store.flags, not self.is_primary
        if fenced != bool(flags.bits & Flag.FENCED):
            (flags.set if fenced else flags.clear)(Flag.FENCED)
            words = f"messages are refused: {self._reason()}" if fenced else "messages are taken"
            logger.warning("failover: %s", words)
            if self._in_sync is not None:
                self._in_sync.changed()

    # Turns

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            pause_ms = self._turn_ms
            try:
                async with self._turning:
                    await self._turn()
                self._tell("")
            except (OrbitError, OSError) as error:
                self._tell(str(error))
                pause_ms = max(pause_ms / 2, TICK_MS)
            except Exception:
                logger.exception("failover: a turn failed; the next one comes")
            await self._pause(pause_ms)

    async def _pause(self, ms: float) -> None:
        """Wait for the next turn; see meanwhile to what hangs on time alone."""
        until = self._clock.monotonic_ms() + ms
        while not self._wake.is_set() and self._clock.monotonic_ms() < until:
            self._fence()
            if not self._trouble and self._is_late():
                return
            try:
                async with asyncio.timeout(TICK_MS / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _watch(self) -> None:
        while True:
            await self._looked.wait()
            self._looked.clear()
            try:
                async with asyncio.timeout(self._config.failover_lease_ms / 1000):
                    await self._coordinator.wait_change(self._seen)
                self._wake.set()
            except TimeoutError:  # its connection may be dead by now: ask anew
                self._looked.set()
            except (WireError, OSError) as error:
                logger.debug("failover: changes are not told: %s", error)
                await asyncio.sleep(self._turn_ms / 1000)
                self._looked.set()

    async def _turn(self) -> None:
        self._note(await self._coordinator.look())
        self._looked.set()
        context, seen = self._context, self._seen
        if context is None:
            return
        decision, state = decide(self._standing(), seen), seen.state
        self._why = decision.why
        self._is_primary = decision.act is Act.SERVE
        match decision:
            case Decision(Act.SERVE):
                await self._serve(context)
            case Decision(Act.TAKE):
                await self._take_again(context, decision.epoch)
            case Decision(Act.TAKE_OVER) if state is not None:
                member = self._own(context)
                await self._take_over(context, decision.epoch, heirs(state, member, self.least))
            case Decision(Act.FOLLOW) if state is not None:
                await self._follow(context, state.primary.address)
        self._fence()

    def _standing(self) -> Standing:
        known, is_replica = self._succession, self._config.is_replica
        number, holds = known.epochs.number, self._lease.is_taken
        return Standing(known.member, number, is_replica, known.is_joined, holds)

    def _note(self, seen: Seen) -> None:
        self._seen = seen
        if seen.state is not None and seen.state.has(self._succession.member):
            self._succession.joined()

    def _own(self, context: BrokerContext) -> Member:
        return Member(id=self._succession.member, address=context.address)

    # A primary

    async def _take_again(self, context: BrokerContext, epoch: int) -> None:
        """Take the lease as the primary that this broker is; who is in sync stays so."""
        own, state = self._own(context), self._seen.state
        in_sync = state.in_sync if state is not None else (own,)
        if await self._take(FailoverState(epoch=epoch, primary=own, in_sync=in_sync)):
            self._is_primary = True
            await self._serve(context)

    async def _serve(self, context: BrokerContext) -> None:
        """Publish who is in sync."""
        assert self._published is not None
        served = await self._published.serve(self._seen, self._own(context))
        if served is None:
            self._wake.set()
        else:
            self._seen = served

    def _is_late(self) -> bool:
        """Tell whether somebody else is in sync than is published."""
        published = self._published if self._is_primary else None
        return published is not None and published.sync.look() is not None

    # Becoming the primary, and no longer being it

    async def force(self) -> Epoch | None:
        """Become the primary whatever this log lacks, if nobody has the lease; None: somebody has.

        WireError: the coordinator does not answer; StoreError: the disk does not take it.
        """
        async with self._turning:
            self._note(await self._coordinator.look())
            context, seen = self._context, self._seen
            if context is None or seen.holder not in ("", self._succession.member):
                return None
            known = seen.state.epoch if seen.state is not None else 0
            epoch = max(known, self._succession.epochs.number) + 1
            return await self._take_over(context, epoch, (self._own(context),))

    async def _take_over(
        self, context: BrokerContext, epoch: int, in_sync: tuple[Member, ...]
    ) -> Epoch | None:
        """Take the lease, then begin the epoch on disk, then start again as the primary."""
        state = FailoverState(epoch=epoch, primary=self._own(context), in_sync=in_sync)
        if not await self._take(state):
            await self._give_back()
            return None
        replica, loop = context.replication, context.loop
        follows = replica if isinstance(replica, Replica) else None
        former = follows.address if follows is not None else ""
        try:
            if follows is not None:
                await loop.run_in_executor(None, follows.stop)
            began = await loop.run_in_executor(
                None, self._succession.promote, context.store, former, epoch
            )
        except OrbitError:
            if follows is not None:
                follows.start()
            await self._give_back()  # another one may
            await asyncio.sleep(self._config.failover_lease_ms / 1000)
            raise
        self._context = None
        self._succession.restart(f"took over: the primary of epoch {epoch}")
        return began

    async def _follow(self, context: BrokerContext, address: str) -> None:
        """Follow the primary that the coordinator tells; a primary before it becomes its replica."""
        await self._give_back()
        self._fence()
        try:
            if self._config.is_replica:
                await lead(context, self._config.name, address)
                return
            await demote(self._succession, address)
        except (OrbitError, OSError) as error:
            # No fault of the coordinator; the next turn tries again.
            self._why = self._why or f"{address} is the primary, and is not reached: {error}"
            return
        self._context = None
        self._succession.restart(f"demoted: follows {address}")

    # For tools

    def _tell(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            logger.warning("failover: %s: tried again: %s", self._config.failover, trouble)
        elif self._trouble and not trouble:
            logger.info("failover: %s answers", self._config.failover)
        self._trouble = trouble

    @property
    def state(self) -> str:
        """What the list of services tells of it."""
        return f"running, {self.told().state}" if self._tasks else "stopped"

    def told(self) -> FailoverTold:
        """Return what this broker tells of its failover."""
        seen, known = self._seen.state, self._trouble == ""
        may = seen is not None and seen.has(self._succession.member)
        if not self._config.is_replica:
            words = "has the lease" if self.is_primary else f"refuses messages: {self._reason()}"
        elif not known:
            words = f"{self._config.failover}: {self._trouble}"
        else:
            words = "may take over" if may else self._why or "waits"
        return FailoverTold(
            coordinator=self._config.failover,
            state=words,
            lease_ms=round(self._lease.left_ms),
            has_primary=bool(self._seen.holder),
            may=may,
            known=known,
            epoch=seen.epoch if seen is not None else 0,
            in_sync=[member.address for member in seen.in_sync] if seen is not None else [],
        )
