"""Assignment by the broker: which queues a consumer reads, and how (400, 401, 402).

A group that pops a topic shares its queues: with popShareQueueNum <= 0, or as many as there are others, each
consumer pops all queues of all brokers (queue id -1); otherwise its own share and those of the next ones.
"""

from collections.abc import Sequence

from orbitmq.broker.processors.processor import Processor, answers
from orbitmq.broker.refusal import Refusal
from orbitmq.message import RETRY_PREFIX
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies.assignment import (
    BROADCASTING,
    POP,
    PULL,
    AssignmentQuestion,
    Assignments,
    QueueAssignment,
    RequestMode,
)
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command


class AssignmentProcessor(Processor):
    """Answers who reads what. Belongs to the event loop's thread."""

    @answers(RequestCode.QUERY_ASSIGNMENT)
    def query(self, connection: Connection, request: Command) -> None:
        """Tell a consumer its queues (400); a body without a list: it keeps those that it has."""
        question = AssignmentQuestion.decode(request.body)
        self.answer_later(connection, request, self._query(request, question))

    async def _query(self, request: Command, question: AssignmentQuestion) -> Command:
        queues = await self._context.routes.queues(question.topic)
        mode = self._mode(question)
        assigned = None if queues is None else self._assigned(question, mode, queues)
        body = Assignments()
        if assigned is not None:
            body.message_queue_assignments = [
                QueueAssignment(message_queue=queue, mode=mode.mode)
                for queue in dict.fromkeys(assigned)
            ]
        return request.answer(body=body.encode())

    def _mode(self, question: AssignmentQuestion) -> RequestMode:
        topic, group = question.topic, question.consumer_group
        known = self._context.request_modes.get(topic, group)
        if known is not None:
            return known
        is_retry = topic.startswith(RETRY_PREFIX)
        return RequestMode(
            topic=topic,
            consumer_group=group,
            mode=PULL if is_retry else self._config.default_request_mode,
            pop_share_queue_num=self._config.default_share_queues,
        )

    def _assigned(
        self, question: AssignmentQuestion, mode: RequestMode, queues: Sequence[MessageQueue]
    ) -> Sequence[MessageQueue] | None:
        """Return the consumer's queues; None: that cannot be said."""
        if question.message_model == BROADCASTING or not self._config.server_assignment:
            return queues
        group = self._context.consumers.group(question.consumer_group)
        allocate = _STRATEGIES.get(question.strategy_name)
        if group is None or allocate is None or not queues:
            return None
        ids = sorted({client.client_id for client in group.connections})
        if question.client_id not in ids:
            return None
        place = ids.index(question.client_id)
        if mode.mode != POP:
            return allocate(place, len(ids), queues)
        share = mode.pop_share_queue_num
        if share <= 0 or share >= len(ids) - 1:
            return [MessageQueue(queue.topic, queue.broker_name, -1) for queue in queues]
        if len(ids) > len(queues):
            return [queues[place % len(queues)]]
        places = [(place + step) % len(ids) for step in range(share + 1)]
        return [queue for one in places for queue in allocate(one, len(ids), queues)]

    @answers(RequestCode.SET_MESSAGE_REQUEST_MODE)
    def set_mode(self, connection: Connection, request: Command) -> None:
        """Set how a group reads a topic (401)."""
        mode = RequestMode.decode(request.body)
        if mode.topic.startswith(RETRY_PREFIX):
            raise Refusal(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if mode.topic not in self._context.topics:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{mode.topic}] not exist")
        if self._context.groups.get_or_create(mode.consumer_group) is None:
            remark = "subscription group does not exist"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if mode.mode not in (PULL, POP):
            remark = f"mode {mode.mode[:64]!r} must be {PULL} or {POP}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        self._context.request_modes.put(mode)

        def saved() -> None:
            if not request.is_oneway:
                connection.send(request.answer())

        self._context.registration.saved(saved)

    @answers(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    def all_modes(self, connection: Connection, request: Command) -> Command:
        """Give all modes, for replicas (402)."""
        return request.answer(body=self._context.request_modes.body().encode())


def _average(place: int, clients: int, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
    """Return a client's share of neighbouring queues; the first clients have one more."""
    share, more = divmod(len(queues), clients)
    start = place * share + min(place, more)
    return queues[start : start + share + (place < more)]


def _by_circle(place: int, clients: int, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
    return queues[place::clients]


_STRATEGIES = {"AVG": _average, "AVG_BY_CIRCLE": _by_circle}
