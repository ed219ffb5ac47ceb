"""Ending: a producer says what becomes of its half message (END_TRANSACTION).

The checks are RocketMQ's, in its order. What RocketMQ does not look at is whether the transaction has ended
before: a producer that ends it twice, or both after a question and without one, gets two messages there. Here
the second end that says the same changes nothing, and one that says the opposite is refused.
"""

import logging
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sends.answers import refusal_remark, response_code
from orbitmq.broker.transactions import forms
from orbitmq.broker.transactions.checks import immunity_ms
from orbitmq.broker.transactions.counts import HalfCounts
from orbitmq.broker.transactions.half_table import HalfTable, Verdict
from orbitmq.broker.transactions.op_batch import OpBatch
from orbitmq.broker.transactions.recent import RecentHalves
from orbitmq.errors import FormatError
from orbitmq.format.message_id import MEMORY_LOG_OFFSET
from orbitmq.format.properties import decode_properties
from orbitmq.format.record import Record, decode_record
from orbitmq.message import CHECK_MAX_TOPIC, HALF_TOPIC, AppendResult, Property, SysFlag
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers.transaction import EndTransaction

logger = logging.getLogger(__name__)

NOT_FOUND: Final = "Find prepared transaction message failed"
QUERY_COUNT: Final = 32

_ERROR: Final = ResponseCode.SYSTEM_ERROR


class Ending:
    """Ends transactions of one broker. Belongs to the event loop's thread."""

    def __init__(
        self,
        context: BrokerContext,
        table: HalfTable,
        ops: OpBatch,
        counts: HalfCounts,
        recent: RecentHalves,
    ) -> None:
        self._context, self._table, self._ops, self._counts = context, table, ops, counts
        self._recent = recent
        self._store = context.store
        self._sync = context.store.config.sync_flush

    def commit(self, header: EndTransaction) -> AppendResult | None:
        """Append the message for its consumers; None: that was done before. Refusal: it may not be."""
        half, properties = self._half(header)
        key, place = properties.get(Property.UNIQ_KEY, ""), forms.real_place(properties)
        if place is None:
            raise Refusal(_ERROR, f"{NOT_FOUND}: it does not say where it belongs")
        if self._has_ended(half, key, place[0], Verdict.COMMITTED):
            return None
        result = self._store.append_nowait(forms.committed(half, *place), flush=not self._sync)
        if not result.status.stored:
            remark = refusal_remark(result, self._context.config.store.message_bytes_max)
            raise Refusal(response_code(result.status), remark)
        self._context.statistics.on_put(place[0], 1, result.size)
        in_memory = result.log_offset >= MEMORY_LOG_OFFSET
        end = 0 if in_memory else result.log_offset + result.size
        self._end(half, key, place[0], Verdict.COMMITTED, end)
        return result

    def roll_back(self, header: EndTransaction) -> None:
        """See to it that nobody gets the message. Refusal: it may not be."""
        half, properties = self._half(header)
        key = properties.get(Property.UNIQ_KEY, "")
        topic = (forms.real_place(properties) or ("", 0))[0]
        if not self._has_ended(half, key, topic, Verdict.ROLLED_BACK):
            self._end(half, key, topic, Verdict.ROLLED_BACK)

    def _end(self, half: Record, key: str, topic: str, verdict: Verdict, behind: int = 0) -> None:
        self._recent.drop(half.log_offset)
        was_given_up = self._table.is_past(key, half.queue_offset)
        self._ops.add(self._table.end(key, half.queue_offset, verdict), behind)
        if not was_given_up:
            self._counts.add(topic, -1)

    # --- may it be ended? ---

    def _half(self, header: EndTransaction) -> tuple[Record, dict[str, str]]:
        """Return the half message that a producer names, and its properties."""
        log_offset = header.commit_log_offset
        half = self._recent.get(log_offset) or self._store.record_at(log_offset)
        if half is None or half.topic != HALF_TOPIC:
            raise Refusal(_ERROR, NOT_FOUND)
        properties = decode_properties(half.properties)
        if not header.from_transaction_check:
            self._require_in_time(half, properties.get(Property.CHECK_IMMUNITY))
        if properties.get(Property.PRODUCER_GROUP) != header.producer_group:
            raise Refusal(_ERROR, "The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise Refusal(_ERROR, "The transaction state table offset wrong")
        if half.log_offset != header.commit_log_offset:
            raise Refusal(_ERROR, "The commit log offset wrong")
        return half, properties

    def _require_in_time(self, half: Record, text: str | None) -> None:
        """Refuse an end that comes when, as CHECK_IMMUNITY says, its producer may have been asked already."""
        if text is None:
            return
        age_ms = self._context.clock.now_ms() - half.born_ms
        if age_ms > immunity_ms(text, self._context.config.transaction_ms):
            remark = f"{Property.CHECK_IMMUNITY} is over: wait until the broker asks"
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, remark)

    def _has_ended(self, half: Record, key: str, topic: str, asked: Verdict) -> bool:
        """Tell whether the transaction ended as is asked now. Refusal: it ended in the other way."""
        known = self._table.verdict(key, half.queue_offset)
        if known is None and not self._table.is_past(key, half.queue_offset):
            return False
        if known is None or known is Verdict.ENDED:
            known = self._verdict_of(half, key, topic)
        if known is None:  # it was given up, and that is not the last word
            return False
        if known is not asked:
            remark = f"the transaction has ended before: it was {known.value}"
            raise Refusal(_ERROR, remark)
        return True

    def _verdict_of(self, half: Record, key: str, topic: str) -> Verdict | None:
        """Return how a transaction ended of which nobody remembers that; None: it was given up."""
        if self.is_committed(key, topic):
            return Verdict.COMMITTED
        given_up = self._store.query(CHECK_MAX_TOPIC, key, QUERY_COUNT, exact=True) if key else []
        return None if given_up else Verdict.ROLLED_BACK

    def is_committed(self, key: str, topic: str) -> bool:
        """Tell whether the log holds a committed message of this key; only the index is asked."""
        if not key:
            return False
        for raw in self._store.query(topic, key, QUERY_COUNT, exact=True):
            try:
                record = decode_record(raw, check_crc=False)
            except FormatError:
                continue
            if record.sys_flag & SysFlag.TRANSACTION == SysFlag.COMMIT:
                return True
        return False
