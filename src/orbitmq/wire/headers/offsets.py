"""Headers of offsets: consumer offsets, ends of queues, search by time."""

from orbitmq.wire.headers.header import Header


class QueryConsumerOffset(Header):
    """QUERY_CONSUMER_OFFSET (14). Without an answer of its own, 0 may be given for a young queue."""

    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffset(Header):
    """UPDATE_CONSUMER_OFFSET (15)."""

    consumer_group: str
    topic: str
    queue_id: int | None = None
    commit_offset: int | None = None


class SearchOffset(Header):
    """SEARCH_OFFSET_BY_TIMESTAMP (29)."""

    topic: str
    queue_id: int
    timestamp: int
    boundary_type: str | None = None  # LOWER, UPPER in any case


class QueueHeader(Header):
    """GET_MAX_OFFSET (30), GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str
    queue_id: int
    committed: bool | None = None  # only 30 has it


class OffsetAnswer(Header):
    """Answer of 14, 29, 30 and 31."""

    offset: int


class TimestampAnswer(Header):
    """Answer of 32."""

    timestamp: int
