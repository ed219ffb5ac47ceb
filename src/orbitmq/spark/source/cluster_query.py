"""Find messages of a cluster by key or id: which places of which queues to pull.

Brokers are asked by QUERY_MESSAGE. One answer holds 64 messages at most, so a key with more is asked for
in ever shorter times, down to a second, which is what an index can tell apart; past that the queues are
read. So are they where a broker has no index: the newest message that has a key is looked up first, which
tells how far the index is, and what lies behind it is read from the queues.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from orbitmq.client.core.broker_api import PullStatus
from orbitmq.client.core.core import ClientCore
from orbitmq.errors import FormatError, PipelineError, ResponseError
from orbitmq.format.message_id import decode_offset_id
from orbitmq.format.record import Record, decode_record
from orbitmq.spark.source.options import OFFSET_MAX, ReadOptions
from orbitmq.spark.streams.cluster import ClusterView, plain_pull, queue_units
from orbitmq.spark.streams.offsets import QueueRange
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.headers.query import QueryAnswer, QueryHeader, ViewHeader

ANSWER_MAX: Final = 64
"""What brokers give at most for one query (maxMsgsNumBatch)."""
_NOT_FOUND: Final = frozenset({ResponseCode.QUERY_NOT_FOUND.value})
_TIMEOUT_MS: Final = 10_000
_LAST_RECORDS: Final = 32  # of a queue; one with a key is looked for among them

Spans = Mapping[MessageQueue, tuple[int, int]]
Place = tuple[MessageQueue, int]


class _Answer(NamedTuple):
    records: list[Record]
    header: QueryAnswer  # time and log offset of the newest indexed message; 0 without messages


class _TooMany(Exception):  # noqa: N818  (never leaves this module)
    """More messages of one second than one answer holds."""


def find_messages(
    view: ClusterView, options: ReadOptions, spans: Spans, window_ms: tuple[int, int]
) -> list[QueueRange]:
    """Return the ranges of queues in which all messages with the keys or ids of the options are.

    `window_ms` are the first and last store times that are wanted. WireError: a broker did not answer.
    """
    words = sorted(options.index_words)
    return view.run(lambda core: _Finder(core, spans, window_ms).find(words, options.ids))


def joined(ranges: Iterable[QueueRange]) -> list[QueueRange]:
    """Return the same messages in order; ranges of a queue that touch or overlap become one."""
    made: list[QueueRange] = []
    for one in sorted(ranges):
        last = made[-1] if made else None
        if last is not None and last.queue == one.queue and one.start <= last.end:
            made[-1] = last._replace(end=max(last.end, one.end))
        elif one.start < one.end:
            made.append(one)
    return made


class _Finder:
    """One search over all brokers. Belongs to the loop's thread."""

    def __init__(self, core: ClientCore, spans: Spans, window_ms: tuple[int, int]) -> None:
        self._core, self._spans, self._window_ms = core, spans, window_ms

    async def find(self, words: Sequence[str], ids: Iterable[str]) -> list[QueueRange]:
        holders = sorted({(queue.topic, queue.broker_name) for queue in self._spans})
        parts = await asyncio.gather(*(self._by_keys(*holder, words) for holder in holders))
        places = await asyncio.gather(*(self._by_place(message_id) for message_id in ids))
        ranges = [one for part in parts for one in part]
        return ranges + [_single(place) for place in places if place is not None]

    # --- by key ---

    async def _by_keys(
        self, topic: str, broker_name: str, words: Sequence[str]
    ) -> list[QueueRange]:
        whole = self._whole_queues(topic, broker_name)
        index_offset = await self._index_offset(whole)
        if index_offset < 0:
            return whole
        found = [await self._queue_behind(queue, index_offset) for queue in whole]
        for word in words:
            try:
                records = await self._all(topic, broker_name, word, *self._window_ms)
            except _TooMany:
                return whole
            places = (self._place(broker_name, record) for record in records)
            found += [_single(place) for place in places if place is not None]
        return found

    async def _all(
        self,
        topic: str,
        broker_name: str,
        word: str,
        begin_ms: int,
        end_ms: int,
    ) -> list[Record]:
        """Return all messages of a time; an answer that is full is asked for again in two halves."""
        answer = await self._ask(topic, broker_name, word, begin_ms, end_ms)
        if len(answer.records) < ANSWER_MAX:
            return answer.records
        # No message is younger than the index, and none found here than the newest of them.
        end_ms = min(end_ms, answer.header.index_last_update_timestamp + SECOND_MS)
        if end_ms - begin_ms < SECOND_MS:
            raise _TooMany
        middle = (begin_ms + end_ms) // 2
        older = await self._all(topic, broker_name, word, begin_ms, middle)
        return older + await self._all(topic, broker_name, word, middle + 1, end_ms)

    async def _ask(
        self, topic: str, broker_name: str, word: str, begin_ms: int, end_ms: int
    ) -> _Answer:
        header = QueryHeader(
            topic=topic,
            key=word,
            max_num=ANSWER_MAX,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
        )
        answer = await self._core.calls.checked(
            self._address(broker_name),
            RequestCode.QUERY_MESSAGE,
            header.write(),
            also=_NOT_FOUND,
            timeout_ms=_TIMEOUT_MS,
        )
        records = [] if answer.code else list(_records(answer.body))
        return _Answer(records, QueryAnswer.read(answer.fields))

    def _whole_queues(self, topic: str, broker_name: str) -> list[QueueRange]:
        return [
            QueueRange.of(queue, *span)
            for queue, span in self._spans.items()
            if (queue.topic, queue.broker_name) == (topic, broker_name)
        ]

    def _place(self, broker_name: str, record: Record) -> Place | None:
        """Return the record's place in a queue that is read; None: it is in none of them."""
        queue = MessageQueue(record.topic, broker_name, record.queue_id)
        start, end = self._spans.get(queue, (0, 0))
        return (queue, record.queue_offset) if start <= record.queue_offset < end else None

    # --- how far the index is ---

    async def _index_offset(self, queues: Sequence[QueueRange]) -> int:
        """Return a log offset up to which all keys can be found; -1: no index is known to be there."""
        ends = await asyncio.gather(*(self._log_offset(one, one.end - 1) for one in queues))
        _, newest = max(zip(ends, queues, strict=True))
        for record in reversed(await self._last_records(newest)):
            key = record.unique_key or next(iter(record.keys), None)
            if key is not None:
                return await self._found_until(newest, record, key)
        return -1

    async def _last_records(self, queue: QueueRange) -> list[Record]:
        start = max(queue.start, queue.end - _LAST_RECORDS)
        header = plain_pull(queue.queue, start, queue.end - start)
        answer = await self._core.brokers.pull(self._address(queue.broker_name), header)
        return list(_records(answer.body)) if answer.status is PullStatus.FOUND else []

    async def _found_until(self, queue: QueueRange, record: Record, key: str) -> int:
        answer = await self._ask(queue.topic, queue.broker_name, key, 0, OFFSET_MAX)
        if all(found.log_offset != record.log_offset for found in answer.records):
            return -1
        return max(answer.header.index_last_update_phyoffset, record.log_offset)

    async def _queue_behind(self, whole: QueueRange, index_offset: int) -> QueueRange:
        """Return the messages of a queue that lie behind a log offset."""
        low, high = whole.start, whole.end
        while low < high:
            # Mostly nothing lies behind the index, so look at the last message first.
            middle = high - 1 if high == whole.end else (low + high) // 2
            if await self._log_offset(whole, middle) > index_offset:
                high = middle
            else:
                low = middle + 1
        return whole._replace(start=low)

    async def _log_offset(self, queue: QueueRange, queue_offset: int) -> int:
        address = self._address(queue.broker_name)
        units = await queue_units(self._core, address, queue.queue, queue_offset, 1)
        return units[0].physic_offset if units else OFFSET_MAX  # not known: read it

    # --- by place ---

    async def _by_place(self, message_id: str) -> Place | None:
        """Return where the message is that an offset id names; None: it is no id of this cluster's."""
        try:
            host, log_offset = decode_offset_id(message_id)
        except FormatError:
            return None  # a producer's id may be any text
        address = host.text()
        names = [
            name for name, ids in self._core.routes.brokers().items() if address in ids.values()
        ]
        if not names:
            return None
        try:
            answer = await self._core.calls.checked(
                address, RequestCode.VIEW_MESSAGE_BY_ID, ViewHeader(offset=log_offset).write()
            )
        except ResponseError:
            return None  # no message there
        for record in _records(answer.body):
            return self._place(names[0], record)
        return None

    def _address(self, broker_name: str) -> str:
        address = self._core.routes.address(broker_name)
        if address is None:
            raise PipelineError(f"broker {broker_name} is not registered", "Start it.")
        return address


def _single(place: Place) -> QueueRange:
    return QueueRange.of(place[0], place[1], place[1] + 1)


def _records(body: bytes) -> Iterator[Record]:
    position = 0
    while position < len(body):
        record = decode_record(body, position, check_crc=False)
        position += record.size
        yield record
