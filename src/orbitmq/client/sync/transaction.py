"""Transaction: a transaction for code without asyncio; see `client/producer/transaction.py`.

with producer.transaction(Message("Orders", b"paid")) as transaction:
    database.pay(order, transaction.transaction_id)
"""

from types import TracebackType
from typing import Self

from orbitmq.client.producer.send_result import SendResult
from orbitmq.client.producer.transaction import AsyncTransaction, TransactionState
from orbitmq.client.sync.background_loop import BackgroundLoop


class Transaction:
    """One transaction; enter it with `with`. Of one thread at a time."""

    def __init__(self, loop: BackgroundLoop, inner: AsyncTransaction) -> None:
        self._loop, self._inner = loop, inner

    @property
    def result(self) -> SendResult:
        """Where the broker holds the message. ClientError: the transaction was not entered."""
        return self._inner.result

    @property
    def transaction_id(self) -> str:
        """The message's id, which the checker gets too."""
        return self._inner.transaction_id

    @property
    def state(self) -> TransactionState | None:
        """How it ended; None: it has not."""
        return self._inner.state

    def __enter__(self) -> Self:
        self._loop.run(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.run(self._inner.__aexit__(kind, error, trace))

    def commit(self) -> None:
        """Let consumers have the message. TransactionInDoubtError: nobody knows whether they will."""
        self._loop.run(self._inner.commit())

    def rollback(self) -> None:
        """Let nobody have the message."""
        self._loop.run(self._inner.rollback())

    def leave_open(self) -> None:
        """Neither: the broker asks the group's checkers, this one or that of another process."""
        self._loop.run(self._inner.leave_open())
