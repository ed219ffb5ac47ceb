"""Succession: how a broker becomes a primary or a replica, and who hears of it.

A broker's role is what its configuration says until it is promoted or demoted; from then on what its store
says (`orbitmq.epochs`), until somebody writes another role or broker id into the configuration. The store
is written first, then the broker starts again within its process, with all that a start does: a primary
recovers transactions, timers, delays and pops, a replica follows.

promoted   | by an operator (PROMOTE_REPLICA): the log gets a new epoch, durable before its first record; the
           | former primary and its other replicas are told until they follow (FOLLOW_PRIMARY)
demoted    | a primary that hears of one of its name with a higher epoch: told by that one, or found at the
           | name servers before it serves anybody. It believes what that one itself answers (GET_EPOCHS)
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.context import BrokerContext
from orbitmq.errors import OrbitError, ResponseError, StoreError
from orbitmq.files.disk import Disk, exists
from orbitmq.net.channels import Channels
from orbitmq.store import epochs as store_epochs
from orbitmq.store.config import Role
from orbitmq.store.cut import wish_cut
from orbitmq.store.epochs import EpochFile, Epochs
from orbitmq.store.store import MessageStore
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.replication import EpochRow, EpochsAnswer, FollowBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

logger = logging.getLogger(__name__)

TELL_MS: Final = 1 * SECOND_MS
"""How often a former primary is told that it is one, until it hears."""
ASK_MS: Final = 3 * SECOND_MS


class Succession:
    """The role of one broker, over its starts. Belongs to the event loop's thread."""

    def __init__(self, config: BrokerConfig, disk: Disk | None) -> None:
        self._config, self._disk = config, disk or Disk()
        self._file = EpochFile(config.store.layout().epochs, disk)
        self._configured = config.store.role, config.broker_id
        self._restart: Callable[[str], None] = lambda reason: None
        self.epochs = Epochs()

    def on_restart(self, restart: Callable[[str], None]) -> None:
        """Have this called with the reason when the broker has to be started again."""
        self._restart = restart

    # A start

    def begin(self) -> None:
        """Take the role that the store says, if the configuration is still what it was then."""
        role, broker_id = self._configured
        self.epochs = self._file.read()
        decided = self.epochs.role
        if decided is not None and decided.configured == self._text():
            role, broker_id = Role(decided.broker_role), decided.broker_id
            logger.info("role: %s with broker id %d, as decided", role.value, broker_id)
        elif decided is not None:
            self._keep(self.epochs._replace(role=None))
        config = self._config
        config.broker_id, config.store = broker_id, replace(config.store, role=role)

    @property
    def decided(self) -> store_epochs.Role | None:
        """What was decided over the configuration."""
        return self.epochs.role

    def began(self, store: MessageStore) -> None:
        """Give a primary's log the epoch that its records are written under from now on."""
        if not self.epochs.epochs or not store.recovery_report.clean:
            self._keep(self.epochs.began(store.max_log_offset, promoted=False))

    def identify(self, store: MessageStore) -> None:
        """Give the log the id by which a coordinator knows it, a new one if it may have lost something."""
        report, config = store.recovery_report, store.config
        kept = store_epochs.kept_by(sync_flush=config.sync_flush, in_memory=config.transient_pool)
        known = store_epochs.identified(
            self.epochs.identity, kept, clean=report.clean, lost=report.lost_records
        )
        if known != self.epochs.identity:
            self._keep(self.epochs._replace(identity=known))

    @property
    def member(self) -> str:
        """The id of this log; empty: it has none (no failover)."""
        return self.epochs.identity.member if self.epochs.identity is not None else ""

    @property
    def is_joined(self) -> bool:
        """Whether a coordinator has named this log before."""
        return self.epochs.identity is not None and self.epochs.identity.joined

    def joined(self) -> None:
        """Note that the coordinator has named it."""
        identity = self.epochs.identity
        if identity is not None and not identity.joined:
            self._keep(self.epochs._replace(identity=identity._replace(joined=True)))

    def settle(self, context: BrokerContext) -> bool:
        """Put right, once, which consumer offsets a new role leaves wrong; tell whether there was a new one.

        A new primary has none beyond its own queues: what they would skip is written after them. A new
        replica has none: its primary knows them, and some of its own may speak of what is cut off.
        """
        decided = self.epochs.role
        if decided is None or decided.settled:
            return False
        offsets, store = context.offsets, context.store
        if self._config.is_replica:
            offsets.clear()
        else:
            offsets.limit(store.max_offset)
        return True

    def settled(self) -> None:
        """Note that it is on disk."""
        decided = self.epochs.role
        assert decided is not None
        self._keep(self.epochs._replace(role=decided._replace(settled=True)))

    # Epochs

    def adopt(self, epochs: tuple[store_epochs.Epoch, ...]) -> None:
        """Keep the epochs of the primary whose log is copied from now on. Called by the replica's thread."""
        if epochs != self.epochs.epochs:
            self._keep(self.epochs._replace(epochs=epochs))

    def told(self, context: BrokerContext, ha_address: str) -> EpochsAnswer:
        """Return what this broker answers to GET_EPOCHS."""
        role = self.epochs.role
        changes = context.topics.changes, context.groups.changes, context.request_modes.changes
        return EpochsAnswer(
            broker_name=self._config.name,
            primary=not self._config.is_replica,
            epochs=[EpochRow(number=e.number, start=e.start, id=e.id) for e in self.epochs.epochs],
            log_end=context.store.max_log_offset,
            ha_address=ha_address,
            left_id=role.left_id if role is not None else 0,
            failover=context.failover.told() if context.failover is not None else None,
            tables=f"{context.boot_ms}-" + "-".join(map(str, changes)),
        )

    # Changes

    def promise(self, number: int) -> int:
        """Follow nobody of a lower epoch from now on; return the number, above all that is known here."""
        number = max(number, self.epochs.next_number)
        self._keep(self.epochs._replace(promised=number))
        return number

    def promote(
        self, store: MessageStore, former: str, number: int = 0, others: Sequence[str] = ()
    ) -> store_epochs.Epoch:
        """Become the primary: the log gets a new epoch from its end on. Nobody writes to it any more.

        `number`: what a coordinator says, or what `others` have promised; else the next one. Any thread
        may call it; `restart` makes it true. StoreError: the disk does not take it.
        """
        config, configured = self._config, self._configured[0]
        waits = config.in_sync_replicas > 1 or config.min_in_sync_replicas > 1 or config.sync_as_v4
        waits = waits or bool(config.failover)
        role = Role.SYNC_PRIMARY if waits else Role.ASYNC_PRIMARY
        decided = store_epochs.Role(
            configured=self._text(),
            broker_role=(role if configured is Role.REPLICA else configured).value,
            broker_id=0,
            former=former,
            others=tuple(others),
            left_id=config.broker_id,
        )
        if exists(config.store.layout().cut):
            raise StoreError(config.store.root, "its log is to be cut first", "It starts again.")
        if not store.wait_flushed():
            what = "the log could not be flushed, so nobody is sure where the new epoch begins"
            raise StoreError(config.store.root, what, "Look at the disk, and promote it again.")
        began = self.epochs.began(store.max_log_offset, promoted=True, number=number)
        self._keep(began._replace(role=decided))
        return began.epochs[-1]

    def demote(self, address: str, its: EpochsAnswer) -> None:
        """Become a replica of this broker."""
        decided = store_epochs.Role(
            configured=self._text(),
            broker_role=Role.REPLICA.value,
            broker_id=max(its.left_id, 1),
            primary=address,
            ha_primary=its.ha_address,
        )
        self._keep(self.epochs._replace(role=decided))
        number = its.epochs[-1].number if its.epochs else 0
        logger.warning("demoted: %s is the primary of epoch %d", address, number)

    def is_above(self, its: EpochsAnswer) -> bool:
        """Tell whether this is a primary of our name that came after us."""
        if its.broker_name != self._config.name or not its.primary or not its.epochs:
            return False
        known = {epoch.id for epoch in self.epochs.epochs}
        is_same_log = any(row.id in known for row in its.epochs)
        return is_same_log and its.epochs[-1].number > self.epochs.number

    def restart(self, reason: str) -> None:
        """Have the broker started again."""
        self._restart(reason)

    def wish_cut(self, log_offset: int, cause: str) -> None:
        """Have the end of the log cut off at the next start. Called by the replica's thread."""
        wish_cut(self._config.store.layout(), self._disk, log_offset, cause)

    def heard(self, address: str) -> None:
        """Note that the former primary follows, or another replica."""
        decided = self.epochs.role
        if decided is not None:
            former = decided.former if decided.former != address else ""
            others = tuple(other for other in decided.others if other != address)
            self._keep(self.epochs._replace(role=decided._replace(former=former, others=others)))

    def _keep(self, epochs: Epochs) -> None:
        self._file.write(epochs)
        self.epochs = epochs

    def _text(self) -> str:
        role, broker_id = self._configured
        return f"{role.value} {broker_id}"


class Followers:
    """Tells the primary before us, and its other replicas, whom to follow. Belongs to the event loop."""

    def __init__(self, context: BrokerContext, succession: Succession) -> None:
        self._context, self._succession = context, succession
        self._tasks: list[asyncio.Task[None]] = []
        self._channels = Channels()

    def start(self) -> None:
        decided, create = self._succession.decided, self._context.loop.create_task
        if decided is not None:
            addresses = filter(None, (decided.former, *decided.others))
            self._tasks = [create(self._run(address)) for address in addresses]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        closing = self._context.loop.create_task(self._channels.close())
        self._context.pending.append(lambda: 0 if closing.done() else 1)

    async def _run(self, address: str) -> None:
        body = FollowBody(address=self._context.address).encode()
        while True:
            command = Command(RequestCode.FOLLOW_PRIMARY, {}, body)
            try:
                answer = await self._channels.request(address, command, ASK_MS)
                if answer.code == ResponseCode.SUCCESS:
                    logger.info("broker %s: follows", address)
                    self._succession.heard(address)
                    return
                logger.warning("broker %s: does not follow: %s", address, answer.remark)
            except (OrbitError, OSError) as error:
                logger.debug("broker %s: not reached: %s", address, error)
            await asyncio.sleep(TELL_MS / 1000)


async def ask_epochs(channels: Channels, address: str, timeout_ms: float = ASK_MS) -> EpochsAnswer:
    """Ask a broker for its epochs. ResponseError: it has none, as RocketMQ's."""
    answer = await channels.request(address, Command(RequestCode.GET_EPOCHS, {}), timeout_ms)
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(answer.code, answer.remark or "", address)
    return EpochsAnswer.decode(bytes(answer.body))
