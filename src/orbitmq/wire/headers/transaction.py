"""Headers of transactions: their end (37), a broker's question (39), questions that begin anew (323)."""

from typing import Final

from orbitmq.wire.headers.header import Header

UNKNOWN: Final = 0
COMMIT: Final = 8
ROLLBACK: Final = 12
"""Values of `commit_or_rollback`; the last two are the transaction bits of a record's sys_flag."""


class EndTransaction(Header):
    """END_TRANSACTION (37): what becomes of a half message. The answer has no fields."""

    producer_group: str
    tran_state_table_offset: int  # queue offset of the half message
    commit_log_offset: int
    commit_or_rollback: int
    from_transaction_check: bool = False
    msg_id: str  # UNIQ_KEY
    transaction_id: str | None = None
    topic: str | None = None
    bname: str | None = None


class CheckTransaction(Header):
    """CHECK_TRANSACTION_STATE (39), from a broker to a producer; the body is the half message."""

    topic: str | None = None
    tran_state_table_offset: int  # of the copy that was made for this check
    commit_log_offset: int
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    bname: str | None = None


class ResumeCheck(Header):
    """RESUME_CHECK_HALF_MESSAGE (323): ask again after a message that was given up."""

    topic: str | None = None
    msg_id: str | None = None  # offset id of the message in TRANS_CHECK_MAX_TIME_TOPIC
