"""END_TRANSACTION (37), RESUME_CHECK_HALF_MESSAGE (323)."""

from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.processors.processor import Processor, answers
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sends.answers import LATE, response_code
from orbitmq.broker.sends.flush_wait import FlushWait
from orbitmq.message import AppendResult, AppendStatus
from orbitmq.net.connection import Connection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.transaction import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    EndTransaction,
    ResumeCheck,
)

NOT_SET: Final = "not set any response code"
"""RocketMQ's remark of a rollback that was done; the code decides."""


class TransactionProcessor(Processor):
    """Ends transactions and answers their producers. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self._transactions = context.transactions
        self.flush_wait = FlushWait(context)
        self._sync = self.flush_wait.waits

    @answers(RequestCode.END_TRANSACTION)
    def end(self, connection: Connection, request: Command) -> Command | None:
        """Commit or roll back (37); who does not know yet gets no answer, as from RocketMQ."""
        header = EndTransaction.read(request.fields)
        if header.commit_or_rollback == COMMIT:
            return self._commit(connection, request, header)
        if header.commit_or_rollback == ROLLBACK:
            return self._roll_back(connection, request, header)
        if header.commit_or_rollback == UNKNOWN:
            return None
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"commitOrRollback field wrong: {header.commit_or_rollback}; "
            f"{COMMIT} commits, {ROLLBACK} rolls back, {UNKNOWN} waits",
        )

    def _commit(
        self, connection: Connection, request: Command, header: EndTransaction
    ) -> Command | None:
        result = self._transactions.ending.commit(header)
        if not self._sync:
            return request.answer()
        end = self._store.max_log_offset if result is None else result.log_offset + result.size
        self._answer_synced(connection, request, end, None)
        return None

    def _roll_back(
        self, connection: Connection, request: Command, header: EndTransaction
    ) -> Command | None:
        self._transactions.ending.roll_back(header)
        if request.is_oneway:
            return None

        def written(result: AppendResult) -> None:
            if not result.status.stored:
                remark = f"the end of the transaction is not written yet: {result.reason}"
                connection.send(request.answer(ResponseCode.SYSTEM_ERROR, remark))
            elif self._sync:
                end = self._store.max_log_offset
                self._answer_synced(connection, request, end, NOT_SET)
            else:
                connection.send(request.answer(remark=NOT_SET))

        self._transactions.ops.write_then(written)
        return None

    def _answer_synced(
        self, connection: Connection, request: Command, end_offset: int, remark: str | None
    ) -> None:
        def done(status: AppendStatus) -> None:
            if request.is_oneway:
                return
            if status is AppendStatus.PUT_OK:
                connection.send(request.answer(remark=remark))
            else:
                late = f"done, but {LATE[status]}"
                connection.send(request.answer(response_code(status), late))

        self.flush_wait.sync_soon()
        self.flush_wait.add(end_offset, done)

    @answers(RequestCode.RESUME_CHECK_HALF_MESSAGE)
    def resume(self, connection: Connection, request: Command) -> Command:
        """Have producers asked again about a transaction that was given up (323)."""
        header = ResumeCheck.read(request.fields)
        if header.msg_id is None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, "msgId is missing")
        self._transactions.resume(header.msg_id)
        return request.answer()
