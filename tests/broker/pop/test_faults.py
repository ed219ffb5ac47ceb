"""What went wrong in RocketMQ's own pop consumption, each as a test of ours (numbers are RocketMQ's)."""

import random
import time
from pathlib import Path

from msgspec.structs import replace

from orbitmq.broker.pop.check_point import CheckPoint, decode_check_point
from orbitmq.broker.pop.revive import _Queue, _Waiting
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.units import HOUR_MS
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from pop_world import GROUP, INVISIBLE_MS, TOPIC, PopWorld

RETRY = f"%RETRY%{GROUP}_{TOPIC}"


def test_7914_no_message_that_is_not_acknowledged_is_lost(tmp_path: Path) -> None:
    """Some were taken for messages stored after the pop, and dropped."""
    chance = random.Random(7914)
    with PopWorld(tmp_path, queues=2) as world:
        sent: set[str] = set()
        acked: set[str] = set()
        seen: set[str] = set()
        for turn in range(60):
            for number in range(chance.randrange(8)):
                body = f"{turn}.{number}"
                sent.add(body)
                world.send(body, queue_id=chance.randrange(2))
            for message in world.pop(max_msg_nums=chance.randrange(1, 33)).messages:
                seen.add(message.body)
                if chance.random() < 0.5:
                    assert world.ack(message).code == 0
                    acked.add(message.body)
            world.pass_time(chance.choice((0, 100, 3_000)))
        for _ in range(100):
            if acked == sent:
                break
            world.pass_time(INVISIBLE_MS + 5_000)
            for message in world.pop().messages:
                assert message.body not in acked
                seen.add(message.body)
                world.ack(message)
                acked.add(message.body)
        assert seen == acked == sent


def test_7914_a_clock_that_is_set_back_loses_nothing(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        stored_ms = world.clock.now_ms()
        world.clock.set_now_ms(stored_ms - 300_000)
        taken = world.pop()
        assert taken.answer.pop_time >= stored_ms
        world.pass_time(300_000 + INVISIBLE_MS + 6_000)
        assert world.pop().bodies == ["a"]


def test_7724_only_the_message_that_was_popped_comes_again(tmp_path: Path) -> None:
    """Where it was gone, the next one that was there came instead, acknowledged or not."""
    store = {"segment_bytes": 64 * 1024, "retention_ms": HOUR_MS, "delete_pause_ms": 0}
    clock = FakeClock(time.time_ns() // 1_000_000)  # files have the time of the machine
    with PopWorld(tmp_path, store=store, clock=clock) as world:
        world.send("a")
        world.pop()
        point = decode_check_point(world.written()[0][1].body)
        for _ in range(20):
            world.send("x" * 20_000)
        world.store.flush()
        clock.advance(2 * HOUR_MS)
        world.store.delete_expired_now()
        assert world.store.min_offset(TOPIC, 0) > 0
        # The check point went with the segment; one that was written later speaks of the same message.
        world.engine.log.append([world.engine.log.check_point(point, 0)])
        world.pass_time(6_000)
        assert world.pops.revive.waiting == 0
        assert world.store.max_offset(world.engine.log.topic, 0) > 0
        assert world.store.max_offset(RETRY, 0) == 0


def test_10582_check_points_are_worked_through_in_the_order_of_their_offsets(
    tmp_path: Path,
) -> None:
    """Differences of offsets were cut to 32 bits, so later ones came first, and progress skipped some."""
    with PopWorld(tmp_path) as world:
        world.send("a", "b", "c")
        offsets = (1, 1 + 2**31, 2 + 2**33)
        queue = _Queue(0, 0)
        for number, offset in enumerate(offsets):
            point = CheckPoint(
                group=GROUP,
                gaps=[0],
                invisible_ms=1,
                count=1,
                pop_ms=world.clock.now_ms(),
                queue_id=0,
                start_offset=number,
                topic=TOPIC,
                revive_offset=offset,
            )
            queue.waiting[point.id] = _Waiting(point)
        queue.read_ms = world.clock.now_ms() + 60_000
        world.pops.revive._work(queue)
        world.settle()
        assert [record.body for record in world.retried()] == [b"a", b"b", b"c"]
        world.store.flush()
        world.pops.tick()
        log = world.engine.log
        assert world.context.offsets.get("CID_RMQ_SYS_REVIVE_GROUP", log.topic, 0) == offsets[-1]


def test_9956_many_renewals_at_one_moment_do_not_stop_the_revive_service(tmp_path: Path) -> None:
    """A scan that never came to the end of equal times began again and again from the same place."""
    with PopWorld(tmp_path) as world:
        for start in range(0, 640, 32):
            world.send(*(str(start + number) for number in range(32)))
        while taken := world.pop().messages:
            for message in taken:
                world.renew(message, 20_000)
        world.pass_time(30_000)
        assert len(world.retried()) == 32  # the store reads no more at once
        assert world.store.max_offset(RETRY, 0) == 640
        assert world.pops.revive.waiting == 0


def test_8479_a_topic_made_anew_stops_nothing_and_gets_nothing_wrong(tmp_path: Path) -> None:
    """Check points of the deleted topic were tried for ever, or brought messages of the new one."""
    with PopWorld(tmp_path) as world:
        world.send(*"abcde")
        assert len(world.pop().messages) == 5
        world.context.topics.delete(TOPIC)
        world.context.offsets.remove_topic(TOPIC)
        world.store.delete_topic(TOPIC)
        world.pass_time(INVISIBLE_MS + 120_000 - 16_000)
        world.topic(TOPIC)
        world.pass_time(1)
        world.send("new")
        world.pass_time(30_000)
        assert world.store.max_offset(RETRY, 0) == 0
        assert world.pops.revive.waiting == 0
        assert not any(b'"rp"' in request.body for _, request in world.written())
        assert world.pop().bodies == ["new"]


def test_8479_a_check_point_of_the_deleted_topic_does_not_bring_a_message_of_the_new_one(
    tmp_path: Path,
) -> None:
    with PopWorld(tmp_path) as world:
        world.send("old")
        assert world.pop(invisible_time=200_000).bodies == ["old"]
        world.context.topics.delete(TOPIC)
        world.context.offsets.remove_topic(TOPIC)
        world.store.delete_topic(TOPIC)
        world.topic(TOPIC)
        world.pass_time(100_000)
        world.send("new")
        world.pass_time(110_000)
        assert world.store.max_offset(RETRY, 0) == 0
        assert world.pop().bodies == ["new"]


def test_8154_a_simple_consumer_of_an_ordered_group_gets_messages_in_order(tmp_path: Path) -> None:
    """Its first request did not say that it is ordered, so the first message came long after the others."""
    with PopWorld(tmp_path) as world:
        config = world.context.groups.get_or_create(GROUP)
        assert config is not None
        world.context.groups.put(replace(config, consume_message_orderly=True))
        world.send(*"abcd")
        seen = []
        first = world.pop(max_msg_nums=1, order=False)
        assert world.pop(max_msg_nums=1, order=True).bodies == []  # "a" is somebody's
        seen += first.bodies
        world.ack(first.messages[0])
        while taken := world.pop(max_msg_nums=1, order=True).messages:
            seen += [message.body for message in taken]
            world.ack(taken[0])
        assert seen == list("abcd")
        assert world.store.max_offset(RETRY, 0) == 0


def test_8154_nobody_overtakes_a_message_that_is_not_done(tmp_path: Path) -> None:
    chance = random.Random(8154)
    with PopWorld(tmp_path) as world:
        world.send(*map(str, range(40)))
        done: list[int] = []
        for _ in range(300):
            taken = world.pop(max_msg_nums=chance.randrange(1, 5), order=True).messages
            for message in taken:
                assert int(message.body) <= len(done)
                if chance.random() < 0.7:
                    world.ack(message)
                    done += [int(message.body)] if int(message.body) == len(done) else []
                else:
                    break
            world.clock.advance(chance.choice((0, INVISIBLE_MS + 100)))
        assert done == list(range(40))


def test_10229_a_reset_moves_an_ordered_group(tmp_path: Path) -> None:
    """It had no effect while messages were out, and acks of before the reset undid it."""
    with PopWorld(tmp_path) as world:
        world.send(*"abc")
        before = world.pop(order=True)
        assert before.bodies == list("abc")
        world.context.offsets.reset(GROUP, TOPIC, 0, 1)
        assert world.pop(order=True).bodies == ["b", "c"]
        for message in before.messages:
            world.ack(message)
        assert world.committed() == 1


def test_10229_a_reset_is_seen_by_who_waits(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        taken = world.pop(order=True)
        world.ack(taken.messages[0])
        parked = world.park(order=True)
        world.context.offsets.reset(GROUP, TOPIC, 0, 0)
        world.context.long_poll.wake(TOPIC, 0)
        answer = world.parked_answer(parked)
        assert answer is not None
        assert answer.bodies == ["a"]


def test_10229_a_reset_moves_a_group_that_is_not_ordered(tmp_path: Path) -> None:
    with PopWorld(tmp_path, pop_buffer=True) as world:
        world.send(*"abc")
        taken = world.pop()
        world.context.offsets.reset(GROUP, TOPIC, 0, 2)
        assert world.pop().bodies == ["c"]
        world.ack(taken.messages[0])
        world.store.flush()
        world.pops.tick()
        assert world.committed() == 2


def test_9518_a_pop_that_says_no_time_is_of_now(tmp_path: Path) -> None:
    """With access control on, the time was lost on its way, and every pop was taken for one of 1970."""
    with PopWorld(tmp_path) as world:
        world.send("a", "b")
        without = world.pop_command(max_msg_nums=1)
        assert without.fields is not None
        del without.fields["bornTime"]
        zero = world.pop_command(max_msg_nums=1, born_time=0)
        answers = [world.ask(world.client, command) for command in (without, zero)]
        assert [answer.code for answer in answers] == [0, 0]


def test_9518_the_same_for_notifications(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "pollTime": "5000"}
        command = Command(RequestCode.NOTIFICATION, {**fields, "bornTime": "0"}, opaque=77)
        world.handler.on_commands(world.client, [command])  # type: ignore[list-item,arg-type]
        assert world.client.take() == []
        world.send("a")
        (answer,) = world.client.take()
        assert answer.fields == {"hasMsg": "true", "pollingFull": "false"}
