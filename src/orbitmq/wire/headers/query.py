"""Headers of looking up single messages: QUERY_MESSAGE (12) by key, VIEW_MESSAGE_BY_ID (33) by place."""

from dataclasses import field

from orbitmq.wire.headers.header import Header


class QueryHeader(Header):
    """Which key is looked for, among messages stored between two moments."""

    topic: str
    key: str
    max_num: int
    begin_timestamp: int
    end_timestamp: int
    unique_key: bool = field(default=False, metadata={"wire": "_UNIQUE_KEY_QUERY"})


class QueryAnswer(Header):
    """How far the key index is."""

    index_last_update_timestamp: int
    index_last_update_phyoffset: int


class ViewHeader(Header):
    """Where the message lies in the commit log. The answer has no fields."""

    offset: int
    topic: str | None = None
