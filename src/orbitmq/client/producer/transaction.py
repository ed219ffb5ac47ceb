"""Transactions: a message that consumers see when, and only when, something else has succeeded.

async with producer.transaction(Message("Orders", b"paid")) as transaction:
    await database.pay(order, transaction.transaction_id)

The message is sent before the block and held back by its broker. At the end of the block it is committed;
an exception rolls it back. If neither reaches the broker (this process was killed, the network broke), the
broker asks any producer of the group: that is what its `checker` is for.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, cast

from orbitmq.client.core.message import Message, ReceivedMessage
from orbitmq.client.producer.send_result import SendResult
from orbitmq.client.producer.sending import QueueSelector
from orbitmq.errors import (
    ClientError,
    InvalidMessageError,
    OrbitError,
    ResponseError,
    SendFailedError,
    TransactionInDoubtError,
    WireError,
)
from orbitmq.format.message_id import decode_offset_id
from orbitmq.message import Property
from orbitmq.net.tasks import stop_tasks
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.transaction import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    CheckTransaction,
    EndTransaction,
)

if TYPE_CHECKING:
    from orbitmq.client.producer.producer import AsyncProducer

_log = logging.getLogger(__name__)

IN_DOUBT_MAX: Final = 10_000
"""So many ends that got no answer are remembered, for the broker that asks after them."""
_STORED: Final = frozenset((ResponseCode.FLUSH_DISK_TIMEOUT.value,))


class TransactionState(Enum):
    """What became of a transaction, for the broker that holds its message."""

    COMMIT = COMMIT
    ROLLBACK = ROLLBACK
    UNKNOWN = UNKNOWN  # ask again later


Checker = Callable[[ReceivedMessage], "TransactionState | Awaitable[TransactionState]"]
"""Says what became of the transaction of this message, perhaps one of another process. A plain function is
called in a thread."""


class AsyncTransaction:
    """One transaction; enter it with `async with`. Belongs to the loop of its producer."""

    def __init__(
        self, transactions: "Transactions", message: Message, selector: QueueSelector | None
    ) -> None:
        self._transactions, self._message, self._selector = transactions, message, selector
        self._result: SendResult | None = None
        self.state: TransactionState | None = None
        """How it ended; None: it has not."""

    @property
    def result(self) -> SendResult:
        """Where the broker holds the message. ClientError: the transaction was not entered."""
        if self._result is None:
            raise ClientError("the transaction has not begun: use it inside `with`")
        return self._result

    @property
    def transaction_id(self) -> str:
        """The message's id, which the checker gets too."""
        return self.result.message_id

    async def __aenter__(self) -> Self:
        if self._result is not None:
            raise ClientError("a transaction is used once; begin another one")
        self._result = await self._transactions.begin(self._message, self._selector)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.state is not None:
            return
        if kind is None:
            await self.commit()
            return
        try:
            await self.rollback()
        except OrbitError as failure:  # the exception of the block is what counts
            _log.warning("transaction %s: not rolled back: %s", self.transaction_id, failure)

    async def commit(self) -> None:
        """Let consumers have the message. TransactionInDoubtError: nobody knows whether they will."""
        await self._end(TransactionState.COMMIT)

    async def rollback(self) -> None:
        """Let nobody have the message."""
        await self._end(TransactionState.ROLLBACK)

    async def leave_open(self) -> None:
        """Neither: the broker asks the group's checkers, this one or that of another process."""
        await self._end(TransactionState.UNKNOWN)

    async def _end(self, state: TransactionState) -> None:
        result = self.result
        if self.state is not None:
            raise ClientError(f"transaction {result.message_id} has ended: {self.state.name}")
        self.state = state
        await self._transactions.end(self._message, result, state)


class Transactions:
    """The transactions of one producer. Belongs to its loop."""

    def __init__(self, producer: "AsyncProducer", checker: Checker | None) -> None:
        self._producer, self._checker = producer, checker
        self._open: set[str] = set()  # of this process: not the checker's business yet
        self._in_doubt: dict[str, TransactionState] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def transaction(
        self, message: Message, selector: QueueSelector | None, check_after_s: int | None
    ) -> AsyncTransaction:
        """Return a transaction that begins when it is entered. InvalidMessageError: it cannot be one."""
        if message.delay_level or message.deliver_ms:
            raise InvalidMessageError(
                "a message of a transaction cannot be delayed: RocketMQ's brokers would lose it"
            )
        reserved = {
            **message.reserved,
            Property.TRANSACTION: "true",
            Property.PRODUCER_GROUP: self._producer.group,
        }
        if check_after_s is not None:
            reserved[Property.CHECK_IMMUNITY] = str(check_after_s)
        return AsyncTransaction(self, replace(message, reserved=reserved), selector)

    async def begin(self, message: Message, selector: QueueSelector | None) -> SendResult:
        """Send the message, to be held back. SendFailedError: it is not safe there."""
        request = self._producer.engine.requests.single(message)
        self._open.add(request.message_id)
        try:
            producer = self._producer
            result = await producer.send_request(request, producer.rule, None, selector)
        except BaseException:
            self._open.discard(request.message_id)
            raise
        if not result.is_ok:
            await self._give_back(message, result)
        return result

    async def _give_back(self, message: Message, result: SendResult) -> None:
        """Roll back what the broker stored less safely than it should."""
        cause = OrbitError(f"stored, but {result.status.value}; rolled back")
        try:
            await self.end(message, result, TransactionState.ROLLBACK)
        except OrbitError as failure:
            cause = failure
        raise SendFailedError(message.topic, [(result.queue.broker_name, cause)])

    async def end(self, message: Message, result: SendResult, state: TransactionState) -> None:
        """Tell the broker that has the message. TransactionInDoubtError: it did not answer."""
        engine, producer, key = self._producer.engine, self._producer, result.message_id
        try:
            address = engine.routes.primary(result.queue.broker_name)
            if address is None:
                raise engine.routes.no_route(message.topic)
            header = EndTransaction(
                producer_group=producer.group,
                tran_state_table_offset=result.queue_offset,
                commit_log_offset=decode_offset_id(result.offset_id)[1],
                commit_or_rollback=state.value,
                msg_id=key,
                transaction_id=result.transaction_id or key,
                topic=message.topic,
                bname=result.queue.broker_name,
            )
            texts = {Property.TAGS: message.tag, Property.KEYS: " ".join(message.key_list)}
            self._trace(header, {name: text for name, text in texts.items() if text}, address)
            code, address = RequestCode.END_TRANSACTION, engine.calls.vip(address)
            if state is TransactionState.UNKNOWN:  # RocketMQ does not answer that
                await engine.calls.oneway(address, code, header.write())
            else:
                timeout_ms = producer.config.send_timeout_ms
                await engine.calls.checked(
                    address, code, header.write(), timeout_ms=timeout_ms, also=_STORED
                )
        except ResponseError:
            raise
        except (WireError, ClientError) as failure:
            self._note_doubt(key, state)
            raise TransactionInDoubtError(key, state.name, str(failure)) from failure
        finally:
            self._open.discard(key)

    def _trace(self, end: EndTransaction, properties: dict[str, str], address: str) -> None:
        tracer = self._producer.engine.tracer
        if tracer is not None:
            tracer.end_transaction(
                topic=end.topic or "",
                message_id=end.msg_id or "",
                properties=properties,
                address=address,
                transaction_id=end.transaction_id,
                state=end.commit_or_rollback,
                from_check=end.from_transaction_check,
            )

    def _note_doubt(self, key: str, state: TransactionState) -> None:
        if state is not TransactionState.UNKNOWN:
            self._in_doubt[key] = state
            if len(self._in_doubt) > IN_DOUBT_MAX:
                del self._in_doubt[next(iter(self._in_doubt))]

    async def stop(self) -> None:
        """End the checks that are on their way."""
        await stop_tasks(self._tasks)

    # --- what brokers ask ---

    def on_check(self, address: str, request: Command, message: ReceivedMessage) -> None:
        """Answer a broker that wants to know what became of a half message (39)."""
        header = CheckTransaction.read(request.fields)
        task = asyncio.ensure_future(self._check(address, header, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _check(
        self, address: str, header: CheckTransaction, message: ReceivedMessage
    ) -> None:
        key = message.message_id
        state = await self._state_of(key, message)
        if state is None:
            return
        end = EndTransaction(
            producer_group=self._producer.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=key,
            transaction_id=header.transaction_id or key,
            topic=header.topic,
            bname=header.bname,
        )
        self._trace(end, message.properties, address)
        try:
            calls = self._producer.engine.calls
            await calls.oneway(address, RequestCode.END_TRANSACTION, end.write())
        except (WireError, ClientError) as failure:  # it asks again
            _log.warning("transaction %s: %s did not hear %s: %s", key, address, state, failure)
        else:
            self._in_doubt.pop(key, None)

    async def _state_of(self, key: str, message: ReceivedMessage) -> TransactionState | None:
        """Return what became of a transaction; None: nobody here can say."""
        if key in self._open:
            return TransactionState.UNKNOWN
        known = self._in_doubt.get(key)
        if known is not None or self._checker is None:
            return known
        try:
            state = await self._ask(self._checker, message)
        except Exception:
            _log.exception("transaction %s: the checker failed; the broker asks again", key)
            return TransactionState.UNKNOWN
        if isinstance(state, TransactionState):
            return state
        _log.error("transaction %s: the checker returned %r, no TransactionState", key, state)
        return TransactionState.UNKNOWN

    @staticmethod
    async def _ask(checker: Checker, message: ReceivedMessage) -> object:
        """Call the checker, in a thread if it is no coroutine function."""
        if inspect.iscoroutinefunction(checker):
            return await checker(message)
        state: object = await asyncio.to_thread(cast(Callable[..., object], checker), message)
        return await state if inspect.isawaitable(state) else state
