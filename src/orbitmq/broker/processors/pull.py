"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): what a consumer reads of one queue.

status of the read                        | answer
FOUND                                     | 0, the messages
OFFSET_OVERFLOW_ONE, OFFSET_FOUND_NULL    | 19; the first may wait for a message
NO_MESSAGE_IN_QUEUE                       | 19 if offset 0 was asked for (may wait), else 21
NO_MATCHED_MESSAGE, MESSAGE_WAS_REMOVING  | 20
OFFSET_TOO_SMALL, OFFSET_OVERFLOW_BADLY   | 21
OFFSET_RESET                              | 21; an operator has set the group's offset
"""

import dataclasses
from typing import Final

from orbitmq.broker.config import Transfer
from orbitmq.broker.context import BrokerContext
from orbitmq.broker.delivery.long_poll import CATCH_UP_BYTES, Parked
from orbitmq.broker.delivery.pull_rules import PullCheck, PullRules
from orbitmq.broker.processors.processor import Processor, answers, failure_answer
from orbitmq.broker.refusal import Refusal
from orbitmq.message import GetStatus
from orbitmq.net.connection import Connection
from orbitmq.net.file_parts import FilePart
from orbitmq.store.reads.get_result import GetResult
from orbitmq.units import HOUR_MS
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullHeader
from orbitmq.wire.pull_flags import PullFlag

COUNT_MAX: Final = 4096  # a read looks at this many messages at most; the store returns far fewer
SUSPEND_MS_MAX: Final = 1 * HOUR_MS
DISPATCH_MS_MAX: Final = 200
"""So long a pull that does not want to wait does, while its queue has messages that are being dispatched."""
_COMMIT: Final = int(PullFlag.COMMIT)
_SUSPEND: Final = int(PullFlag.SUSPEND)

_CODES: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}

_AT_END: Final = (
    GetStatus.OFFSET_OVERFLOW_ONE,
    GetStatus.NO_MESSAGE_IN_QUEUE,
    GetStatus.NO_MATCHED_LOGIC_QUEUE,
)
_OUTSIDE: Final = (
    GetStatus.OFFSET_OVERFLOW_BADLY,
    GetStatus.NO_MESSAGE_IN_QUEUE,
    GetStatus.OFFSET_TOO_SMALL,
)


class PullProcessor(Processor):
    """Answers pulls, or parks them. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self._rules = PullRules(context)

    @answers(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
    def handle(self, connection: Connection, request: Command) -> Command | None:
        header = PullHeader.read(request.fields)
        try:
            check = self._rules.check(connection, request, header)
        except Refusal as refusal:
            refusal.fields = refusal.fields or {}  # clients take a pull's answer to have fields
            raise
        result, is_behind = self._read(header, check)
        if header.sys_flag & _COMMIT and result.status is not GetStatus.OFFSET_RESET:
            self._commit(header)
        if self._may_wait(header, result, is_behind) and not request.is_oneway:
            self._park(connection, request, header)
            return None
        self._answer(connection, request, header, check, result)
        return None

    def _read(self, header: PullHeader, check: PullCheck) -> tuple[GetResult, bool]:
        """Return what there is, and whether there may be more that could not be dispatched just now."""
        topic, queue_id = header.topic, header.queue_id
        reset = self._context.offsets.take_reset(header.consumer_group, topic, queue_id)
        if reset is not None:
            low, high = (
                self._store.min_offset(topic, queue_id),
                self._store.max_offset(topic, queue_id),
            )
            return GetResult(GetStatus.OFFSET_RESET, reset, low, high), False
        count = min(max(header.max_msg_nums, 1), COUNT_MAX)
        offset, wanted = header.queue_offset, check.wanted
        # Before the look: what is dispatched in between must not be missed.
        is_behind = self._store.is_undispatched(topic, queue_id, offset)
        result = self._store.get(topic, queue_id, offset, count, message_filter=wanted)
        if is_behind and result.status in _AT_END:
            is_behind = not self._store.catch_up(CATCH_UP_BYTES)
            result = self._store.get(topic, queue_id, offset, count, message_filter=wanted)
        if result.status in _OUTSIDE and header.queue_offset > 0:
            self._look_at_others(header, result)
        return result, is_behind

    def _look_at_others(self, header: PullHeader, result: GetResult) -> None:
        """Take an offset for the end of the queue that it has, only not dispatched yet.

        A replica sends nobody elsewhere, as RocketMQ's: what it lacks its primary may have.
        """
        offset = header.queue_offset
        if result.status is GetStatus.OFFSET_TOO_SMALL:
            result.next_offset = offset if self._config.is_replica else result.next_offset
        elif self._config.is_replica or offset <= self._store.next_queue_offset(
            header.topic, header.queue_id
        ):
            result.status, result.next_offset = GetStatus.OFFSET_OVERFLOW_ONE, offset

    def _commit(self, header: PullHeader) -> None:
        if header.commit_offset >= 0:
            self._context.offsets.commit(
                header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )

    # --- waiting ---

    def _may_wait(self, header: PullHeader, result: GetResult, is_behind: bool) -> bool:
        """Tell whether a pull is parked: because it wants to, or for what was acknowledged before it came."""
        return (
            (is_behind or bool(header.sys_flag & _SUSPEND))
            and _code(header, result.status) == ResponseCode.PULL_NOT_FOUND
            and not self._context.stopping
        )

    def _park(self, connection: Connection, request: Command, header: PullHeader) -> None:
        """Keep the pull until its queue has something for it, or its time is over."""
        config = self._config
        wait_ms = config.short_polling_ms
        if not header.sys_flag & _SUSPEND:
            wait_ms = DISPATCH_MS_MAX
        elif config.long_polling:
            wait_ms = min(max(header.suspend_timeout_millis, 0), SUSPEND_MS_MAX)
        self._remember(header, header.queue_offset)

        def attempt(parked: Parked, last: bool) -> bool:
            try:
                return self._attempt(connection, request, header, parked, last)
            except Exception as error:
                answer = failure_answer(connection, request, error)
                self._context.request_log.refused(connection, request, answer)
                connection.send(answer)
                return True

        deadline_ms = self._context.clock.monotonic_ms() + wait_ms
        self._context.long_poll.park(
            Parked(
                connection,
                header.topic,
                header.queue_id,
                header.queue_offset,
                deadline_ms,
                attempt,
            )
        )

    def _attempt(
        self,
        connection: Connection,
        request: Command,
        header: PullHeader,
        parked: Parked,
        last: bool,
    ) -> bool:
        """Try a parked pull again; True: it is answered now."""
        check = self._rules.check(connection, request, header)
        now = dataclasses.replace(header, queue_offset=parked.offset)
        result, _ = self._read(now, check)
        while result.status is GetStatus.NO_MATCHED_MESSAGE and result.next_offset > parked.offset:
            parked.offset = now.queue_offset = result.next_offset
            result, _ = self._read(now, check)
        if not last and _code(now, result.status) == ResponseCode.PULL_NOT_FOUND:
            return False
        if result.status is GetStatus.OFFSET_OVERFLOW_ONE and parked.offset > header.queue_offset:
            # What came was not wanted: the consumer goes on behind it.
            result.status = GetStatus.NO_MATCHED_MESSAGE
        self._answer(connection, request, header, check, result)
        return True

    # --- answering ---

    def _answer(
        self,
        connection: Connection,
        request: Command,
        header: PullHeader,
        check: PullCheck,
        result: GetResult,
    ) -> None:
        self._remember(header, result.next_offset)
        min_offset = result.min_offset
        if not result.max_offset:
            min_offset = self._context.topics.empty_min_offset(header.topic)
        fields = {
            "suggestWhichBrokerId": str(self._suggested_broker(check, result)),
            "groupSysFlag": str(check.group.group_sys_flag),
            "nextBeginOffset": str(result.next_offset),
            "maxOffset": str(result.max_offset),
            "minOffset": str(min_offset),
            "topicSysFlag": str(check.topic.topic_sys_flag),
        }
        code = _code(header, result.status)
        answer = request.answer(code, result.status.name, fields=fields)
        if request.is_oneway:
            return
        if result.status is not GetStatus.FOUND:
            connection.send(answer)
            return
        self._context.statistics.on_get(
            header.topic, header.consumer_group, result.message_count, result.total_bytes
        )
        packed, way = result.packed, self._config.transfer
        if way is Transfer.COPY:
            connection.send_parts(answer, result.records if packed is None else (packed,))
        elif way is Transfer.SLICES:
            connection.send_views(answer, [span.view for span in self._store.spans(result)])
        else:
            connection.send_views(answer, [FilePart(*span) for span in self._store.spans(result)])

    def _remember(self, header: PullHeader, offset: int) -> None:
        self._context.offsets.remember_pull(
            header.consumer_group, header.topic, header.queue_id, offset
        )

    def _suggested_broker(self, check: PullCheck, result: GetResult) -> int:
        if not self._rules.replica_reads:
            return 0
        if result.suggest_replica:
            return check.group.which_broker_when_consume_slowly
        return check.group.broker_id


def _code(header: PullHeader, status: GetStatus) -> int:
    code = _CODES.get(status)
    if code is None:  # the queue is empty
        code = (
            ResponseCode.PULL_OFFSET_MOVED if header.queue_offset else ResponseCode.PULL_NOT_FOUND
        )
    return int(code)
