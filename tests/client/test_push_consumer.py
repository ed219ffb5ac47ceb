"""Members of a group against a live broker: sharing, retries, dead letters, resets, restarts."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from async_run import run_async
from consumer_world import (
    BROKER_NAME,
    ConsumerWorld,
    Seen,
    broker_config,
    consumer_world,
    counts,
    names,
    once,
    until,
)
from orbitmq.broker.broker import Broker
from orbitmq.client.consumer.consumer import AsyncConsumer
from orbitmq.client.consumer.handling import DEAD_LETTERS, RetryLater
from orbitmq.client.consumer.rebalance import share_of, strategy_named
from orbitmq.client.core.message import Message
from orbitmq.errors import ClientError, ConfigError, UnreachableError
from orbitmq.net.tasks import PeriodicJobs
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.units import HOUR_MS
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.headers.pull import PullHeader


def consumer(world: ConsumerWorld, group: str, handler, topics="Orders", **given) -> AsyncConsumer:
    given.setdefault("start_from", "first")
    return AsyncConsumer(world.namesrv, group, topics, handler, **given)


def own_queues(member: AsyncConsumer, topic: str = "Orders") -> set[int]:
    return {queue.queue_id for queue in member.queues if queue.topic == topic}


def test_every_message_comes_once_and_the_offsets_are_stored_at_the_end(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders")
            await world.send("Orders", *names(40))
            seen = Seen()

            async with consumer(world, "demo", seen):
                await until(lambda: len(seen.messages) >= 40)

            assert counts(seen) == once(names(40))
            assert [world.offset("demo", "Orders", queue) for queue in range(4)] == [10] * 4

    run_async(main)


def test_a_restarted_consumer_goes_on_where_it_was(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders")
            first, second = Seen(), Seen()
            async with consumer(world, "demo", first):
                await world.send("Orders", *names(10))
                await until(lambda: len(first.messages) >= 10)
            await world.send("Orders", *names(10, "later"))

            async with consumer(world, "demo", second):
                await until(lambda: len(second.messages) >= 10)

            assert counts(second) == once(names(10, "later"))

    run_async(main)


@pytest.mark.feature("F97")
def test_two_members_share_the_queues_and_one_that_leaves_hands_them_over(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=8)
            one, two = Seen(seconds=0.002), Seen(seconds=0.002)
            async with consumer(world, "demo", one) as member:
                await until(lambda: len(own_queues(member)) == 8)
                await world.send("Orders", *names(100, "a"))
                async with consumer(world, "demo", two) as other:
                    await until(lambda: len(own_queues(other)) == 4)
                    await until(lambda: len(own_queues(member)) == 4)
                    assert own_queues(member) | own_queues(other) == set(range(8))
                    await world.send("Orders", *names(100, "b"))
                    await until(lambda: len(one.messages) + len(two.messages) >= 200)
                    await world.send("Orders", *names(100, "c"))
                await until(lambda: len(own_queues(member)) == 8)
                await world.send("Orders", *names(50, "d"))
                await until(lambda: len(one.messages) + len(two.messages) >= 350)

            sent = names(100, "a") + names(100, "b") + names(100, "c") + names(50, "d")
            assert counts(one, two) == once(sent)
            assert len(two.messages) > 50

    run_async(main)


@pytest.mark.feature("F97")
def test_a_queue_is_given_up_only_when_its_offset_is_stored(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders")
            await world.send("Orders", *names(40))
            # A pull says how far its queue is, too: the last one is on its way before these are handled.
            one, never = Seen(seconds=0.05), {"persist_interval_ms": HOUR_MS}
            async with consumer(world, "demo", one, **never):
                await until(lambda: len(one.messages) >= 40)
                assert all(world.offset("demo", "Orders", queue) < 10 for queue in range(4))

                async with consumer(world, "demo", Seen(), **never) as other:
                    await until(lambda: len(own_queues(other)) == 2)
                    for queue in own_queues(other):
                        assert world.offset("demo", "Orders", queue) == 10

    run_async(main)


@pytest.mark.feature("F97")
@pytest.mark.parametrize("strategy", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
def test_members_compute_shares_that_are_disjoint_and_complete_as_members_come_and_go(
    tmp_path, strategy
):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=8)
            given = {"strategy": strategy, "handover_wait_ms": 0}
            members = [consumer(world, "demo", Seen(), **given) for _ in range(3)]

            async def shared_by(*present: AsyncConsumer) -> None:
                """Wait until each has what the rule gives it, and say that this is everything."""
                ids, queues = [one.client_id for one in present], world.queues("Orders", 8)
                rule = strategy_named(strategy)
                shares = [set(share_of(rule, one, reversed(queues), reversed(ids))) for one in ids]
                await until(lambda: [orders(one) for one in present] == shares)
                assert sorted(q for share in shares for q in share) == queues

            for count in (1, 2, 3):
                await members[count - 1].open()
                await shared_by(*members[:count])
            await members[1].close()
            await shared_by(members[0], members[2])
            await members[0].close()
            await shared_by(members[2])
            await members[2].close()

    run_async(main)


def orders(member: AsyncConsumer) -> set[MessageQueue]:
    return {queue for queue in member.queues if queue.topic == "Orders"}


CONSUMER_PROCESS = """
import os, sys, threading
from orbitmq.client import Consumer

def handle(message):
    os.write(1, message.body + b"\\n")  # in one piece, whatever other threads write
    if message.body != b"m0":
        threading.Event().wait()

settings = dict(start_from="first", persist_interval_ms=50)
with Consumer(sys.argv[1], "demo", "Orders", handle, **settings):
    threading.Event().wait()
"""


@pytest.mark.feature("F100")
def test_what_a_killed_process_had_not_committed_comes_again_to_another_member(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(4))
            heir, program = Seen(), [sys.executable, "-c", CONSUMER_PROCESS, world.namesrv]
            process = await asyncio.create_subprocess_exec(*program, stdout=subprocess.PIPE)
            try:
                lines = [await process.stdout.readline() for _ in range(4)]
                await until(lambda: world.offset("demo", "Orders", 0) == 1)
                async with consumer(world, "demo", heir):
                    assert heir.messages == []
                    process.kill()
                    await process.wait()
                    await until(lambda: len(heir.messages) >= 3)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

            assert sorted(lines) == [b"m0\n", b"m1\n", b"m2\n", b"m3\n"]
            assert counts(heir) == once(["m1", "m2", "m3"])
            assert world.offset("demo", "Orders", 0) == 4

    run_async(main, seconds=60)


@contextmanager
def noted_periods() -> Iterator[dict[str, float]]:
    """Note of every job that is added its period in milliseconds, by its name."""
    periods, add = {}, PeriodicJobs.add

    def note(self, name, every_ms, job, **more):
        periods[name] = every_ms
        add(self, name, every_ms, job, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PeriodicJobs, "add", note)
        yield periods


def test_offsets_are_stored_at_the_interval_that_is_set(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders")
            with noted_periods() as periods:
                async with consumer(world, "demo", Seen(), persist_interval_ms=1234):
                    assert periods["persist offsets"] == 1234

    run_async(main)


class Minutes:
    """Two members of a group, and time by the broker's clock: seconds pass as the test says."""

    def __init__(
        self,
        world: ConsumerWorld,
        clock: FakeClock,
        periods: dict[str, float],
        *members: AsyncConsumer,
    ) -> None:
        self.world, self.clock, self.periods, self.members = world, clock, periods, members
        self.silent: set[AsyncConsumer] = set()
        self._beaten_ms = dict.fromkeys(members, clock.monotonic_ms())

    async def second(self) -> None:
        """Let a second pass: heartbeats that are due by each member's job, a scan every ten."""
        self.clock.advance(1000)
        now_ms = self.clock.monotonic_ms()
        for member in set(self.members) - self.silent:
            core = member._context.core
            period_ms = self.periods[f"heartbeat of {member.client_id}"]
            if now_ms - self._beaten_ms[member] >= period_ms:
                self._beaten_ms[member] = now_ms
                assert await core.heartbeat() == 1
        if now_ms % self.world.broker.config.client_scan_ms == 0:
            self.world.broker._expire_clients()

    def hush(self, member: AsyncConsumer) -> None:
        """Let a member say nothing more to its broker, though its connection is open."""
        self.silent.add(member)
        member._context.core._greet = lambda reference: None

    def listed(self) -> set[str]:
        """Return the members that the broker knows."""
        group = self.world.broker.context.consumers.group("demo")
        return set(group.client_ids) if group is not None else set()


async def seconds_until(time: Minutes, condition, limit: int) -> int | None:
    for second in range(1, limit + 1):
        await time.second()
        if condition():
            return second
    return None


@asynccontextmanager
async def two_members(tmp_path: Path, heartbeat_s: int = 30, **given):
    """A broker whose own clock stands, and members that say only what the test lets them say."""
    clock = FakeClock(patience_s=600)
    async with consumer_world(tmp_path, clock=clock, **given) as world:
        await world.create("Orders", queues=2)
        settings = {"handover_wait_ms": 0, "heartbeat_interval_ms": heartbeat_s * 1000}
        with noted_periods() as periods:
            async with (
                consumer(world, "demo", Seen(), **settings) as one,
                consumer(world, "demo", Seen(), **settings) as two,
            ):
                await until(lambda: len(own_queues(one)) == len(own_queues(two)) == 1)
                await until(lambda: len(one._context.core._greeted) == 1)
                await until(lambda: len(two._context.core._greeted) == 1)
                yield Minutes(world, clock, periods, one, two), one, two


@pytest.mark.feature("F100")
@pytest.mark.parametrize(
    ("heartbeat_s", "given", "soonest", "latest"),
    [
        pytest.param(30, {}, 96, 105, id="every 30 s, expired after 120 s"),
        pytest.param(110, {}, 16, 25, id="every 110 s, expired after 120 s"),
        pytest.param(30, {"client_expiry_ms": 60_000}, 36, 45, id="every 30 s, expired after 60 s"),
    ],
)
def test_when_a_silent_member_is_noticed_depends_on_its_heartbeat_and_on_the_brokers_patience(
    tmp_path, heartbeat_s, given, soonest, latest
):
    async def main():
        async with two_members(tmp_path, heartbeat_s, **given) as (time, silent, heir):
            for _ in range(heartbeat_s - 5):
                await time.second()
            time.hush(silent)  # five seconds before it would be heard again

            noticed = await seconds_until(time, lambda: silent.client_id not in time.listed(), 200)

            assert soonest <= noticed <= latest
            assert time.listed() == {heir.client_id}
            await until(lambda: len(own_queues(heir)) == 2)

    run_async(main)


@pytest.mark.feature("F100")
@pytest.mark.parametrize(
    ("heartbeat_s", "gone"),
    [
        pytest.param(30, None, id="30 s: heard in time"),
        pytest.param(110, None, id="110 s: heard in time"),
        pytest.param(150, 130, id="150 s: taken for dead"),
    ],
)
def test_a_healthy_member_is_taken_for_dead_when_its_heartbeats_are_too_far_apart(
    tmp_path, heartbeat_s, gone
):
    async def main():
        async with two_members(tmp_path, heartbeat_s) as (time, one, two):
            both = {one.client_id, two.client_id}

            assert await seconds_until(time, lambda: time.listed() != both, 600) == gone

    run_async(main)


@pytest.mark.parametrize("forgotten", [1, 2], ids=["one of two", "the whole group"])
def test_a_member_that_its_broker_forgot_says_at_the_next_round_that_it_is_there(
    tmp_path, forgotten
):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=2)
            async with (
                consumer(world, "demo", Seen()) as one,
                consumer(world, "demo", Seen()) as two,
            ):
                await until(lambda: len(own_queues(one)) == len(own_queues(two)) == 1)
                consumers = world.broker.context.consumers
                consumers.notify_enabled = lambda group: False  # nobody reminds them

                for client in consumers.group("demo").connections[:forgotten]:
                    consumers.unregister("demo", client.connection)
                for member in (one, two):
                    await member._assignment.round()

                assert set(consumers.group("demo").client_ids) == {one.client_id, two.client_id}

    run_async(main)


@pytest.mark.feature("F27")
def test_of_two_tags_with_one_hash_the_broker_sends_both_and_the_client_keeps_one(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            for tag in ("Aa", "BB", "TagC", "Aa"):
                await world.send("Orders", f"of {tag}", tag=tag)
            seen, pulled = Seen(), []

            async with consumer(world, "demo", seen, {"Orders": "Aa"}) as member:
                brokers = member._context.core.brokers
                await until(lambda: len(seen.messages) == 2)
                pulled = await brokers.pull(world.broker.address, raw_pull(member), timeout_ms=5000)

            assert [message.tag for message in pulled.messages()] == ["Aa", "BB", "Aa"]
            assert seen.bodies == ["of Aa", "of Aa"]

    run_async(main)


def raw_pull(member: AsyncConsumer) -> PullHeader:
    """Return a pull from the first offset, by the subscription that the member told its broker."""
    context = member._context
    wanted_by = context.subscriptions["Orders"]
    return PullHeader(
        consumer_group=context.group,
        topic="Orders",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=wanted_by.sub_version,
        expression_type="TAG",
    )


def test_only_wanted_tags_come_and_the_others_count_as_read(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            for number, tag in enumerate(["Aa", "BB", "TagC", "Aa", "BB", "TagC"]):
                await world.send("Orders", f"{tag}{number}", tag=tag)
            seen = Seen()

            async with consumer(
                world, "demo", seen, {"Orders": "Aa || TagB"}, persist_interval_ms=100
            ):
                await until(lambda: len(seen.messages) >= 2)
                await until(lambda: world.offset("demo", "Orders", 0) == 6, 8)

            assert seen.bodies == ["Aa0", "Aa3"]

    run_async(main)


@pytest.mark.feature("F82")
def test_a_failed_message_comes_again_after_its_delay(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", "good", "bad", keys="k1")
            seen = Seen(lambda message: message.body == b"bad" and message.reconsume_times == 0)

            async with consumer(world, "demo", seen, retry_level=1):
                await until(lambda: len(seen.messages) >= 3)

            assert sorted(seen.bodies) == ["bad", "bad", "good"]
            again = seen.messages[2]
            assert (again.topic, again.reconsume_times, again.keys) == ("Orders", 1, ["k1"])
            first = next(m for m in seen.messages if m.body == b"bad")
            assert again.message_id == first.message_id
            assert seen.times[2] - seen.times[1] > 0.9
            assert world.offset("demo", "Orders", 0) == 2
            assert world.offset("demo", "%RETRY%demo", 0) == 1

    run_async(main)


@pytest.mark.feature("F83")
def test_a_message_that_failed_too_often_ends_as_a_dead_letter(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", "poison", "twice")

            def fails(message):
                if message.body == b"poison":
                    raise RetryLater("never again", level=DEAD_LETTERS)
                return True

            seen, dead = Seen(fails), Seen()
            async with consumer(world, "demo", seen, retry_level=1, reconsume_times_max=1):
                await until(lambda: len(seen.messages) >= 3)
                await until(lambda: world.broker.context.topics.get("%DLQ%demo"))
                async with consumer(world, "gravedigger", dead, "%DLQ%demo"):
                    await until(lambda: len(dead.messages) >= 2, 15)

            assert counts(seen) == {"poison": 1, "twice": 2}
            assert counts(dead) == once(["poison", "twice"])
            assert dead.messages[0].properties["RETRY_TOPIC"] == "Orders"

    run_async(main)


def test_a_message_that_the_broker_does_not_take_back_is_sent_to_the_retry_topic(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", "bad", tag="TagA", properties={"color": "red"})
            seen = Seen(lambda message: message.reconsume_times == 0)
            member = consumer(world, "demo", seen)
            await member.open()
            api = member._context.core.brokers

            async def refuse(address, header):
                raise UnreachableError(address, "gone")

            api.send_back = refuse
            store = world.broker.context.store
            await until(lambda: store.next_queue_offset("SCHEDULE_TOPIC_XXXX", 2) == 1)
            await member.close()

            assert len(seen.messages) == 1
            assert world.offset("demo", "Orders", 0) == 1

    run_async(main)


def test_a_message_that_nobody_takes_back_is_handled_again_here(tmp_path, monkeypatch):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", "bad")
            seen = Seen(lambda message: message.reconsume_times == 0)
            async with consumer(world, "demo", seen) as member:

                async def refuse(message, level):
                    return False

                member._consumption._send_back.give_back = refuse
                await until(lambda: len(seen.messages) >= 2)
                await until(lambda: member.offsets("Orders") == {world.queue("Orders", 0): 1})

    monkeypatch.setattr("orbitmq.client.consumer.concurrent_consumption.TRY_AGAIN_MS", 100)
    run_async(main)


def test_messages_of_a_queue_come_in_order_and_a_failed_one_holds_the_queue(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=2)
            for queue_id in (0, 1):
                await world.send("Orders", *names(5, f"q{queue_id}-"), queue_id=queue_id)
            failed = []

            def fails(message):
                if message.body == b"q0-2" and len(failed) < 2:
                    failed.append(message.reconsume_times)
                    return True
                return False

            seen = Seen(fails)
            async with consumer(world, "demo", seen, orderly=True, suspend_queue_ms=50):
                await until(lambda: len(seen.messages) >= 12)

            of_zero = [body for body in seen.bodies if body.startswith("q0")]
            assert of_zero == ["q0-0", "q0-1", "q0-2", "q0-2", "q0-2", "q0-3", "q0-4"]
            assert [body for body in seen.bodies if body.startswith("q1")] == names(5, "q1-")
            assert failed == [0, 1]
            assert [world.offset("demo", "Orders", queue) for queue in (0, 1)] == [5, 5]
            # Unlocked: another member could have the queues at once.
            locks = world.broker.context.locks
            mine = locks.lock(
                "demo", "somebody", [world.queue("Orders", queue) for queue in (0, 1)]
            )
            assert len(mine) == 2

    run_async(main)


def test_an_orderly_message_that_failed_too_often_goes_to_the_dead_letters(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", "a", "poison", "b")
            seen = Seen(lambda message: message.body == b"poison")

            async with consumer(
                world, "demo", seen, orderly=True, suspend_queue_ms=20, reconsume_times_max=2
            ):
                await until(lambda: "b" in seen.bodies)
                await until(lambda: world.broker.context.topics.get("%DLQ%demo"))

            assert seen.bodies == ["a", "poison", "poison", "poison", "b"]

    run_async(main)


def test_orderly_members_share_queues_and_never_handle_one_at_the_same_time(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=4)
            at_work: set[int] = set()
            met: list[int] = []
            order: dict[int, list[int]] = {queue: [] for queue in range(4)}

            async def handle(message):
                if message.queue_id in at_work:
                    met.append(message.queue_id)
                at_work.add(message.queue_id)
                await asyncio.sleep(0.001)  # sleep: the other member has the chance to meet it
                order[message.queue_id].append(message.queue_offset)
                at_work.discard(message.queue_id)

            async with consumer(world, "demo", handle, orderly=True) as one:
                for queue_id in range(4):
                    await world.send("Orders", *names(30), queue_id=queue_id)
                async with consumer(world, "demo", handle, orderly=True) as two:
                    await until(lambda: len(own_queues(two)) == 2)
                    for queue_id in range(4):
                        await world.send("Orders", *names(30), queue_id=queue_id)
                    await until(lambda: all(len(offsets) >= 60 for offsets in order.values()))
                await until(lambda: len(own_queues(one)) == 4)

            assert met == []
            assert all(offsets == list(range(60)) for offsets in order.values())

    run_async(main)


def test_broadcasting_gives_everybody_everything_and_remembers_it_in_a_file(tmp_path):
    async def main():
        async with consumer_world(tmp_path / "broker") as world:
            await world.create("Orders", queues=2)
            given = {"broadcasting": True, "offsets_directory": tmp_path / "offsets"}
            one, two, later = Seen(), Seen(), Seen()
            async with (
                consumer(world, "demo", one, instance_name="one", **given),
                consumer(world, "demo", two, instance_name="two", **given),
            ):
                await world.send("Orders", *names(6))
                await until(lambda: len(one.messages) == len(two.messages) == 6)
            await world.send("Orders", "later")

            async with consumer(world, "demo", later, instance_name="one", **given):
                await until(lambda: later.messages)

            assert counts(one) == counts(two) == once(names(6))
            assert later.bodies == ["later"]
            assert world.offset("demo", "Orders", 0) == -1
            files = sorted(path.parent.parent.name for path in tmp_path.rglob("offsets.json"))
            assert files == ["127.0.0.1@one", "127.0.0.1@two"]

    run_async(main)


def test_broadcasting_can_be_orderly_without_locks(tmp_path):
    async def main():
        async with consumer_world(tmp_path / "broker") as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(4))
            seen = Seen(lambda message: message.body == b"m1" and message.reconsume_times < 5)
            given = {"broadcasting": True, "offsets_directory": tmp_path / "offsets"}

            async with consumer(
                world,
                "demo",
                seen,
                orderly=True,
                suspend_queue_ms=10,
                reconsume_times_max=1,
                **given,
            ):
                await until(lambda: "m3" in seen.bodies)

            # After its last try a message is left out: broadcasting has no dead letters.
            assert seen.bodies == ["m0", "m1", "m1", "m2", "m3"]
            assert world.broker.context.topics.get("%DLQ%demo") is None

    run_async(main)


@pytest.mark.parametrize("start_from", ["first", "last", "time"])
def test_a_new_group_begins_where_it_was_told(tmp_path, start_from):
    async def main():
        async with consumer_world(tmp_path, zero_if_in_memory=False) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", "old")
            now_ms = await world.later_ms()
            await world.send("Orders", "new")
            seen = Seen()
            wish = now_ms if start_from == "time" else start_from

            async with consumer(world, "demo", seen, start_from=wish) as member:
                await until(lambda: own_queues(member))
                await world.send("Orders", "newest")
                await until(lambda: "newest" in seen.bodies)

            expected = {"first": ["old", "new", "newest"], "last": ["newest"]}
            assert seen.bodies == expected.get(start_from, ["new", "newest"])

    run_async(main)


def test_a_reset_by_an_operator_is_followed(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(5))
            seen = Seen()
            async with consumer(world, "demo", seen) as member:
                await until(lambda: len(seen.messages) == 5)
                queue = world.queue("Orders", 0)

                member.on_reset_offsets("Orders", {queue: 2})
                await until(lambda: len(seen.messages) == 8)
                await until(lambda: member.offsets("Orders") == {queue: 5})

            assert seen.bodies == [*names(5), "m2", "m3", "m4"]
            assert world.offset("demo", "Orders", 0) == 5

    run_async(main)


def test_an_offset_beyond_the_end_is_corrected(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(3))
            world.broker.context.groups.get_or_create("demo")
            world.broker.context.offsets.commit("demo", "Orders", 0, 99)
            seen = Seen()

            async with consumer(world, "demo", seen):
                await until(lambda: world.offset("demo", "Orders", 0) == 3)
                await world.send("Orders", "next")
                await until(lambda: seen.messages)

            assert seen.bodies == ["next"]
            assert world.offset("demo", "Orders", 0) == 4

    run_async(main)


def test_closing_waits_for_handlers_and_stores_what_they_finished(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(3))
            started, done, may_end = [], [], asyncio.Event()

            async def slow(message):
                started.append(message)
                await may_end.wait()
                done.append(message)

            member = await consumer(world, "demo", slow).open()
            await until(lambda: len(started) == 3)
            closing = asyncio.ensure_future(member.close())
            done_closing, _ = await asyncio.wait([closing], timeout=0.1)
            assert not done_closing
            may_end.set()
            await closing

            assert len(done) == 3
            assert world.offset("demo", "Orders", 0) == 3

    run_async(main)


def test_what_a_closing_consumer_could_not_finish_comes_again(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(3))
            started, seen = [], Seen()

            async def stuck(message):
                started.append(message)
                if message.body != b"m0":
                    await asyncio.Event().wait()

            async with consumer(world, "demo", stuck, close_wait_ms=50):
                await until(lambda: len(started) == 3)
            assert world.offset("demo", "Orders", 0) == 1

            async with consumer(world, "demo", seen):
                await until(lambda: len(seen.messages) >= 2)

            assert counts(seen) == once(["m1", "m2"])

    run_async(main)


def test_a_message_handled_for_too_long_is_given_back(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", "stuck", "fine")

            async def handle(message):
                if message.body == b"stuck":
                    await asyncio.Event().wait()

            async with consumer(world, "demo", handle, consume_timeout_ms=100, close_wait_ms=10):
                store = world.broker.context.store
                await until(lambda: store.next_queue_offset("SCHEDULE_TOPIC_XXXX", 2) == 1)

            assert world.offset("demo", "Orders", 0) == 2

    run_async(main)


def test_no_more_is_pulled_while_enough_is_held(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(60))
            may_end, seen = asyncio.Event(), []

            async def handle(message):
                seen.append(message)
                await may_end.wait()

            async with consumer(
                world, "demo", handle, prefetch_count=5, pull_count=4, workers=2
            ) as c:
                await until(lambda: len(seen) == 2)
                (held,) = [held for held in c._assigned.held if held.queue.topic == "Orders"]
                await until(lambda: held.count >= 8)
                await world.round_trip(c)  # a third pull would be answered by then
                assert held.count == 8  # more than 5 after the second pull, so no third
                may_end.set()
                await until(lambda: len(seen) == 60)

    run_async(main)


def test_a_paused_consumer_pulls_nothing(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            seen = Seen()
            async with consumer(world, "demo", seen, suspend_ms=100) as member:
                waiting = world.broker.context.long_poll
                await until(lambda: waiting.count == 2)  # of the topic and of its retries
                member.pause()
                await until(lambda: waiting.count == 0)
                await world.send("Orders", "a")
                await world.round_trip(member)
                assert seen.messages == []
                member.resume()
                await until(lambda: seen.messages)

    run_async(main)


def test_a_consumer_survives_a_restart_of_its_broker(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            config = broker_config(tmp_path / "second", world.namesrv, "broker-b")
            first = Broker(config)
            await first.start()
            config = broker_config(
                tmp_path / "second",
                world.namesrv,
                "broker-b",
                port=int(first.address.rpartition(":")[2]),
            )
            from orbitmq.wire.bodies.topic_config import TopicConfig

            first.context.topics.put(
                TopicConfig(topic_name="Bills", read_queue_nums=1, write_queue_nums=1)
            )
            await until(lambda: world.producer._core.namesrv.route("Bills"))
            queue = MessageQueue("Bills", "broker-b", 0)
            seen = Seen()
            given = {"pull_failed_wait_ms": 50, "rebalance_again_ms": 50}
            async with consumer(world, "demo", seen, "Bills", **given) as member:
                await until(lambda: own_queues(member, "Bills"))
                await world.producer.send(Message("Bills", b"a"), queue=queue)
                await until(lambda: len(seen.messages) == 1)
                await first.stop()
                async with Broker(config):
                    await world.producer.send(Message("Bills", b"b"), queue=queue)
                    await until(lambda: len(seen.messages) == 2)
                    await member.close()

            assert seen.bodies == ["a", "b"]

    run_async(main)


def test_a_second_member_with_the_same_client_id_is_refused(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders")
            async with consumer(world, "demo", Seen(), instance_name="same"):
                with pytest.raises(ClientError, match="instance_name"):
                    await consumer(world, "demo", Seen(), instance_name="same").open()

    run_async(main)


def test_without_a_name_server_opening_fails_and_leaves_nothing_behind():
    async def main():
        member = AsyncConsumer("127.0.0.1:9", "demo", "Orders", Seen())
        with pytest.raises(UnreachableError):
            await member.open()

    run_async(main)


def test_a_consumer_without_topics_is_refused():
    async def main():
        with pytest.raises(ConfigError, match="topic"):
            await AsyncConsumer("127.0.0.1:9", "demo", {}, Seen()).open()

    run_async(main)


def test_a_topic_that_appears_later_is_read(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            seen = Seen()
            async with consumer(world, "demo", seen, "Later", rebalance_again_ms=100):
                await world.create("Later", queues=1)
                await world.send("Later", "a")
                await until(lambda: seen.messages)

    run_async(main)


def test_tools_can_ask_what_a_member_is_doing(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", "a")
            seen = Seen()
            async with consumer(world, "demo", seen) as member:
                await until(lambda: seen.messages)
                info = member.running_info()
                data = member.consumer_data()

            queue = MessageQueue("Orders", BROKER_NAME, 0)
            assert info.mq_table[queue].cached_msg_count == 0
            assert info.mq_table[queue].commit_offset == 1
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert info.status_table["Orders"].consume_failed_messages == 0
            assert info.encode().startswith(b'{"mqPopTable"')
            assert {one.topic for one in data.subscription_data_set} == {"Orders", "%RETRY%demo"}

    run_async(main)


def test_one_message_can_be_handled_on_request(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", "fine")
            results = []
            outcome = {"error": None}

            async def handle(message):
                results.append(message)
                if outcome["error"]:
                    raise outcome["error"]

            async with consumer(world, "demo", handle) as member:
                await until(lambda: results)
                answers = []
                for error in (None, ValueError("no"), RetryLater()):
                    outcome["error"] = error
                    result = await member.consume_directly(results[0], BROKER_NAME)
                    answers.append(result.consume_result)

            assert answers == ["CR_SUCCESS", "CR_THROW_EXCEPTION", "CR_LATER"]

    run_async(main)


def test_a_batch_handler_names_what_failed(tmp_path: Path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(6))
            batches = []

            async def handle(messages):
                batches.append([message.body for message in messages])
                return [m for m in messages if m.body == b"m2" and m.reconsume_times == 0]

            async with consumer(world, "demo", handle, batch_size=4, retry_level=1):
                await until(lambda: sum(map(len, batches)) >= 7)

            assert batches[0] == [b"m0", b"m1", b"m2", b"m3"]
            assert batches[-1] == [b"m2"]

    run_async(main)
