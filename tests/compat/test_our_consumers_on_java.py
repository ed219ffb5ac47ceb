"""Our consumers, kind by kind, on RocketMQ's own broker and on ours: the same outcome on both.

The scenarios begin together: most of their time they wait for a broker.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from async_run import run_async
from compat.clusters import Cluster, Clusters
from compat.java_store import needs_java
from compat.scenarios import fresh
from compat.side_by_side import Outcome, begun_tests
from consumer_world import Seen, counts, names, once, until
from orbitmq.client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    Message,
    RetryLater,
)

pytestmark = [pytest.mark.compat, needs_java]


def with_messages(
    cluster: Cluster,
    count: int,
    work: Callable[[str, str, Callable[..., Any]], Coroutine[Any, Any, None]],
    queues: int = 1,
) -> None:
    """Run `work(topic, group, send)` beside a topic that has so many messages."""
    topic, group = fresh("Kinds"), fresh("kinds-group")
    cluster.create_topic(topic, queues)

    async def main() -> None:
        async with AsyncProducer(cluster.namesrv, group="kinds-producer") as producer:

            async def send(*bodies: str) -> None:
                for body in bodies:
                    await producer.send(Message(topic, body.encode()))

            await send(*names(count))
            await work(topic, group, send)

    run_async(main, seconds=90)


async def all_committed(admin: AsyncAdmin, group: str, topic: str) -> None:
    """Wait until the broker knows that the group has handled everything."""
    async with asyncio.timeout(30):
        while (await admin.progress(group, topic)).lag:
            await asyncio.sleep(0.05)


def broadcasting_goes_on_where_its_file_says(cluster: Cluster, directory: Path) -> None:
    async def work(topic: str, group: str, send: Callable[..., Any]) -> None:
        given: dict[str, Any] = {
            "broadcasting": True,
            "offsets_directory": directory,
            "start_from": "first",
        }
        one, two, later = Seen(), Seen(), Seen()
        first = AsyncConsumer(cluster.namesrv, group, topic, one, instance_name="1", **given)
        second = AsyncConsumer(cluster.namesrv, group, topic, two, instance_name="2", **given)
        async with first, second:
            await until(lambda: len(one.messages) == len(two.messages) == 10)
        await send("later")
        async with AsyncConsumer(cluster.namesrv, group, topic, later, instance_name="1", **given):
            await until(lambda: later.messages)
        assert counts(one) == counts(two) == once(names(10))
        assert later.bodies == ["later"]

    with_messages(cluster, 10, work, queues=2)


async def polled_bodies(consumer: AsyncPullConsumer, count: int) -> list[bytes]:
    """Poll so many messages: the last ones that were sent may come a moment later than the others."""
    bodies: list[bytes] = []
    deadline = time.monotonic() + 20
    while len(bodies) < count and time.monotonic() < deadline:
        bodies += [message.body for message in await consumer.poll(5)]
    return bodies


def pull_consumers_seek_and_commit(cluster: Cluster, directory: Path) -> None:
    async def work(topic: str, group: str, send: Callable[..., Any]) -> None:
        async with AsyncPullConsumer(cluster.namesrv, group) as consumer:
            (queue,) = await consumer.topic_queues(topic)
            await consumer.assign([queue])
            await consumer.seek(queue, 7)
            assert await polled_bodies(consumer, 3) == [b"m7", b"m8", b"m9"]
            await consumer.commit()
            assert await consumer.committed(queue) == 10
            await consumer.seek_to_begin()
            assert len(await polled_bodies(consumer, 10)) == 10
            await consumer.seek_to_end()
            polled = asyncio.ensure_future(consumer.poll(20))
            await asyncio.sleep(
                0.2
            )  # sleep: the poll should wait at the broker before there is something
            await send("woken")
            assert [message.body for message in await polled] == [b"woken"]
            found = await consumer.pull(queue, 3, count=1)
            assert [message.body for message in found.messages()] == [b"m3"]

    with_messages(cluster, 10, work)


def a_loop_acknowledges_and_gives_back(cluster: Cluster, directory: Path) -> None:
    async def work(topic: str, group: str, send: Callable[..., Any]) -> None:
        seen: list[tuple[bytes, int]] = []
        async with AsyncConsumer(
            cluster.namesrv, group, topic, start_from="first", retry_level=1
        ) as consumer:
            async for message in consumer:
                seen.append((message.body, message.reconsume_times))
                if message.body == b"m1" and not message.reconsume_times:
                    message.retry()
                if len(seen) == 5:
                    message.ack()
                    break
        assert sorted(seen) == [(b"m0", 0), (b"m1", 0), (b"m1", 1), (b"m2", 0), (b"m3", 0)]

    with_messages(cluster, 4, work)


def what_fails_too_often_ends_as_a_dead_letter(
    cluster: Cluster, directory: Path, *, orderly: bool = False
) -> None:
    async def work(topic: str, group: str, send: Callable[..., Any]) -> None:
        async def fail(message: Any) -> None:
            if message.body == b"m1":
                raise RetryLater(level=1, suspend_ms=20)

        dead = Seen()
        async with (
            AsyncConsumer(
                cluster.namesrv,
                group,
                topic,
                fail,
                start_from="first",
                orderly=orderly,
                reconsume_times_max=1,
            ),
            AsyncConsumer(
                cluster.namesrv, f"{group}-dead", f"%DLQ%{group}", dead, start_from="first"
            ),
        ):
            await until(lambda: dead.messages, 40)
        assert dead.bodies == ["m1"]

    with_messages(cluster, 3, work)


def members_follow_a_reset(cluster: Cluster, directory: Path, *, orderly: bool = False) -> None:
    async def work(topic: str, group: str, send: Callable[..., Any]) -> None:
        seen = Seen()
        async with (
            AsyncConsumer(
                cluster.namesrv,
                group,
                topic,
                seen,
                start_from="first",
                orderly=orderly,
                persist_interval_ms=100,
                suspend_ms=500,
            ),
            AsyncAdmin(cluster.namesrv) as admin,
        ):
            await until(lambda: len(seen.messages) == 5)
            await all_committed(admin, group, topic)
            await admin.reset_offsets(group, topic, "earliest")
            await until(lambda: len(seen.messages) == 10, 30)
        assert counts(seen) == once(names(5) * 2)

    with_messages(cluster, 5, work)


def members_join_and_leave_and_no_message_is_missed(cluster: Cluster, directory: Path) -> None:
    """While queues change hands a message may come twice; at no other time, and never is one missed."""

    async def work(topic: str, group: str, send: Callable[..., Any]) -> None:
        one, two = Seen(seconds=0.001), Seen(seconds=0.001)

        def queues(member: AsyncConsumer) -> int:
            return len([queue for queue in member.queues if queue.topic == topic])

        async def committed() -> None:
            await all_committed(admin, group, topic)

        def member(seen: Seen) -> AsyncConsumer:
            return AsyncConsumer(
                cluster.namesrv, group, topic, seen, start_from="first", persist_interval_ms=100
            )

        async with AsyncAdmin(cluster.namesrv) as admin, member(one) as stays:
            await until(lambda: len(one.messages) == 40)
            await committed()
            async with member(two) as leaves:
                sending = asyncio.ensure_future(send(*names(200, "joining")))
                await until(lambda: queues(stays) == queues(leaves) == 2, 30)
                await sending
                await committed()
                await send(*names(100, "both"))
                await committed()
                sending = asyncio.ensure_future(send(*names(100, "leaving")))
            await sending
            await until(lambda: queues(stays) == 4, 30)
            await committed()
            await send(*names(100, "alone"))
            await committed()

        found = counts(one, two)
        changing = names(200, "joining") + names(100, "leaving")
        steady = names(40) + names(100, "both") + names(100, "alone")
        assert {body: found[body] for body in steady} == once(steady)
        assert set(found) == {*steady, *changing}
        assert max(found.values()) <= 2
        assert len({*names(100, "both")} & {*one.bodies}) in range(1, 100)

    with_messages(cluster, 40, work, queues=4)


@pytest.mark.parametrize("kind", ["java", "ours"])
@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(broadcasting_goes_on_where_its_file_says, id="broadcasting"),
        pytest.param(pull_consumers_seek_and_commit, id="pull_consumers"),
        pytest.param(a_loop_acknowledges_and_gives_back, id="a_loop"),
        pytest.param(what_fails_too_often_ends_as_a_dead_letter, id="dead_letter"),
        pytest.param(
            partial(what_fails_too_often_ends_as_a_dead_letter, orderly=True),
            id="dead_letter-orderly",
        ),
        pytest.param(members_follow_a_reset, id="reset"),
        pytest.param(partial(members_follow_a_reset, orderly=True), id="reset-orderly"),
        pytest.param(members_join_and_leave_and_no_message_is_missed, id="join_and_leave"),
    ],
)
def test_a_consumer(
    kind: str,
    scenario: Callable[..., None],
    outcomes: Mapping[str, Outcome],
    request: pytest.FixtureRequest,
) -> None:
    outcomes[request.node.nodeid]()


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, clusters: Clusters, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Outcome]]:
    """Every scenario of this file that the run selects, begun."""

    def play(kind: str, scenario: Callable[..., None]) -> None:
        scenario(clusters.get(kind), tmp_path_factory.mktemp("consumer"))

    with begun_tests(request, test_a_consumer, play) as started:
        yield started
