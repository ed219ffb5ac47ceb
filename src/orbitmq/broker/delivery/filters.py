"""Which messages a subscription wants: by tags, or by an SQL92 expression.

subscription                       | in the request of a pull       | by heartbeat
tags                               | by the hash of the tag         | the same
SQL92                              | by the properties              | the same
SQL92 that cannot be compiled      | all messages, as RocketMQ does | refused with 27
another type                       | all messages, as RocketMQ does | refused with 27
any but tags, without the setting  | refused with 1                 | refused with 1
"""

from functools import lru_cache
from typing import Final

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.refusal import Refusal
from orbitmq.errors import Sql92SyntaxError
from orbitmq.store.reads.tag_filter import MessageFilter, TagFilter
from orbitmq.wire.codes import ResponseCode

TAG: Final = "TAG"
SQL92: Final = "SQL92"

_tag_filter = lru_cache(maxsize=10_000)(TagFilter.parse)


class Filters:
    """Makes filters of subscriptions. Belongs to the event loop's thread."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def of_request(self, kind: str, expression: str) -> MessageFilter | None:
        """Return the filter of an expression that a pull carries itself; None: all messages."""
        try:
            return self.compile(kind, expression)
        except Sql92SyntaxError:
            return None

    def of_group(self, kind: str, expression: str) -> MessageFilter | None:
        """Return the filter of what a group has subscribed to; None: all messages."""
        try:
            return self.compile(kind, expression)
        except Sql92SyntaxError as error:
            remark = f"the consumer group's filter data not exist: {error}"
            raise Refusal(ResponseCode.FILTER_DATA_NOT_EXIST, remark) from None

    def compile(self, kind: str, expression: str) -> MessageFilter | None:
        """Return a filter. Sql92SyntaxError: there is none of this text; Refusal: none of this type."""
        if kind == TAG:
            tags = _tag_filter(expression)
            return None if tags.matches_all else tags
        if not self._config.property_filter:
            remark = f"The broker does not support consumer to filter message by {kind}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if kind != SQL92:
            raise Sql92SyntaxError(f"expressions of type {kind} are not known; use TAG or SQL92")
        from orbitmq.sql92.filter import Sql92Filter  # the parser is loaded when one is there

        return Sql92Filter.parse(expression)
