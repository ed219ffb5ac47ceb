"""SEND_REPLY_MESSAGE (324), SEND_REPLY_MESSAGE_V2 (325): the reply to a request goes to who asked.

A request is an ordinary message that names the client id of its producer. The reply to it is pushed to that
client (326), if it is connected here, and stored in the cluster's reply topic, whether it was there or not.
The replier is answered when both are done: 0 the requester has it, 1 it has not.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.processors.processor import HandleMany, Processor, answers, failure_answer
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sends.flush_wait import FlushWait
from orbitmq.broker.sends.rules import SendRules
from orbitmq.errors import StoreError, WireError
from orbitmq.format.message_id import MEMORY_LOG_OFFSET, encode_offset_id
from orbitmq.format.properties import decode_properties, encode_properties
from orbitmq.message import AppendRequest, AppendResult, Property, SysFlag
from orbitmq.net.connection import Connection
from orbitmq.units import SECOND_MS
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.reply import ReplyHeader
from orbitmq.wire.headers.send import SendAnswer, SendHeader

logger = logging.getLogger(__name__)

PUSH_TIMEOUT_MS: Final = 10 * SECOND_MS
"""So long a requester may take to say that it has its reply."""
NOT_STORED_ID: Final = "0"
"""What stands for the offset id of a reply that was only pushed: clients need some id."""

_KEPT_BITS: Final = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_TYPE)
"""RocketMQ stores no bit at all, so that nobody can unpack a stored reply."""


class _Passing:
    """A reply on its way: what its replier is told, and for how much that waits."""

    __slots__ = ("connection", "is_parked", "problem", "queue_id", "request", "result", "waits")

    def __init__(self, connection: Connection, request: Command, queue_id: int) -> None:
        self.connection, self.request, self.queue_id = connection, request, queue_id
        self.problem = ""
        self.result: AppendResult | None = None
        self.waits = 0  # for the requester, for the disk
        self.is_parked = False


class ReplyProcessor(Processor):
    """Passes replies on to requesters. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self._rules = SendRules(context)
        self.flush_wait = FlushWait(context)
        self._sync = self.flush_wait.waits
        self._store_host = context.store_host.text()
        self._parked = 0
        context.pending.append(lambda: self._parked)

    @answers(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
    def handle(self, connection: Connection, request: Command) -> None:
        """Pass one reply on; its replier is answered by itself."""
        self.handle_many(connection, [request])

    def together(self) -> dict[int, HandleMany]:
        codes = RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2
        return dict.fromkeys(codes, self.handle_many)

    def handle_many(self, connection: Connection, requests: Sequence[Command]) -> None:
        """Pass on the replies that came together, then store them, and answer each when both are done."""
        passed: list[tuple[_Passing, AppendRequest]] = []
        for request in requests:
            try:
                # The requesters wait: they come first.
                passed.append(self._passed(connection, request))
            except Refusal as refusal:
                own = self._own_fields()
                self._send(
                    connection, request, request.answer(refusal.code, refusal.remark, fields=own)
                )
            except Exception as error:
                self._send(connection, request, failure_answer(connection, request, error))
        if passed and self._config.store_replies:
            self._store_all(passed)
        for passing, _ in passed:
            if passing.waits:
                passing.is_parked = True
                self._parked += 1
            else:
                self._send(connection, passing.request, self._answer(passing))

    def _passed(self, connection: Connection, request: Command) -> tuple[_Passing, AppendRequest]:
        """Send a reply to who asked; return how that stands, and what is to be stored. Refusal: neither."""
        header, _, queue_id = self._rules.admitted(connection, request)
        properties = decode_properties((header.properties or "").encode("utf-8", "replace"))
        properties |= {
            Property.REGION: self._config.region,
            Property.TRACE_ON: "true" if self._config.trace_on else "false",
        }
        encoded = encode_properties(properties)
        passing = _Passing(connection, request, queue_id)
        self._push(passing, header, properties, encoded)
        return passing, _append_of(connection, request, header, encoded, queue_id)

    # --- to the requester ---

    def _push(
        self, passing: _Passing, header: SendHeader, properties: dict[str, str], encoded: bytes
    ) -> None:
        """Send the reply to who asked, and wait until it says that it has it; or note why not."""
        client_id = properties.get(Property.REPLY_TO)
        if client_id is None:
            passing.problem = f"reply message properties[{Property.REPLY_TO}] is null"
            return
        requester = self._context.producers.find(client_id)
        if requester is None:
            passing.problem = f"push reply message fail, channel of <{client_id}> not found."
            return
        now_ms = self._context.clock.now_ms()
        fields = ReplyHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=_told(properties, encoded, now_ms),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=passing.connection.peer,
            store_host=self._store_host,
            store_timestamp=now_ms,
        ).write()
        code, to = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, requester.connection
        body = passing.request.body
        command = Command(code, fields, body, language="JAVA", encoding=to.encoding)
        passing.problem = f"push reply message to {client_id} fail."
        passing.waits += 1
        # Calls, no task: a reply waits for its requester twice as long as it works.
        to.ask(command, PUSH_TIMEOUT_MS, partial(self._on_pushed, passing))

    def _on_pushed(self, passing: _Passing, answer: Command | WireError) -> None:
        if isinstance(answer, WireError):
            logger.warning("%s %s", passing.problem, answer)
        elif answer.code != ResponseCode.SUCCESS:
            logger.warning("%s It answered %d: %s", passing.problem, answer.code, answer.remark)
        else:
            passing.problem = ""
        self._one_done(passing)

    # --- to the log ---

    def _store_all(self, passed: Sequence[tuple[_Passing, AppendRequest]]) -> None:
        """Append the replies; that one could not be, only the log of the broker tells."""
        appends = [append for _, append in passed]
        flush = self.flush_wait.store_flushes
        try:
            results = self._store.append_many_nowait(appends, flush=flush)
        except StoreError as error:
            logger.warning("%d replies were not stored: %s", len(appends), error)
            return
        for (passing, append), result in zip(passed, results, strict=True):
            if result.status.stored:
                self._context.statistics.on_put(append.topic, 1, result.size)
                passing.result = result
                self._wait_for_disk(passing, result)
            else:
                why = result.status.name, result.reason
                logger.warning("a reply to topic %s was not stored: %s %s", append.topic, *why)
        if self._sync:
            self.flush_wait.sync_soon()

    def _wait_for_disk(self, passing: _Passing, result: AppendResult) -> None:
        """Have the replier hear of it when the reply is on disk, or the time for that is over."""
        if self._sync and result.log_offset < MEMORY_LOG_OFFSET:
            passing.waits += 1
            self.flush_wait.add(result.log_offset + result.size, lambda _: self._one_done(passing))

    # --- to the replier ---

    def _one_done(self, passing: _Passing) -> None:
        passing.waits -= 1
        if passing.waits or not passing.is_parked:
            return
        self._parked -= 1
        self._send(passing.connection, passing.request, self._answer(passing))

    def _answer(self, passing: _Passing) -> Command:
        """Return what the replier is told; where the reply lies, even if the requester is gone."""
        request, problem, result = passing.request, passing.problem, passing.result
        if problem and result is None:
            return request.answer(ResponseCode.SYSTEM_ERROR, problem, fields=self._own_fields())
        message_id, queue_offset = NOT_STORED_ID, 0
        if result is not None:
            message_id = encode_offset_id(self._context.store_host, result.log_offset)
            queue_offset = result.queue_offset
        fields = SendAnswer(
            queue_id=passing.queue_id,
            msg_id=message_id,
            trace_on=self._config.trace_on,
            region=self._config.region,
            queue_offset=queue_offset,
        ).write()
        code = ResponseCode.SYSTEM_ERROR if problem else ResponseCode.SUCCESS
        return request.answer(code, problem or None, fields=fields)

    def _own_fields(self) -> dict[str, str]:
        """Return what each answer to a send carries, also one that says no."""
        return {
            Property.TRACE_ON: "true" if self._config.trace_on else "false",
            Property.REGION: self._config.region,
        }


def _append_of(
    connection: Connection,
    request: Command,
    header: SendHeader,
    properties: bytes,
    queue_id: int,
) -> AppendRequest:
    return AppendRequest(
        header.topic,
        queue_id,
        request.body,
        properties,
        header.flag,
        header.sys_flag & _KEPT_BITS,
        header.born_timestamp,
        connection.peer_host,
        reconsume_times=header.reconsume_times or 0,
    )


def _told(properties: dict[str, str], encoded: bytes, now_ms: int) -> str:
    """Return the properties as the requester is told them: with the time at which they left here."""
    if Property.PUSH_TIME in properties:
        return encode_properties({**properties, Property.PUSH_TIME: str(now_ms)}).decode()
    return (encoded + encode_properties({Property.PUSH_TIME: str(now_ms)})).decode()
