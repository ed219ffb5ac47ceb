"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320).

The sends of one read are appended together, on one of two ways (docs/adr/0010):

`take`        | frames in, records and answers out, by kernels: ordinary messages of known topics, JSON
`handle_many` | the general way: decoded commands through `SendRules`, whatever they are

They are appended in the order in which they came, whichever way they go.
"""

import logging
from collections.abc import Sequence
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.processors.processor import Processor, answers, failure_answer
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sends.answers import SendAnswers, refusal_remark, response_code
from orbitmq.broker.sends.fast_way import FastWay
from orbitmq.broker.sends.flush_wait import FlushWait
from orbitmq.broker.sends.rules import PreparedSend, SendRules
from orbitmq.errors import StoreError
from orbitmq.format.message_id import MEMORY_LOG_OFFSET
from orbitmq.format.properties import find_property
from orbitmq.message import RETRY_PREFIX, AppendRequest, AppendResult, AppendStatus, Property
from orbitmq.net.connection import Connection
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import ONEWAY_FLAG, Command
from orbitmq.wire.headers.recall import RecallHandle

logger = logging.getLogger(__name__)

_WAIT: Final = f"{Property.WAIT}\x01".encode()
_PUT_OK: Final = AppendStatus.PUT_OK

_Asked = tuple[Command, PreparedSend]
_Appended = tuple[Command, PreparedSend, list[AppendResult]]


class SendProcessor(Processor):
    """Appends what producers send and answers them. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self._rules = SendRules(context)
        self.flush_wait = FlushWait(context)
        self._sync = self.flush_wait.waits
        self._body_max = context.store.config.message_bytes_max
        self._settings: tuple[object, ...] = ()
        self._answers: SendAnswers
        self.fast_way = FastWay(context, self.flush_wait)
        self._use_settings()

    @answers(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    def handle(self, connection: Connection, request: Command) -> None:
        """Handle one send; it is answered by itself."""
        self.handle_many(connection, [request])

    def handle_many(self, connection: Connection, requests: Sequence[Command]) -> None:
        """Append all, in this order, and answer each, now or when it is on disk."""
        self._use_settings()
        asked: list[_Asked] = []
        for request in requests:
            prepared = self._prepared(connection, request)
            if prepared is None:
                continue
            if not prepared.is_batch:
                asked.append((request, prepared))
                continue
            # What came before it is appended before it.
            if asked:
                self._append(connection, asked)
                asked = []
            self._append_batch(connection, request, prepared)
        if asked:
            self._append(connection, asked)

    def take(self, connection: Connection, data: bytes) -> int:
        """Append and answer the ordinary sends that these bytes begin with; return their length."""
        self._use_settings()
        return self.fast_way.take(connection, data)

    def _prepared(self, connection: Connection, request: Command) -> PreparedSend | None:
        """Return what a send asks for; None: it was refused, and told so."""
        try:
            prepared = self._rules.prepare(connection, request)
        except Refusal as refusal:
            answer = self._answers.refused(request, refusal.code, refusal.remark)
        except Exception as error:
            answer = failure_answer(connection, request, error)
        else:
            self.fast_way.remember(prepared.append.topic)
            return prepared
        self._context.request_log.refused(connection, request, answer)
        if not request.flag & ONEWAY_FLAG:
            connection.send(answer)
        return None

    def _use_settings(self) -> None:
        """Have new texts made when settings that stand in them have changed."""
        config = self._config
        settings = config.region, config.trace_on, config.cluster, config.store.message_bytes_max
        if settings != self._settings:
            self._settings = settings
            self._body_max = config.store.message_bytes_max
            self._answers = SendAnswers(config, self._context.store_host)
            self.fast_way.use_texts(self._rules.use_settings(), self._answers)

    # --- appending and answering ---

    def _append(self, connection: Connection, asked: list[_Asked]) -> None:
        appends = [prepared.append for _, prepared in asked]
        try:
            if len(appends) == 1:
                results = [
                    self._store.append_nowait(appends[0], flush=self.flush_wait.store_flushes)
                ]
            else:
                results = self._store.append_many_nowait(
                    appends, flush=self.flush_wait.store_flushes
                )
        except StoreError as error:
            results = [_unavailable(error)] * len(appends)
        self._count(appends, results)
        for (_, prepared), result in zip(asked, results, strict=True):
            if prepared.half_of is not None and result.status is _PUT_OK:
                self._context.transactions.begun(prepared.half_of, prepared.append, result)
        self._answer(
            connection, [(*one, [result]) for one, result in zip(asked, results, strict=True)]
        )

    def _answer(self, connection: Connection, sends: list[_Appended]) -> None:
        """Answer each now; with sync flush those that were stored and wait for it, when all are on disk."""
        waiting: list[_Appended] = []
        for request, prepared, results in sends:
            if request.flag & ONEWAY_FLAG:
                if not results[0].status.stored:
                    answer = self._command(request, prepared, results)
                    self._context.request_log.refused(connection, request, answer)
                continue
            if self._sync and _waits(prepared.append, results[0]):
                waiting.append((request, prepared, results))
            else:
                answer = self._command(request, prepared, results)
                if answer.code:
                    self._context.request_log.refused(connection, request, answer)
                connection.send(answer)
        if self._sync:
            self.flush_wait.sync_soon()
        if not waiting:
            return

        def done(status: AppendStatus) -> None:
            for request, prepared, results in waiting:
                synced = [result._replace(status=status) for result in results]
                connection.send(self._command(request, prepared, synced))

        last = waiting[-1][2][-1]
        self.flush_wait.add(last.log_offset + last.size, done)

    def _command(
        self, request: Command, prepared: PreparedSend, results: list[AppendResult]
    ) -> Command:
        """Return the answer to a send that was appended, or refused by the store."""
        status, key = results[0].status, prepared.unique_key
        # Without it the Java client takes each message's own id for stored.
        batch_id = key if prepared.inner_count else None
        if status.stored:
            handle = self._recall_handle(prepared)
            return self._answers.stored(request, prepared.queue_id, key, results, batch_id, handle)
        remark = refusal_remark(results[0], self._body_max)
        return self._answers.refused(request, response_code(status), remark, batch_id)

    def _recall_handle(self, prepared: PreparedSend) -> str | None:
        """Return by what a message that waits in the timer wheel can be recalled; None: it does not wait."""
        append = prepared.append
        if not append.slot_ms or append.topic.startswith(RETRY_PREFIX):
            return None
        deliver_ms = str(append.slot_ms + 1)  # the first moment of that slot: both end in the same
        key = prepared.unique_key or "null"
        return RecallHandle(append.topic, self._config.name, deliver_ms, key).encode()

    def _append_batch(
        self, connection: Connection, request: Command, prepared: PreparedSend
    ) -> None:
        append, inner_count = prepared.append, prepared.inner_count
        try:
            if inner_count:
                results = [self._store.append_nowait(append, flush=self.flush_wait.store_flushes)]
            else:
                results = self._store.append_client_batch_nowait(
                    append, flush=self.flush_wait.store_flushes
                )
        except StoreError as error:
            results = [_unavailable(error)]
        if results[0].status is _PUT_OK:
            size = sum(result.size for result in results)
            self._context.statistics.on_put(append.topic, inner_count or len(results), size)
        self._answer(connection, [(request, prepared, results)])

    def _count(self, appends: Sequence[AppendRequest], results: Sequence[AppendResult]) -> None:
        """Add what was stored to the statistics, one call for neighbours of one topic."""
        topic, count, size = "", 0, 0
        for append, result in zip(appends, results, strict=True):
            if result[0] is not _PUT_OK:
                continue
            if append.topic != topic:
                if count:
                    self._context.statistics.on_put(topic, count, size)
                topic, count, size = append.topic, 0, 0
            count += 1
            size += result[2]
        if count:
            self._context.statistics.on_put(topic, count, size)


def _waits(append: AppendRequest, result: AppendResult) -> bool:
    """Tell whether the message goes to disk, and the producer wants to know that it is there."""
    properties = append.properties
    if result.status is not _PUT_OK or result.log_offset >= MEMORY_LOG_OFFSET:
        return False
    if _WAIT not in properties:
        return True
    return (find_property(properties, Property.WAIT) or "true").lower() == "true"


def _unavailable(error: StoreError) -> AppendResult:
    logger.error("the store takes no messages: %s", error)
    return AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE, reason=str(error))
