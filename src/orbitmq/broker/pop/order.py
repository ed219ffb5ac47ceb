"""OrderTable: what ordered pops have taken, so that nobody gets a message before those ahead of it are done.

Saved as config/consumerOrderInfo.json in RocketMQ's form. A queue is blocked for a group while messages of
its last batch are neither acknowledged nor visible again; the attempt that took them may ask once more, for
its answer may have been lost. Nothing is stored again: the consumer offset stays before the first message
that is not acknowledged.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.pop.progress import QueueKey
from orbitmq.broker.tables.state_files import plain
from orbitmq.errors import FieldError, StateFileError
from orbitmq.units import HOUR_MS
from orbitmq.wire.bodies.body import Body
from orbitmq.wire.receipt import topic_kind

ORDER_FILE: Final = "consumerOrderInfo.json"
KEPT_MS: Final = 24 * HOUR_MS
"""A batch of which nobody was heard for so long is forgotten when the table is saved."""
NOT_OURS: Final = -2
ILLEGAL: Final = -1
_SEPARATOR: Final = "@"


class OrderInfo(Body, kw_only=True):
    """The last batch that was popped of a queue."""

    pop_time: int = 0
    invisible_ms: int = msgspec.field(default=0, name="i")
    places: list[int] = msgspec.field(default_factory=list, name="o")  # the first, then gaps to it
    visible_ms: dict[int, int] | None = msgspec.field(default=None, name="ot")  # by offset
    counts: dict[int, int] | None = msgspec.field(default=None, name="oc")  # earlier deliveries
    last_ms: int = msgspec.field(default=0, name="l")
    acked_bits: int = msgspec.field(default=0, name="cm")
    attempt_id: str | None = msgspec.field(default=None, name="a")

    @property
    def offsets(self) -> list[int]:
        """The queue offsets of the batch."""
        return [
            place if index == 0 else self.places[0] + place
            for index, place in enumerate(self.places)
        ]

    def pending(self) -> list[int]:
        """Return the offsets that are not acknowledged."""
        return [at for i, at in enumerate(self.offsets) if not self.acked_bits >> i & 1]

    def free_ms(self) -> int:
        """Return when the queue is free again: all that is not acknowledged is visible."""
        visible = self.visible_ms or {}
        default = self.pop_time + self.invisible_ms
        return max((visible.get(at, default) for at in self.pending()), default=0)


class OrderBody(Body):
    """What consumerOrderInfo.json holds: by "topic@group", then by queue id."""

    table: dict[str, dict[int, OrderInfo]] = msgspec.field(default_factory=dict)


class OrderTable:
    """The batches of all ordered groups. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        self._clock, self._topics, self._groups = context.clock, context.topics, context.groups
        self._table: dict[QueueKey, OrderInfo] = {}
        self._cleared: dict[QueueKey, int] = {}  # times of the last pops of what was forgotten
        self.changes = 0

    def last_pop_ms(self, key: QueueKey) -> int:
        """Return the time of the last pop; the next one needs a later time, for acks name it by that."""
        info = self._table.get(key)
        return info.pop_time if info is not None else self._cleared.get(key, 0)

    def get(self, key: QueueKey) -> OrderInfo | None:
        return self._table.get(key)

    def queues(self) -> list[QueueKey]:
        """Return the queues of which a batch is known."""
        return list(self._table)

    def is_blocked(self, key: QueueKey, attempt_id: str | None = None) -> bool:
        """Tell whether messages ahead are still somebody's; not for the attempt that has them."""
        info = self._table.get(key)
        if info is None or (attempt_id and attempt_id == info.attempt_id):
            return False
        return self._clock.now_ms() < info.free_ms()

    def take(
        self,
        key: QueueKey,
        attempt_id: str | None,
        pop_ms: int,
        invisible_ms: int,
        offsets: Sequence[int],
    ) -> list[str]:
        """Note a batch; return what `orderCountInfo` says of it."""
        before = self._table.get(key)
        first = offsets[0]
        info = OrderInfo(
            pop_time=pop_ms,
            invisible_ms=invisible_ms,
            places=[first, *(offset - first for offset in offsets[1:])],
            last_ms=self._clock.now_ms(),
            attempt_id=attempt_id,
        )
        if before is not None:
            info.counts = _counts(before, info, offsets)
        self._table[key] = info
        self.changes += 1
        kind, queue_id, counts = topic_kind(key[1]), key[2], info.counts or {}
        items = [f"{kind} qo{queue_id}%{offset} {count}" for offset, count in counts.items()]
        least = min(counts.values()) if counts and len(counts) == len(offsets) else 0
        return [*items, f"{kind} {queue_id} {least}"]  # the last is for older clients

    def ack(self, key: QueueKey, offset: int, pop_ms: int) -> int:
        """Note an ack; return the offset to go on at, ILLEGAL, or NOT_OURS: an earlier batch was meant."""
        info = self._table.get(key)
        if info is None or info.pop_time != pop_ms:
            return NOT_OURS
        offsets = info.offsets
        if offset not in offsets:
            return ILLEGAL
        info.acked_bits |= 1 << offsets.index(offset)
        self.changes += 1
        return min(info.pending(), default=offsets[-1] + 1)

    def renew(self, key: QueueKey, offset: int, pop_ms: int, visible_ms: int) -> bool:
        """Set when a message becomes visible; False: an earlier batch was meant."""
        info = self._table.get(key)
        if info is None or info.pop_time != pop_ms:
            return False
        info.visible_ms = {**(info.visible_ms or {}), offset: visible_ms}
        self.changes += 1
        return True

    def clear(self, key: QueueKey) -> None:
        """Forget a batch: somebody has set the group's offset."""
        info = self._table.pop(key, None)
        if info is not None:
            self._cleared[key] = info.pop_time
            self.changes += 1

    # --- saving ---

    def snapshot(self) -> dict[str, Any]:
        """Return what consumerOrderInfo.json holds; batches of what is gone are forgotten."""
        self._clean()
        table: dict[str, dict[str, Any]] = {}
        for (group, topic, queue_id), info in self._table.items():
            row = table.setdefault(f"{topic}{_SEPARATOR}{group}", {})
            row[str(queue_id)] = plain(info)
        return {"table": table}

    def load(self, state: Mapping[str, Any], path: Path) -> None:
        """Take over what consumerOrderInfo.json holds. StateFileError: it cannot be understood."""
        try:
            body = OrderBody.of(state)
        except FieldError as cause:
            step = "Move it away: messages of ordered pops that were not acknowledged come again at once."
            raise StateFileError(path, f"is no table of ordered pops: {cause}", step) from cause
        for name, row in body.table.items():
            topic, separator, group = name.partition(_SEPARATOR)
            if separator:
                usable = ((queue_id, info) for queue_id, info in row.items() if info.places)
                self._table |= {(group, topic, queue_id): info for queue_id, info in usable}

    def _clean(self) -> None:
        oldest_ms = self._clock.now_ms() - KEPT_MS
        for key in list(self._table):
            group, topic, queue_id = key
            config = self._topics.get(topic)
            gone = config is None or group not in self._groups or queue_id >= config.read_queue_nums
            if gone or self._table[key].last_ms < oldest_ms:
                del self._table[key]


def _counts(before: OrderInfo, now: OrderInfo, offsets: Sequence[int]) -> dict[int, int]:
    """Return how often messages of a batch were delivered before it."""
    known = before.counts or {}
    if now.attempt_id and now.attempt_id == before.attempt_id:
        return known  # the same attempt, asked again
    again = set(before.offsets)
    return {offset: known.get(offset, 0) + 1 for offset in offsets if offset in again}
