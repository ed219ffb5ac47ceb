"""What tools ask about copies of the log: who has it and how far."""

from orbitmq.broker.processors.processor import Processor, answers
from orbitmq.broker.refusal import Refusal
from orbitmq.net.connection import Connection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command


class ReplicationProcessor(Processor):
    """Answers for a primary and for a replica."""

    @answers(RequestCode.GET_BROKER_HA_STATUS)
    def _status(self, connection: Connection, request: Command) -> Command:
        replication = self._context.replication
        assert replication is not None, "a broker that serves has one"
        return request.answer(body=replication.status().encode())

    @answers(RequestCode.GET_BROKER_EPOCH_CACHE)
    def _epochs(self, connection: Connection, request: Command) -> Command:
        """Refuse as RocketMQ does: only brokers under a controller have epochs."""
        raise Refusal(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")
