"""Find messages by key and store time."""

from collections.abc import Callable, Iterator
from typing import Final

from orbitmq.errors import FormatError
from orbitmq.format.record import decode_record, store_ms_at
from orbitmq.store.index.files import IndexFiles

COUNT_MAX: Final = 64  # maxMsgsNumBatch
ROUNDS: Final = 3
TIME_MAX: Final = 2**63 - 1

_WIDEN: Final = 4

Find = Callable[[int], memoryview | None]
"""Log offset -> the record that starts there: an index may lead to where none is (any more)."""


class KeyQuery:
    """Queries of one store. Any thread may call it."""

    def __init__(self, index: IndexFiles, find: Find, *, count_max: int = COUNT_MAX) -> None:
        self._index = index
        self._find = find
        self._count_max = count_max

    def query(
        self,
        topic: str,
        key: str,
        max_count: int = COUNT_MAX,
        begin_ms: int = 0,
        end_ms: int = TIME_MAX,
        *,
        exact: bool = False,
    ) -> list[memoryview]:
        """Return the records with this key, the newest `max_count` of them, in log order.

        Without `exact` the answer is RocketMQ's: every record whose key has the same hash, of other
        topics too. With it, only records of this topic that have this very key or unique key.
        """
        count = min(max_count, self._count_max)
        if exact:
            return self._query_exact(topic, key, count, begin_ms, end_ms)
        last_ms = end_ms
        for _ in range(ROUNDS):
            offsets = self._index.query(topic, key, count, begin_ms, last_ms)
            if not offsets:
                break
            offsets.sort()
            found = list(self._records(offsets))
            if found:
                return found
            first = self._store_ms(offsets[0])
            last_ms = first if first is not None else last_ms
            if last_ms < begin_ms:
                break
        return []

    def _query_exact(
        self, topic: str, key: str, count: int, begin_ms: int, end_ms: int
    ) -> list[memoryview]:
        # Foreign keys with the same hash take places in the answer, so look further back until there
        # are enough or no more.
        wide = count
        while True:
            offsets = self._index.query(topic, key, wide, begin_ms, end_ms)
            # A record that was entered twice is still one message.
            records = self._records(sorted(set(offsets)))
            found = [record for record in records if _has_key(record, topic, key)]
            if len(found) >= count or len(offsets) < wide:
                return found[-count:] if count > 0 else []
            wide *= _WIDEN

    def _records(self, offsets: list[int]) -> Iterator[memoryview]:
        for log_offset in offsets:
            record = self._find(log_offset)
            if record is not None:
                yield record

    def _store_ms(self, log_offset: int) -> int | None:
        record = self._find(log_offset)
        return store_ms_at(record) if record is not None else None


def _has_key(record: memoryview, topic: str, key: str) -> bool:
    try:
        decoded = decode_record(record, check_crc=False)
    except FormatError:
        return False
    return decoded.topic == topic and (decoded.unique_key == key or key in decoded.keys)
