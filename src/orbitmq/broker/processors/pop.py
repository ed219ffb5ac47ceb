"""Pop consumption: 200050, 200052, 200054 and 200055. What is said of popped messages: `acks.py`.

found                                 | answer of a pop
messages                              | 0
nothing, and it may wait              | later
nothing, and too many wait            | 209
nothing, and its time is over         | 210
"""

from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.delivery.long_poll import CATCH_UP_BYTES
from orbitmq.broker.pop.polls import Poll, PollResult, Tried
from orbitmq.broker.pop.rules import PopRules
from orbitmq.broker.pop.words import Ask, Received
from orbitmq.broker.processors.processor import Processor, answers, failure_answer
from orbitmq.broker.refusal import Refusal
from orbitmq.message import GetStatus
from orbitmq.net.connection import Connection
from orbitmq.store.reads.tag_filter import MessageFilter
from orbitmq.units import HOUR_MS
from orbitmq.wire.bodies.group_config import GroupConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pop import (
    NotificationAnswer,
    NotificationHeader,
    PeekHeader,
    PollingInfoAnswer,
    PollingInfoHeader,
    PopAnswer,
    PopHeader,
)
from orbitmq.wire.receipt import (
    ORDER_QUEUE,
    join_items,
    offsets_item,
    start_item,
    topic_kind,
)

NOT_SET: Final = "not set any response code"  # what RocketMQ says where it has nothing to say
FROM_END: Final = 1  # initMode
POLL_MS_MAX: Final = 1 * HOUR_MS
_REFUSED: Final = PopAnswer().write()


class PopProcessor(Processor):
    """Answers pops, and who asks what there is to pop. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        pop = context.pop
        self._engine, self._polls, self._notices = pop.engine, pop.polls, pop.notices
        self._rules = PopRules(context)

    # --- pop ---

    @answers(RequestCode.POP_MESSAGE)
    def pop(self, connection: Connection, request: Command) -> Command | None:
        header = PopHeader.read(request.fields)
        header.born_time = header.born_time or self._context.clock.now_ms()
        try:
            group, wanted = self._rules.check_pop(connection, header)
            ask = _ask(header, group, wanted)
            self._store.catch_up(CATCH_UP_BYTES)
            received = self._engine.receive(ask)
        except Refusal as refusal:
            refusal.fields = dict(_REFUSED)  # clients take a pop's answer to have fields
            raise
        if received.batches:
            self._answer(connection, request, received)
            self._wake_next(ask, received)
            return None
        return self._park(connection, request, header, ask, received)

    def _park(
        self,
        connection: Connection,
        request: Command,
        header: PopHeader,
        ask: Ask,
        received: Received,
    ) -> Command | None:
        def attempt(last: bool) -> Tried:
            try:
                return self._attempt(connection, request, header, last=last)
            except Exception as error:
                if isinstance(error, Refusal):
                    error.fields = dict(_REFUSED)
                self._send_failure(connection, request, error)
                return Tried.ANSWERED

        key = ask.group, ask.topic, ask.queue_id
        parked = self._wait(connection, request, header, Poll(connection, key, 0, attempt))
        if parked is PollResult.PARKED:
            if received.rest > 0:
                self._polls.wake_soon(key)  # the filter has not seen everything
            return None
        code = ResponseCode.POLLING_TIMEOUT
        if parked is PollResult.FULL:
            code = ResponseCode.POLLING_FULL
        return request.answer(
            code, GetStatus.NO_MESSAGE_IN_QUEUE.name, fields=_fields(received).write()
        )

    def _wait(
        self,
        connection: Connection,
        request: Command,
        header: PopHeader | NotificationHeader,
        poll: Poll,
    ) -> PollResult:
        wait_ms = min(
            header.born_time + header.poll_time - self._context.clock.now_ms(), POLL_MS_MAX
        )
        if header.poll_time <= 0 or request.is_oneway or self._context.stopping:
            return PollResult.TIME_OVER
        poll.deadline_ms = self._context.clock.monotonic_ms() + wait_ms
        polls = self._polls if isinstance(header, PopHeader) else self._notices
        return polls.park(poll)

    def _attempt(
        self, connection: Connection, request: Command, header: PopHeader, *, last: bool
    ) -> Tried:
        """Try a pop that waits again; the last time it is answered, whatever there is."""
        if self._context.stopping:
            self._answer_nothing(connection, request, Received(self._context.clock.now_ms(), 0, 0))
            return Tried.ANSWERED
        header.born_time = max(header.born_time, self._context.clock.now_ms() - header.poll_time)
        group, wanted = self._rules.check_pop(connection, header)
        ask = _ask(header, group, wanted)
        received = self._engine.receive(ask)
        if received.batches:
            self._answer(connection, request, received)
            return Tried.ANSWERED if received.rest > 0 else Tried.ANSWERED_ALL
        if not last:
            if received.rest > 0 and wanted is not None:
                self._polls.wake_soon((ask.group, ask.topic, ask.queue_id))
            return Tried.NOTHING
        self._answer_nothing(connection, request, received)
        return Tried.ANSWERED_ALL

    def _answer_nothing(self, connection: Connection, request: Command, received: Received) -> None:
        remark, fields = GetStatus.NO_MESSAGE_IN_QUEUE.name, _fields(received).write()
        connection.send(request.answer(ResponseCode.POLLING_TIMEOUT, remark, fields=fields))

    def _answer(self, connection: Connection, request: Command, received: Received) -> None:
        if request.is_oneway:
            return
        answer = request.answer(remark=GetStatus.FOUND.name, fields=_fields(received).write())
        connection.send_parts(answer, [raw for batch in received.batches for raw in batch.records])

    def _wake_next(self, ask: Ask, received: Received) -> None:
        if received.rest > 0:
            self._polls.wake_soon((ask.group, ask.topic, ask.queue_id))

    # --- asking ---

    @answers(RequestCode.PEEK_MESSAGE, of_queues=True)
    def peek(self, connection: Connection, request: Command) -> Command | None:
        header = PeekHeader.read(request.fields)
        self._rules.check(connection, header)
        count = min(max(header.max_msg_nums, 1), 32)
        ask = Ask(
            group=header.consumer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            count=count,
            invisible_ms=0,
        )
        found, total = self._engine.peek(ask)
        records = [raw for result in found for raw in result.records]
        fields = PopAnswer(rest_num=total).write()  # those that it has read count, too
        if not records:
            remark = GetStatus.NO_MESSAGE_IN_QUEUE.name
            return request.answer(ResponseCode.PULL_NOT_FOUND, remark, fields=fields)
        answer = request.answer(remark=GetStatus.FOUND.name, fields=fields)
        if not request.is_oneway:
            connection.send_parts(answer, records)
        return None

    @answers(RequestCode.NOTIFICATION, of_queues=True)
    def notification(self, connection: Connection, request: Command) -> Command | None:
        header = NotificationHeader.read(request.fields)
        header.born_time = header.born_time or self._context.clock.now_ms()
        group = self._rules.check(connection, header)
        ask = Ask(
            group=header.consumer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            invisible_ms=0,
            ordered=bool(header.order) or group.consume_message_orderly,
            attempt_id=header.attempt_id,
        )
        if self._engine.has_messages(ask):
            return _notice(request, has_msg=True)

        def attempt(last: bool) -> Tried:
            found = self._engine.has_messages(ask)
            if not found and not last:
                return Tried.NOTHING
            connection.send(_notice(request, has_msg=found))
            return Tried.ANSWERED_ALL  # one who asks is enough for what is there

        key = ask.group, ask.topic, ask.queue_id
        parked = self._wait(connection, request, header, Poll(connection, key, 0, attempt))
        if parked is PollResult.PARKED:
            return None
        return _notice(request, has_msg=False, polling_full=parked is PollResult.FULL)

    @answers(RequestCode.POLLING_INFO)
    def polling_info(self, connection: Connection, request: Command) -> Command:
        header = PollingInfoHeader.read(request.fields)
        self._rules.check(connection, header)
        count = self._polls.count((header.consumer_group, header.topic, header.queue_id))
        return request.answer(remark=NOT_SET, fields=PollingInfoAnswer(polling_num=count).write())

    # --- helpers ---

    def _send_failure(self, connection: Connection, request: Command, error: Exception) -> None:
        answer = failure_answer(connection, request, error)
        self._context.request_log.refused(connection, request, answer)
        connection.send(answer)


def _ask(header: PopHeader, group: GroupConfig, wanted: MessageFilter | None) -> Ask:
    return Ask(
        group=header.consumer_group,
        topic=header.topic,
        queue_id=max(header.queue_id, -1),
        count=max(header.max_msg_nums, 1),
        invisible_ms=header.invisible_time,
        from_end=header.init_mode == FROM_END,
        wanted=wanted,
        # A client that has not heard yet that its group is ordered does not say so in its first requests.
        ordered=bool(header.order) or group.consume_message_orderly,
        attempt_id=header.attempt_id,
    )


def _fields(received: Received) -> PopAnswer:
    batches = [(topic_kind(batch.topic), batch) for batch in received.batches]
    starts = (start_item(kind, batch.queue_id, batch.start_offset) for kind, batch in batches)
    offsets = (offsets_item(kind, batch.queue_id, batch.offsets) for kind, batch in batches)
    is_order = received.revive_queue == ORDER_QUEUE
    return PopAnswer(
        pop_time=received.pop_ms,
        invisible_time=received.invisible_ms,
        revive_qid=received.revive_queue,
        rest_num=received.rest,
        start_offset_info=join_items(starts),
        msg_offset_info=join_items(offsets),
        order_count_info=join_items(received.order_counts) if is_order else None,
    )


def _notice(request: Command, *, has_msg: bool, polling_full: bool = False) -> Command:
    fields = NotificationAnswer(has_msg=has_msg, polling_full=polling_full).write()
    return request.answer(remark=NOT_SET, fields=fields)
