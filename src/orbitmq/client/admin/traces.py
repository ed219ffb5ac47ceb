"""The admin client's part for traces: the way of a message through producers and groups."""

import asyncio
from typing import Final

from orbitmq.client.admin.messages import END_OF_TIME, MessageAdmin
from orbitmq.client.core.config import TRACE_TOPIC
from orbitmq.client.trace.way import MessageWay, Seen, seen_records, ways
from orbitmq.errors import ClientError
from orbitmq.message import Property

MESSAGES_MAX: Final = 32
"""So many messages with one key are followed at most."""


class TraceAdmin(MessageAdmin):
    """Messages and their ways."""

    async def trace(
        self,
        id_or_key: str,
        *,
        trace_topic: str = TRACE_TOPIC,
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME,
    ) -> list[MessageWay]:
        """Return the way of the message with this id, or of all with this key; empty: there is no trace.

        Either id will do, the producer's or the broker's. NoRouteError: nobody has the trace topic.
        """

        async def look_up(key: str) -> list[Seen]:
            found = await self.messages_by_key(trace_topic, key, begin_ms=begin_ms, end_ms=end_ms)
            return seen_records(found)

        seen = _about(await look_up(id_or_key), id_or_key)
        if not seen and (unique_id := await self._unique_id(id_or_key)):
            id_or_key = unique_id
            seen = _about(await look_up(unique_id), unique_id)
        # Not every record has the keys of its message: what else is known of it is found by its id.
        others = {record.message_id: None for record, _ in seen if record.message_id != id_or_key}
        more = await asyncio.gather(*(look_up(one) for one in list(others)[:MESSAGES_MAX]))
        for message_id, records in zip(others, more, strict=False):
            seen += _about(records, message_id)
        return ways(dict.fromkeys(seen))

    async def _unique_id(self, message_id: str) -> str | None:
        """Return the producer's id of a message that is given by the broker's."""
        try:
            message = await self.message(message_id)
        except ClientError:
            return None
        return None if message is None else message.properties.get(Property.UNIQ_KEY)


def _about(seen: list[Seen], id_or_key: str) -> list[Seen]:
    """Return the records about this message, or about messages with this key: others lie beside them."""
    return [
        (record, host)
        for record, host in seen
        if record.message_id == id_or_key or id_or_key in record.key_list
    ]
