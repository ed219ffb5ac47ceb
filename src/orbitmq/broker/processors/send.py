"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320).

The sends of one read are appended together, on the shortest of three ways that does for them:

`take` | frames in, records and answers out, by kernels: ordinary messages of known topics, JSON
short  | the topic is known, the properties ask for nothing, the answer is a prepared text
long   | everything else goes through `SendRules`

They are appended in the order in which they came, whichever way they go.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from orbitmq.broker.refusal import Refusal
from orbitmq.broker.router import RequestHandler, failure_answer
from orbitmq.broker.sends.answers import SendAnswers, refusal_remark, response_code
from orbitmq.broker.sends.flush_wait import FlushWait
from orbitmq.broker.sends.rules import (
    ACTED_ON,
    CLEANUP_POLICY,
    COMPACTION,
    MULTI_TAG,
    PreparedSend,
    SendRules,
)
from orbitmq.errors import StoreError
from orbitmq.format.properties import decode_properties, find_property
from orbitmq.message import AppendRequest, AppendResult, AppendStatus, Property, QueueType
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import ONEWAY_FLAG, Encoding, encode_command

if TYPE_CHECKING:
    from orbitmq.broker.context import BrokerContext
    from orbitmq.format.compiled.sends import SendRun
    from orbitmq.net.connection import Connection
    from orbitmq.wire.bodies.topic_config import TopicConfig
    from orbitmq.wire.command import Command

logger = logging.getLogger(__name__)

# topic, queue id, sys flag, born time, flag, properties, reconsume times, batch; then what is only checked
_NAMES: Final = (
    "topic",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "batch",
    "defaultTopicQueueNums",
    "maxReconsumeTimes",
)
_LETTERS: Final = ("b", "e", "f", "g", "h", "i", "j", "m", "d", "l")
_SEND_V1: Final = RequestCode.SEND_MESSAGE

_WAIT: Final = b"WAIT\x01"
_TRANSACTION_BITS: Final = 0xC
_NUMBERS: Final = re.compile("[0-9]{1,18}(?:,[0-9]{1,9}){6}")
_NO_BATCH: Final = (None, "false")
_TOPICS_MAX: Final = 100_000  # remembered ones; forgotten when there are more
_NO_FIELDS: Final[dict[str, str]] = {}
_PUT_OK: Final = AppendStatus.PUT_OK

_Asked = tuple["Command", int, str]
"""A request, the queue id that its answer names, and the message's unique key."""


class SendProcessor:
    """Appends what producers send and answers them. Belongs to the event loop's thread."""

    def __init__(self, context: "BrokerContext") -> None:
        self._context, self._config, self._store = context, context.config, context.store
        self._topics = context.topics
        self._rules = SendRules(context)
        self.flush_wait = FlushWait(context)
        self._sync = context.store.config.sync_flush
        self._body_max = context.store.config.message_bytes_max
        # Topics whose messages may take the short way: config and number of queues.
        self._plain: dict[str, tuple[TopicConfig, int]] = {}
        self._settings: tuple[object, ...] = ()
        self._answers: SendAnswers
        self._suffix = ""
        self._run: SendRun | None = None
        self._use_settings()

    def handlers(self) -> Mapping[int, RequestHandler]:
        return {
            RequestCode.SEND_MESSAGE: self.handle,
            RequestCode.SEND_MESSAGE_V2: self.handle,
            RequestCode.SEND_BATCH_MESSAGE: self.handle,
        }

    def handle(self, connection: "Connection", request: "Command") -> None:
        """Handle one send; it is answered by itself."""
        self.handle_many(connection, [request])

    def handle_many(self, connection: "Connection", requests: Sequence["Command"]) -> None:
        """Append all, in this order, and answer each, now or when it is on disk."""
        self._use_settings()
        topics, plain, suffix = self._topics.get, self._plain, self._suffix
        born_host = connection.peer_host
        appends: list[AppendRequest] = []
        asked: list[_Asked] = []
        short_way = self._config.writable and not self._config.accept_sends_from_ms
        for request in requests:
            fields = request.fields or _NO_FIELDS
            names = _NAMES if request.code == _SEND_V1 else _LETTERS
            n_topic, n_queue, n_sys_flag, n_born, n_flag, n_properties, n_times, *n_rest = names
            n_batch, n_count, n_limit = n_rest
            try:
                topic = fields[n_topic]
                properties = fields[n_properties]
                queue_word, born_word = fields[n_queue], fields[n_born]
                flag_word, sys_word = fields[n_flag], fields[n_sys_flag]
                times_word = fields.get(n_times, "0")
                queue_id, born_ms = int(queue_word), int(born_word)
                # Nearly always zero, and comparing is cheaper than converting.
                sys_flag = 0 if sys_word == "0" else int(sys_word)
                flag = 0 if flag_word == "0" else int(flag_word)
                times = 0 if times_word == "0" else int(times_word)
                config, queue_count = plain[topic]
            except (KeyError, ValueError):
                short = False
            else:
                found = decode_properties(properties.encode("utf-8", "replace"))
                key = found.get(Property.UNIQ_KEY, "")
                counts = fields.get(n_count, "0"), fields.get(n_limit, "0")
                words = ",".join((born_word, queue_word, sys_word, flag_word, times_word, *counts))
                short = (
                    short_way
                    and config is topics(topic)
                    and 0 <= queue_id < queue_count
                    and _NUMBERS.fullmatch(words) is not None
                    and key != ""
                    # RocketMQ writes them anew: without doubles and without what has no value.
                    and len(found) == properties.count("\x02")
                    and properties[-1] == "\x02"
                    and found.keys().isdisjoint(ACTED_ON)
                    and fields.get(n_batch) in _NO_BATCH
                    and not sys_flag & _TRANSACTION_BITS
                    and len(request.body) > 0
                )
            if not short:
                self._long_way(connection, request, appends, asked)
                continue
            text = (properties + suffix).encode("utf-8", "replace")
            appends.append(
                AppendRequest(
                    topic,
                    queue_id,
                    request.body,
                    text,
                    flag,
                    sys_flag,
                    born_ms,
                    born_host,
                    None,
                    times,
                )
            )
            asked.append((request, queue_id, key))
        if appends:
            self._append(connection, appends, asked)

    # --- the way of the kernels ---

    def take(self, connection: "Connection", data: bytes) -> int:
        """Append and answer the ordinary sends that these bytes begin with; return their length."""
        self._use_settings()
        run = self._run or self._make_run()
        if run is None or not self._config.writable or self._config.accept_sends_from_ms:
            return 0
        taken = 0
        while taken < len(data) and run.find(data, taken) and self._may_take(run):
            host = connection.peer_host
            if not self._store.append_sends_nowait(run, host, flush=not self._sync):
                break
            taken = run.end
            for queue in run.queues:
                self._context.statistics.on_put(queue.topic, queue.messages, queue.record_bytes)
            connection.encoding = Encoding.JSON
            connection.language, connection.version = run.language, run.version
            self._answer_run(connection, run.answers())
        run.release()
        return taken

    def _make_run(self) -> "SendRun | None":
        sends = self._store.kernels.sends
        if sends is None:
            return None
        limit = self._config.net.frame_bytes_max
        self._run = sends(frame_bytes_max=limit, body_bytes_max=self._body_max)
        self._run.use_texts(self._suffix.encode(), self._answers.parts)
        return self._run

    def _may_take(self, run: "SendRun") -> bool:
        """Tell whether the topics and queues of a run are known, and nothing about them is special."""
        for queue in run.queues:
            known = self._plain.get(queue.topic)
            if (
                known is None
                or known[0] is not self._topics.get(queue.topic)
                or queue.queue_id >= known[1]
            ):
                return False
        return True

    def _answer_run(self, connection: "Connection", answers: bytes) -> None:
        if not self._sync:
            if answers:
                connection.send_frame(answers)
            return

        def done(status: AppendStatus) -> None:
            if status is _PUT_OK:
                connection.send_frame(answers)
                return
            for command in self._answers.told(answers, status):
                connection.send(command)

        if answers:
            self.flush_wait.add(self._store.max_log_offset, done)
        self.flush_wait.sync_soon()

    # --- the long way ---

    def _long_way(
        self,
        connection: "Connection",
        request: "Command",
        appends: list[AppendRequest],
        asked: list[_Asked],
    ) -> None:
        try:
            prepared = self._rules.prepare(connection, request)
        except Refusal as refusal:
            answer = self._answers.refused(request, refusal.code, refusal.remark)
            self._answer(connection, request, answer)
            return
        except Exception as error:
            self._answer(connection, request, failure_answer(connection, request, error))
            return
        if prepared.is_batch:
            # What came before it is appended before it.
            if appends:
                self._append(connection, appends, asked)
                appends.clear()
                asked.clear()
            self._append_batch(connection, request, prepared)
            self._remember(prepared.append.topic)
            return
        appends.append(prepared.append)
        asked.append((request, prepared.queue_id, prepared.unique_key or ""))
        self._remember(prepared.append.topic)

    def _remember(self, topic: str) -> None:
        """Let the next message of this topic take the short way, if it may."""
        config = self._topics.get(topic)
        if (
            config is None
            or not config.is_writable
            or topic.startswith("%")
            or config.topic_filter_type == MULTI_TAG
            or config.attributes.get(CLEANUP_POLICY) == COMPACTION
            or self._topics.queue_type(topic) is QueueType.BATCH
        ):
            return
        if len(self._plain) >= _TOPICS_MAX:
            self._plain.clear()
        self._plain[topic] = config, max(config.read_queue_nums, config.write_queue_nums)

    def _use_settings(self) -> None:
        """Have new texts made when settings that stand in them have changed."""
        config = self._config
        settings = config.region, config.trace_on, config.cluster, config.store.message_bytes_max
        if settings != self._settings:
            self._settings = settings
            if config.store.message_bytes_max != self._body_max:
                self._body_max, self._run = config.store.message_bytes_max, None  # made anew
            self._answers = SendAnswers(config, self._context.store_host)
            self._suffix = self._rules.suffix()
            if self._run is not None:
                self._run.use_texts(self._suffix.encode(), self._answers.parts)

    # --- appending and answering ---

    def _append(
        self, connection: "Connection", appends: list[AppendRequest], asked: list[_Asked]
    ) -> None:
        try:
            if len(appends) == 1:
                results = [self._store.append_nowait(appends[0], flush=not self._sync)]
            else:
                results = self._store.append_many_nowait(appends, flush=not self._sync)
        except StoreError as error:
            results = [_unavailable(error)] * len(appends)
        self._count(appends, results)
        if self._sync:
            self._answer_synced(connection, appends, asked, results)
            self.flush_wait.sync_soon()
            return
        stored, send_frame = self._answers.stored_frame, connection.send_frame
        for (request, queue_id, key), result in zip(asked, results, strict=True):
            if request.flag & ONEWAY_FLAG:
                continue
            if result[0] is _PUT_OK and key.isalnum() and key.isascii():
                send_frame(stored(request, queue_id, key, result[1], result[3]))
            else:
                send_frame(self._frame(request, queue_id, key, result))

    def _frame(self, request: "Command", queue_id: int, key: str, result: AppendResult) -> bytes:
        """Return the whole answer to a send that was appended, or refused by the store."""
        if result.status is _PUT_OK and key.isalnum() and key.isascii():
            return self._answers.stored_frame(
                request, queue_id, key, result.log_offset, result.queue_offset
            )
        return encode_command(self._command(request, queue_id, key, [result]))

    def _command(
        self, request: "Command", queue_id: int, key: str | None, results: list[AppendResult]
    ) -> "Command":
        status = results[0].status
        if status.stored:
            return self._answers.stored(request, status, queue_id, key, results)
        remark = refusal_remark(results[0], self._body_max)
        return self._answers.refused(request, response_code(status), remark)

    def _answer_synced(
        self,
        connection: "Connection",
        appends: list[AppendRequest],
        asked: list[_Asked],
        results: list[AppendResult],
    ) -> None:
        """Answer when all of these are on disk; what was refused or does not wait, now."""
        waiting: list[tuple[_Asked, AppendResult]] = []
        end_offset = 0
        for append, one, result in zip(appends, asked, results, strict=True):
            if one[0].flag & ONEWAY_FLAG:
                continue
            if result.status is not _PUT_OK or not _waits(append.properties):
                connection.send_frame(self._frame(*one, result))
            else:
                waiting.append((one, result))
                end_offset = result.log_offset + result.size
        if not waiting:
            return

        def done(status: AppendStatus) -> None:
            for asked_one, result in waiting:
                connection.send_frame(self._frame(*asked_one, result._replace(status=status)))

        self.flush_wait.add(end_offset, done)

    def _append_batch(
        self, connection: "Connection", request: "Command", prepared: PreparedSend
    ) -> None:
        append, inner_count = prepared.append, prepared.inner_count
        try:
            if inner_count:
                results = [self._store.append_nowait(append, flush=not self._sync)]
            else:
                results = self._store.append_client_batch_nowait(append, flush=not self._sync)
        except StoreError as error:
            results = [_unavailable(error)]
        if results[0].status is _PUT_OK:
            size = sum(result.size for result in results)
            self._context.statistics.on_put(append.topic, inner_count or len(results), size)

        def done(status: AppendStatus) -> None:
            told = [result._replace(status=status) for result in results]
            command = self._command(request, prepared.queue_id, prepared.unique_key, told)
            if inner_count:
                # Without it the Java client takes each message's own id for stored.
                (command.fields or {})["batchUniqId"] = prepared.unique_key or ""
            self._answer(connection, request, command)

        if self._sync:
            self.flush_wait.sync_soon()
        status, last = results[0].status, results[-1]
        if status is _PUT_OK and self._sync and _waits(append.properties):
            self.flush_wait.add(last.log_offset + last.size, done)
        else:
            done(status)

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

    def _answer(self, connection: "Connection", request: "Command", answer: "Command") -> None:
        if not request.flag & ONEWAY_FLAG:
            connection.send(answer)


def _waits(properties: bytes) -> bool:
    """Tell whether the producer wants to know that the message is on disk."""
    if _WAIT not in properties:
        return True
    return (find_property(properties, Property.WAIT) or "true").lower() == "true"


def _unavailable(error: StoreError) -> AppendResult:
    logger.error("the store takes no messages: %s", error)
    return AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE, reason=str(error))
