"""The admin client's part for moving a group: to a time, to the start, to the end, to an offset."""

import asyncio
from typing import Final, Literal

from orbitmq.client.admin.results import OffsetChange
from orbitmq.client.admin.topics import TopicAdmin
from orbitmq.errors import ResponseError
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.stats import ResetOffsets
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.headers.admin import ResetOffsetHeader
from orbitmq.wire.headers.clients import ConsumerGroupHeader

Target = int | Literal["earliest", "latest"]
"""Epoch milliseconds, or one end of the queues."""

_TO_THE_END: Final = -1


class OffsetAdmin(TopicAdmin):
    """Offsets of groups: plan a change, make it."""

    async def plan_reset(
        self, group: str, topic: str, to: Target = "latest", *, queue_id: int | None = None
    ) -> list[OffsetChange]:
        """Return what `reset_offsets` would do; nothing is changed."""
        queues = await self._readable_queues(topic)
        chosen = {q: a for q, a in queues.items() if queue_id is None or q.queue_id == queue_id}
        return await asyncio.gather(*(self._plan(group, q, a, to) for q, a in chosen.items()))

    async def _plan(
        self, group: str, queue: MessageQueue, address: str, to: Target
    ) -> OffsetChange:
        old = await self._brokers.consumer_offset(address, group, queue, zero_if_not_found=False)
        match to:
            case "earliest":
                new = await self._brokers.min_offset(address, queue)
            case "latest":
                new = await self._brokers.max_offset(address, queue)
            case epoch_ms:
                new = await self._brokers.search_offset(address, queue, epoch_ms)
        return OffsetChange(queue, old, new)

    async def reset_offsets(
        self, group: str, topic: str, to: Target = "latest", *, queue_id: int | None = None
    ) -> list[OffsetChange]:
        """Let a group continue at this time or end of the topic; return the old and new offsets.

        Members that are online follow within moments.
        """
        plan = await self.plan_reset(group, topic, to, queue_id=queue_id)
        if queue_id is not None:
            for change in plan:
                await self.set_offset(group, change.queue, change.new_offset)
            return plan
        timestamp = {"earliest": 0, "latest": _TO_THE_END}.get(str(to), to)
        assert isinstance(timestamp, int)
        header = ResetOffsetHeader(
            topic=topic, group=group, timestamp=timestamp, queue_id=-1, offset=-1
        )
        done: dict[MessageQueue, int] = {}
        for address in (await self._topic_primaries(topic)).values():
            done |= await self._reset_on(address, header, plan)
        return [OffsetChange(c.queue, c.old_offset, done.get(c.queue, c.new_offset)) for c in plan]

    async def _reset_on(
        self, address: str, header: ResetOffsetHeader, plan: list[OffsetChange]
    ) -> dict[MessageQueue, int]:
        try:
            answer = await self._ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        except ResponseError as failure:
            if not await self._may_be_written(address, header.group, failure):
                raise
            return await self._write_offsets(address, header.group, plan)
        return ResetOffsets.decode(answer.body).offset_table if answer.body else {}

    async def _may_be_written(self, address: str, group: str, failure: ResponseError) -> bool:
        """Return whether an older broker refused only because the group has no members.

        It can move members only, and says so with two codes; then the offset is simply written.
        """
        if failure.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return True
        if failure.code != ResponseCode.SYSTEM_ERROR:
            return False
        offline = frozenset({ResponseCode.CONSUMER_NOT_ONLINE.value})
        header = ConsumerGroupHeader(consumer_group=group)
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        return (await self._ask(address, code, header, also=offline)).code in offline

    async def _write_offsets(
        self, address: str, group: str, plan: list[OffsetChange]
    ) -> dict[MessageQueue, int]:
        written = {}
        for change in plan:
            if self._routes.primary(change.queue.broker_name) == address:
                await self._brokers.update_consumer_offset(
                    address, group, change.queue, change.new_offset
                )
                written[change.queue] = change.new_offset
        return written

    async def set_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Let a group continue at this offset of one queue."""
        address = await self._queue_address(queue)
        header = ResetOffsetHeader(
            topic=queue.topic, group=group, timestamp=0, queue_id=queue.queue_id, offset=offset
        )
        change = [OffsetChange(queue, -1, offset)]
        self._routes.put(queue.topic, await self._route(queue.topic))
        await self._reset_on(address, header, change)
