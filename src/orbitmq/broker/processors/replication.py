"""Copies of the log: who has it and how far (907), under whom it was written, who is to be the primary."""

from typing import TYPE_CHECKING

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.failover.following import lead
from orbitmq.broker.processors.processor import Processor, answers
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.replication.primary import HaServer
from orbitmq.broker.replication.promises import Promises, gather
from orbitmq.broker.replication.replica import Replica
from orbitmq.broker.replication.succession import ask_epochs
from orbitmq.errors import OrbitError
from orbitmq.net.channels import Channels
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies.failover import Member
from orbitmq.wire.bodies.replication import (
    FollowBody,
    PromiseAnswer,
    PromiseBody,
    PromotedAnswer,
)
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.admin import PromoteHeader

if TYPE_CHECKING:
    from orbitmq.broker.failover.failover import Failover


class ReplicationProcessor(Processor):
    """Answers for a primary and for a replica."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self._promoted = False

    @answers(RequestCode.GET_BROKER_HA_STATUS)
    def _status(self, connection: Connection, request: Command) -> Command:
        replication = self._context.replication
        assert replication is not None, "a broker that serves has one"
        return request.answer(body=replication.status().encode())

    @answers(RequestCode.GET_BROKER_EPOCH_CACHE)
    def _epochs(self, connection: Connection, request: Command) -> Command:
        """Refuse as RocketMQ does: only brokers under a controller have such epochs."""
        raise Refusal(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")

    # Ours

    @answers(RequestCode.GET_EPOCHS)
    def _own_epochs(self, connection: Connection, request: Command) -> Command:
        context = self._context
        told = context.succession.told(context, context.registration.ha_address)
        if request.body and isinstance(context.replication, HaServer):
            told.token = context.replication.tokens.give(Member.decode(request.body))
        return request.answer(body=told.encode())

    @answers(RequestCode.PROMOTE_REPLICA)
    def _promote(self, connection: Connection, request: Command) -> None:
        """Make this replica the primary; field force: whatever it may lack."""
        replica, failover = self._context.replication, self._context.failover
        is_forced = PromoteHeader.read(request.fields).force
        if failover is not None and not failover.is_primary:
            if not is_forced:
                raise Refusal(ResponseCode.ILLEGAL_OPERATION, _undecided(failover))
            self.answer_later(connection, request, self._forced(request, failover))
            return
        if not isinstance(replica, Replica):
            remark = f"{self._config.name} is a primary already, broker id {self._config.broker_id}"
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        problem = replica.promotion_problem()
        if problem and not is_forced:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, _refused(problem))
        if self._promoted:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "it is being promoted already")
        self._promoted = True
        self.answer_later(connection, request, self._primary(request, replica, is_forced))

    async def _forced(self, request: Command, failover: "Failover") -> Command:
        try:
            began = await failover.force()
        except OrbitError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"not promoted: {error}") from error
        if began is None:
            remark = "not promoted: somebody has the lease of the primary: stop that one first"
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        answer = PromotedAnswer(number=began.number, start=began.start)
        return request.answer(body=answer.encode())

    async def _primary(self, request: Command, replica: Replica, is_forced: bool) -> Command:
        context, lacked, former = self._context, replica.lacks, replica.address
        succession, run = context.succession, context.loop.run_in_executor
        try:
            # All may wait: for a primary that does not answer, for other replicas, and for the disk.
            await run(None, replica.stop)
            promised = await gather(context, succession.epochs.next_number, former)
            if not is_forced:
                self._require_promised(promised)
            began = await run(
                None, succession.promote, self._store, former, promised.number, [*promised.given]
            )
        except (OrbitError, Refusal):
            self._promoted = False
            replica.start()
            raise
        context.succession.restart(f"promoted: the primary of epoch {began.number}")
        answer = PromotedAnswer(number=began.number, start=began.start, lacked=lacked)
        return request.answer(body=answer.encode())

    def _require_promised(self, promised: Promises) -> None:
        needed = max(self._config.in_sync_replicas, 2 if self._config.sync_as_v4 else 1)
        problem = promised.problem(self._store.max_log_offset, needed)
        if problem:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, _refused(problem))

    @answers(RequestCode.PROMISE_EPOCH)
    def _promise(self, connection: Connection, request: Command) -> None:
        """Leave the primary that is followed, for one that is to come after it."""
        replica, body = self._context.replication, PromiseBody.decode(request.body)
        if not isinstance(replica, Replica) or body.broker_name != self._config.name:
            remark = f"{self._context.address} is no replica of {body.broker_name[:64]}"
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        if self._promoted or self._context.failover is not None:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "it is promoted itself, or by others")
        self.answer_later(connection, request, self._promised(request, replica, body.number))

    async def _promised(self, request: Command, replica: Replica, number: int) -> Command:
        def leave() -> int:
            replica.stop()  # first: its thread keeps epochs too
            try:
                return self._context.succession.promise(number)
            finally:
                replica.start()

        promised = await self._context.loop.run_in_executor(None, leave)
        answer = PromiseAnswer(number=promised, log_end=self._store.max_log_offset)
        return request.answer(body=answer.encode())

    @answers(RequestCode.FOLLOW_PRIMARY)
    def _follow(self, connection: Connection, request: Command) -> None:
        """Follow the broker that says that it is the primary now, if it is."""
        address = FollowBody.decode(request.body).address
        follow = self._led if self._config.is_replica else self._demoted
        self.answer_later(connection, request, follow(request, address))

    async def _led(self, request: Command, address: str) -> Command:
        if self._context.failover is None:  # else the coordinator says whom to follow
            await lead(self._context, self._config.name, address)
        return request.answer()

    async def _demoted(self, request: Command, address: str) -> Command:
        channels, succession = Channels(), self._context.succession
        try:
            its = await ask_epochs(channels, address)
        except (OrbitError, OSError) as error:
            remark = f"{address[:64]} cannot be asked for its epochs: {error}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark) from error
        finally:
            await channels.close()
        if not succession.is_above(its):
            number = succession.epochs.number
            remark = f"{address} is no primary of {self._config.name} above epoch {number}"
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        succession.demote(address, its)
        succession.restart(f"demoted: follows {address}")
        return request.answer()


def _refused(problem: str) -> str:
    return f"not promoted: {problem}; --force promotes it all the same"


def _undecided(failover: "Failover") -> str:
    """Return why a replica under a coordinator is not promoted by a command."""
    told = failover.told()
    by_itself = "it takes over by itself when the lease of the primary has ended"
    what = by_itself if told.may else told.state
    return _refused(f"{told.coordinator} decides: {what}")
