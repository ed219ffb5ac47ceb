"""Transactions: what a broker knows of them, and what it does about them beside requests.

How far the checks are is kept for the group CID_RMQ_SYS_TRANS, as RocketMQ keeps it, but never ahead of the
disk: a half message may only be passed over when its copy, or the message that it became, is flushed.
"""

import asyncio
import logging
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.transactions import forms
from orbitmq.broker.transactions.checks import Checks
from orbitmq.broker.transactions.counts import HalfCounts
from orbitmq.broker.transactions.ending import Ending
from orbitmq.broker.transactions.half_table import HalfTable
from orbitmq.broker.transactions.op_batch import OpBatch
from orbitmq.broker.transactions.recent import RecentHalves
from orbitmq.broker.transactions.recovery import recover
from orbitmq.errors import FormatError
from orbitmq.message import (
    CHECK_MAX_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    AppendRequest,
    AppendResult,
    Property,
)
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.codes import ResponseCode

logger = logging.getLogger(__name__)

GROUP: Final = "CID_RMQ_SYS_TRANS"
TICK_MS: Final = 1 * SECOND_MS

_RESUME_FAILED: Final = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."


class Transactions:
    """All transactions of one broker. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        self._context, self._store = context, context.store
        self.table = HalfTable()
        self.counts = HalfCounts(context.clock)
        self.ops = OpBatch(context, self._op_written)
        self.recent = RecentHalves(context.store_host)
        self.ending = Ending(context, self.table, self.ops, self.counts, self.recent)
        self._checks = Checks(context, self.table, self.counts)
        self._unlisted: list[int] = []  # ended half messages that no op message lists
        self._running = False
        self._timer: asyncio.TimerHandle | None = None
        self._checked_ms = 0.0  # when the last round began
        # Offsets that may be saved, and those that may be when the log is flushed so far.
        self._safe = 0, 0
        self._next: tuple[int, tuple[int, int]] | None = None
        context.topics.on_change.append(self._topic_changed)

    def begun(self, topic: str, half: AppendRequest, result: AppendResult) -> None:
        """Note a half message that was stored for this topic."""
        self.counts.add(topic, 1)
        self.recent.add(half, result)

    # --- life ---

    def recover(self) -> None:
        """Find out what has ended. In any thread, before clients are served: it reads the log."""
        offsets, table = self._context.offsets, self.table
        table.checked = offsets.get(GROUP, HALF_TOPIC, forms.QUEUE)
        table.op_checked = offsets.get(GROUP, OP_HALF_TOPIC, forms.QUEUE)
        self._unlisted = recover(self._store, table)
        self._safe = self._offsets()

    def start(self) -> None:
        """Begin to ask producers."""
        self._running = self.ops.collects = True
        self._checked_ms = self._context.clock.monotonic_ms()
        self.ops.add(self._unlisted)
        self._set_timer(TICK_MS)

    def stop(self) -> None:
        """Ask no more; write and flush all ends, so that offsets can be saved."""
        self._running = self.ops.collects = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.ops.write():
            self._store.wait_flushed()  # their messages come first
            self.ops.write()
        if self._offsets() != self._safe:
            self._store.wait_flushed()
            self._settle()

    def tick(self) -> None:
        """Begin a round of checks if it is time, or go on with one."""
        now, wait_ms = self._context.clock.monotonic_ms(), float(TICK_MS)
        interval_ms = self._context.config.transaction_check_ms
        if self._checks.in_round or now - self._checked_ms >= interval_ms:
            if not self._checks.in_round:
                self._checked_ms = now
            try:
                if self._checks.go_on():
                    wait_ms = 0.0
            except Exception:
                logger.exception("checks of transactions failed; they are tried again")
        self._settle()
        self._set_timer(min(wait_ms, interval_ms))

    def _set_timer(self, wait_ms: float) -> None:
        if self._running:
            self._timer = self._context.loop.call_later(wait_ms / 1000, self.tick)

    def _op_written(self, result: AppendResult, offsets: list[int]) -> None:
        self.table.op_written(result.queue_offset, offsets)

    def _topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        if config is None:
            self.counts.remove(topic)

    # --- what is saved ---

    def _offsets(self) -> tuple[int, int]:
        return self.table.checked, self.table.op_checked

    def _settle(self) -> None:
        """Have those offsets saved that the disk has caught up with."""
        if self._next is not None and self._store.flushed_offset >= self._next[0]:
            self._safe, self._next = self._next[1], None
            for topic, offset in zip((HALF_TOPIC, OP_HALF_TOPIC), self._safe, strict=True):
                if self._context.offsets.get(GROUP, topic, forms.QUEUE) != offset:
                    self._context.offsets.assign(GROUP, topic, forms.QUEUE, offset)
        if self._next is None and self._offsets() != self._safe:
            end_offset = self._store.max_log_offset
            self._next = end_offset, self._offsets()
            if self._store.flushed_offset >= end_offset:
                self._settle()

    # --- operators ---

    def resume(self, message_id: str) -> None:
        """Ask again after a transaction that was given up (323). Refusal: it was not."""
        try:
            given_up = self._store.by_id(message_id)
        except FormatError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{_RESUME_FAILED} {error}") from error
        place = forms.real_place(given_up.property_map) if given_up is not None else None
        if given_up is None or place is None or given_up.topic != CHECK_MAX_TOPIC:
            remark = f"{_RESUME_FAILED} {message_id} is no message of {CHECK_MAX_TOPIC}."
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        key = given_up.unique_key or ""
        if self.ending.is_committed(key, place[0]):
            remark = f"{_RESUME_FAILED} Its transaction was committed."
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        properties = {**given_up.property_map, Property.CHECK_TIMES: "0"}
        result = self._store.append_nowait(forms.copied(given_up, properties))
        if not result.status.stored:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{_RESUME_FAILED} {result.reason}")
        self.counts.add(place[0], 1)
        if key:
            self.table.copy(key, result.queue_offset)
