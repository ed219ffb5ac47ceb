"""ReviveLog: check points and acks on their way into the revive topic.

They are timer messages: a check point can be read a second before its messages come again, an ack when they
would. So whoever reads the topic in order finds every check point before its acks, and both when they matter.
"""

from collections.abc import Sequence
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.pop.check_point import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    Ack,
    CheckPoint,
    encode_body,
)
from orbitmq.broker.tables.topics import SYSTEM_PREFIX
from orbitmq.format.properties import encode_properties
from orbitmq.message import AppendRequest, AppendResult, Property
from orbitmq.units import SECOND_MS

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""Its consumer offsets say how far the revive topic is worked through: the last check point, not the next."""
ACK_WAIT_MS: Final = 1 * SECOND_MS
"""So much earlier than its acks a check point can be read."""


class ReviveLog:
    """Appends to the revive topic. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        self._store, self._clock, self._host = context.store, context.clock, context.store_host
        self._config, self._topics = context.config, context.topics
        self.topic = f"{SYSTEM_PREFIX}REVIVE_LOG_{context.config.cluster}"

    @property
    def queue_count(self) -> int:
        """How many queues the topic has; new check points may use fewer (reviveQueueNum)."""
        config = self._topics.get(self.topic)
        return max(self._config.revive_queues, config.write_queue_nums if config is not None else 0)

    def append(self, requests: Sequence[AppendRequest]) -> list[AppendResult]:
        """Append what the two below made; a result that is not stored says why."""
        return [self._store.append_nowait(request) for request in requests]

    def check_point(self, point: CheckPoint, revive_queue: int) -> AppendRequest:
        """Return the append of a check point."""
        key = _joined(
            *(point.topic, point.queue_id, point.start_offset, point.group, point.pop_ms),
            *(point.broker, CHECK_POINT_TAG),
        )
        due_ms = point.revive_ms - ACK_WAIT_MS
        return self._request(encode_body(point), revive_queue, CHECK_POINT_TAG, key, due_ms)

    def ack(self, ack: Ack, revive_queue: int, due_ms: int) -> AppendRequest:
        """Return the append of an ack; it is due when the messages would come again."""
        tag = BATCH_ACK_TAG if ack.is_batch else ACK_TAG
        broker = ack.broker if isinstance(ack.broker, str) else "null"
        key = _joined(
            *(ack.topic, ack.queue_id, ack.offset, ack.group, ack.pop_ms, broker, ACK_TAG)
        )
        return self._request(encode_body(ack), revive_queue, tag, key, due_ms)

    def _request(
        self, body: bytes, revive_queue: int, tag: str, key: str, due_ms: int
    ) -> AppendRequest:
        properties = {
            Property.TAGS: tag,
            Property.UNIQ_KEY: key,
            Property.TIMER_DELIVER_MS: str(due_ms),
        }
        return AppendRequest(
            self.topic,
            revive_queue,
            body,
            encode_properties(properties),
            born_ms=self._clock.now_ms(),
            born_host=self._host,
        )


def _joined(*words: object) -> str:
    return "@".join(map(str, words))
