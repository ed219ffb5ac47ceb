"""The admin client's part for watching a group: one look at its members, their queues and offsets."""

import asyncio

from orbitmq.client.admin.groups import GroupAdmin
from orbitmq.client.rebalance.sample import GroupSample, MemberSample, QueueReach
from orbitmq.errors import FieldError, ResponseError, WireError
from orbitmq.wire.bodies.heartbeat import BROADCASTING
from orbitmq.wire.bodies.message_queue import MessageQueue


class GroupSamples(GroupAdmin):
    """Looks at a group as a whole."""

    async def sample_group(
        self, group: str, topics: set[str] | None = None, *, timeout_ms: float | None = None
    ) -> GroupSample:
        """Return who is in a group, what each member reads, and how far the queues are.

        A member that does not answer in time is named as silent. `topics` are looked at beside those that
        the members subscribe to: a group without members does not tell any.
        """
        clock = self.require_open().clock
        wait_ms = timeout_ms or self._config.admin_timeout_ms
        asked_ms = clock.monotonic_ms()
        state = await self.consumers(group)
        names = {*(topics or ()), *(one.topic for one in state.subscriptions)}
        told, reach = await asyncio.gather(
            asyncio.gather(*(self._member(group, c.client_id, wait_ms) for c in state.clients)),
            self._reach(group, names),
        )
        members = {one.client_id: one for one in told if one is not None}
        return GroupSample(
            clock.now_ms(),
            asked_ms,
            clock.monotonic_ms(),
            members,
            {client.client_id for client in state.clients} - set(members),
            reach,
            state.message_model == BROADCASTING,
        )

    async def _member(self, group: str, client_id: str, wait_ms: float) -> MemberSample | None:
        clock = self.require_open().clock
        asked_ms = clock.monotonic_ms()
        try:
            async with asyncio.timeout(wait_ms / 1000):
                info = await self.running_info(group, client_id)
        except (WireError, FieldError, TimeoutError):
            return None  # it may have died a moment ago; the next look will tell
        return MemberSample.of(client_id, info, asked_ms, clock.monotonic_ms())

    async def _reach(self, group: str, topics: set[str]) -> dict[MessageQueue, QueueReach]:
        found: dict[MessageQueue, QueueReach] = {}
        for topic in sorted(topics):
            try:
                progress = await self.progress(group, topic)
            except ResponseError:
                continue  # the topic is not there, or not any more
            for one in progress.queues:
                found[one.queue] = QueueReach(one.broker_offset, one.consumer_offset)
        return found
