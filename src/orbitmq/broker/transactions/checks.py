"""Checks: asks producers what became of half messages that nobody has ended.

Every transactionCheckInterval the queue of half messages is walked from where the last round stopped. In this
order, as RocketMQ does it:

the half message                                       | comes to
has ended, or has a newer copy                         | nothing
was asked about transactionCheckMax times, or is older | TRANS_CHECK_MAX_TIME_TOPIC
  than fileReservedTime                                |
was stored in this round                               | the end of the round
is younger than CHECK_IMMUNITY_TIME_IN_SECONDS         | a copy at the end of the queue
has no such property, is younger than                  | the end of the round
  transactionTimeOut                                   |
anything else                                          | a copy at the end of the queue, and a question to a
                                                       | producer of its group: any that is connected

A copy that is asked about has the offsets that the producer names when it ends the transaction.
"""

import logging
import re
from collections.abc import Mapping
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.transactions import forms
from orbitmq.broker.transactions.counts import HalfCounts
from orbitmq.broker.transactions.half_table import HalfTable
from orbitmq.errors import FormatError, StoreError
from orbitmq.format.message_id import encode_offset_id
from orbitmq.format.record import Record, decode_record
from orbitmq.message import (
    CHECK_MAX_TOPIC,
    HALF_TOPIC,
    AppendRequest,
    AppendResult,
    AppendStatus,
    Property,
)
from orbitmq.net.connection import Connection
from orbitmq.units import SECOND_MS
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.transaction import CheckTransaction

logger = logging.getLogger(__name__)

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")
READ_COUNT: Final = 32  # the store gives no more at once
TURN_COUNT: Final = 256  # half messages that were not ended, looked at before others get their turn
PASS_COUNT: Final = 20_000  # the same of ended ones, which nobody has to read


class Checks:
    """The rounds of one broker. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext, table: HalfTable, counts: HalfCounts) -> None:
        self._context, self._table, self._counts = context, table, counts
        self._config, self._store, self._clock = context.config, context.store, context.clock
        self._round_ms: int | None = None  # when the round began that is not at its end
        self._turn = 0  # whose turn it is among the producers of a group
        self._window: dict[int, memoryview] = {}  # half messages that were read
        self._behind = 0  # queue offset to go on from if one is not there

    @property
    def in_round(self) -> bool:
        return self._round_ms is not None

    def go_on(self) -> bool:
        """Begin a round, or go on with one; True: it is not at its end."""
        if self._round_ms is None:
            self._round_ms = self._clock.now_ms()
        table, looked_at, more = self._table, 0, True
        for _ in range(PASS_COUNT):
            if table.is_ended(table.checked):
                table.pass_over(table.checked)
                continue
            if looked_at == TURN_COUNT:
                break
            looked_at += 1
            if not self._step(table.checked, self._round_ms):
                self._round_ms, more = None, False
                break
        self._window.clear()  # these are views of the log
        return more

    # --- one half message ---

    def _step(self, offset: int, round_ms: int) -> bool:
        """Do what is due with the half message at `checked`; False: the round ends here."""
        raw = self._read(offset)
        if raw is None:
            if self._behind > offset:
                self._table.skip_to(self._behind)
            return self._behind > offset
        half = _decoded(raw, offset)
        place = forms.real_place(half.property_map) if half is not None else None
        if half is None or place is None:
            logger.error("half message %d: cannot be read, passed over", offset)
        elif self._table.newest(half.unique_key or "", offset) == offset:
            return self._decide(half, place, round_ms)
        self._table.pass_over(offset)
        return True

    def _read(self, offset: int) -> memoryview | None:
        raw = self._window.get(offset)
        if raw is None:
            found = self._store.get(HALF_TOPIC, forms.QUEUE, offset, READ_COUNT)
            self._window = dict(zip(found.queue_offsets, found.records, strict=True))
            raw = self._window.get(offset)
            self._behind = min(self._window, default=found.next_offset)
        return raw

    def _decide(self, half: Record, place: tuple[str, int], round_ms: int) -> bool:
        properties = half.property_map
        times, age_ms = properties.get(Property.CHECK_TIMES), self._clock.now_ms() - half.born_ms
        asked = 0 if times is None else _whole(times)
        if times is not None and asked >= self._config.transaction_check_max:
            return self._give_up(half, properties, place[0])
        properties[Property.CHECK_TIMES] = str(asked + 1)
        if age_ms > self._config.store.retention_ms:
            return self._give_up(half, properties, place[0])
        if half.store_ms >= round_ms:
            return False
        immunity, limit_ms = properties.get(Property.CHECK_IMMUNITY), self._config.transaction_ms
        if immunity is not None:
            limit_ms = _whole(immunity) * SECOND_MS if _whole(immunity) != -1 else limit_ms
            if age_ms < limit_ms:
                return self._copy(half, forms.immune(half, properties)) is not None
        if 0 <= age_ms <= limit_ms:
            return False
        # With a time from the future nobody knows how old it is: ask.
        copy = self._copy(half, forms.copied(half, properties))
        if copy is not None:
            self._ask(half, properties, place, copy)
        return copy is not None

    def _copy(self, half: Record, request: AppendRequest) -> AppendResult | None:
        """Have the half message live on at the end of the queue; None: the store takes nothing now."""
        result = self._append(request)
        if result is not None:
            if half.unique_key:
                self._table.copy(half.unique_key, result.queue_offset)
            self._table.pass_over(half.queue_offset)
        return result

    def _give_up(self, half: Record, properties: Mapping[str, str], topic: str) -> bool:
        """Move a half message to where an operator can look at it (and resume it, 323)."""
        self._context.topics.create_check_max()
        if self._append(forms.given_up(half, properties)) is None:
            return False
        logger.error(
            "transaction %s of topic %s: nobody says what became of it; moved to %s",
            half.unique_key,
            topic,
            CHECK_MAX_TOPIC,
        )
        self._counts.add(topic, -1)
        self._table.pass_over(half.queue_offset)
        return True

    def _append(self, request: AppendRequest) -> AppendResult | None:
        try:
            result = self._store.append_nowait(request)
        except StoreError as error:
            result = AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE, reason=str(error))
        if not result.status.stored:
            logger.warning("transactions: not checked now, %s", result.reason)
            return None
        self._context.statistics.on_put(request.topic, 1, result.size)
        return result

    # --- asking ---

    def _ask(
        self,
        half: Record,
        properties: Mapping[str, str],
        place: tuple[str, int],
        copy: AppendResult,
    ) -> None:
        group = properties.get(Property.PRODUCER_GROUP, "")
        connection = self._producer(group)
        if connection is None:
            logger.warning("transaction %s: no producer of group %s", half.unique_key, group)
            return
        header = CheckTransaction(
            topic=HALF_TOPIC,
            tran_state_table_offset=copy.queue_offset,
            commit_log_offset=copy.log_offset,
            msg_id=half.unique_key,
            transaction_id=half.unique_key,
            offset_msg_id=encode_offset_id(self._context.store_host, copy.log_offset),
            bname=self._config.name,
        )
        body = forms.question(half, properties, *place, copy)
        code, encoding = RequestCode.CHECK_TRANSACTION_STATE, connection.encoding
        connection.oneway(Command(code, header.write(), body, language="JAVA", encoding=encoding))

    def _producer(self, group: str) -> Connection | None:
        """Return a connected producer of a group, each in its turn."""
        clients = self._context.producers.connections(group)
        live = [one.connection for one in clients if not one.connection.closed]
        if not live:
            return None
        self._turn += 1
        return live[self._turn % len(live)]


def _decoded(raw: memoryview, offset: int) -> Record | None:
    try:
        return decode_record(raw)
    except FormatError as error:
        logger.error("half message %d: %s", offset, error)  # noqa: TRY400  (a record is broken)
        return None


def _whole(text: str) -> int:
    """Return the number that a property holds; -1: none, as in RocketMQ."""
    return int(text) if _WHOLE.fullmatch(text) else -1


def immunity_ms(text: str, least_ms: int) -> int:
    """Return how long a producer may end a transaction without having been asked."""
    return max(_whole(text) * SECOND_MS, least_ms)
