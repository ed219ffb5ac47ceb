"""Copies of the log: who has it and how far (907), under whom it was written, who is to be the primary."""

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.failover.failover import Failover
from orbitmq.broker.processors.processor import Processor, answers
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.replication.replica import Replica
from orbitmq.broker.replication.succession import ask_epochs
from orbitmq.errors import OrbitError
from orbitmq.net.channels import Channels
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies.failover import Member
from orbitmq.wire.bodies.replication import FollowBody, PromotedAnswer
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.admin import PromoteHeader


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
        if request.body and context.failover is not None:
            told.token = context.failover.welcome(Member.decode(request.body))
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
            remark = f"not promoted: {problem}; --force promotes it all the same"
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        if self._promoted:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "it is being promoted already")
        self._promoted = True
        self.answer_later(connection, request, self._primary(request, replica))

    async def _forced(self, request: Command, failover: Failover) -> Command:
        try:
            began = await failover.force()
        except OrbitError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"not promoted: {error}") from error
        if began is None:
            remark = "not promoted: somebody has the lease of the primary: stop that one first"
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        answer = PromotedAnswer(number=began.number, start=began.start)
        return request.answer(body=answer.encode())

    async def _primary(self, request: Command, replica: Replica) -> Command:
        context, lacked = self._context, replica.lacks
        try:
            # Both may wait: for a primary that does not answer, and for the disk.
            await context.loop.run_in_executor(None, replica.stop)
            began = await context.loop.run_in_executor(
                None, context.succession.promote, self._store, replica.address
            )
        except OrbitError:
            self._promoted = False
            replica.start()
            raise
        context.succession.restart(f"promoted: the primary of epoch {began.number}")
        answer = PromotedAnswer(number=began.number, start=began.start, lacked=lacked)
        return request.answer(body=answer.encode())

    @answers(RequestCode.FOLLOW_PRIMARY)
    def _follow(self, connection: Connection, request: Command) -> Command | None:
        """Follow the broker that says that it is the primary now, if it is."""
        if self._config.is_replica:
            return request.answer()
        address = FollowBody.decode(request.body).address
        self.answer_later(connection, request, self._demoted(request, address))
        return None

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


def _undecided(failover: Failover) -> str:
    """Return why a replica under a coordinator is not promoted by a command."""
    told = failover.told()
    by_itself = "it takes over by itself when the lease of the primary has ended"
    what = by_itself if told.may else told.state
    return f"not promoted: {told.coordinator} decides: {what}; --force promotes it all the same"
