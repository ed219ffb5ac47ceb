"""What a member is told of a rebalance: which queues came and went, and what that cost."""

import asyncio
import threading

import pytest

from async_run import run_async, until
from consumer_world import Seen, consumer_world, counts, names
from orbitmq.client import Admin, Consumer, Message, Producer, RebalanceReport
from orbitmq.client.consumer.consumer import AsyncConsumer
from orbitmq.client.consumer.delivery import Delivery
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.rebalance.report import (
    MemberNotes,
    QueueChanges,
    TakenNote,
    parse_notes,
)
from orbitmq.testing import Broker, FakeClock
from orbitmq.wire.bodies.message_queue import MessageQueue

QUEUE = MessageQueue("Orders", "broker-a", 0)
SETTINGS = {"start_from": "first", "handover_wait_ms": 0, "rebalance_again_ms": 50}


class Reports(list[RebalanceReport]):
    """A coroutine function that keeps what it is called with."""

    async def __call__(self, report: RebalanceReport) -> None:
        self.append(report)

    def gained(self, topic: str) -> dict[int, tuple[int, int | None]]:
        """Return where each queue began, and what waited in it."""
        changes = [one for report in self for one in report.gained if one.queue.topic == topic]
        return {one.queue.queue_id: (one.offset, one.waiting) for one in changes}

    def lost(self, topic: str) -> dict[int, tuple[int | None, int]]:
        changes = [one for report in self for one in report.lost if one.queue.topic == topic]
        return {one.queue.queue_id: (one.offset, one.repeated) for one in changes}


@pytest.mark.feature("F116")
def test_a_member_is_told_what_it_gained_and_how_much_waited_there(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=2)
            await world.send("Orders", *names(3), queue_id=0)
            await world.send("Orders", *names(5), queue_id=1)
            seen, reports = Seen(), Reports()

            async with AsyncConsumer(
                world.namesrv, "demo", "Orders", seen, on_rebalance=reports, **SETTINGS
            ) as member:
                await until(lambda: len(seen.messages) == 8 and len(reports.gained("Orders")) == 2)
            first, last = reports[0], reports[-1]

            assert reports.gained("Orders") == {0: (0, 3), 1: (0, 5)}
            assert ("start" in first.reasons, first.waiting) == (True, 8)
            assert (first.group, first.client_id) == ("demo", member.client_id)
            assert first.at_ms > 0
            assert first.duration_ms >= max(one.after_ms for one in first.gained) >= 0
            assert (last.reasons, last.queues, last.repeated) == (("close",), (), 0)
            assert reports.lost("Orders") == {0: (3, 0), 1: (5, 0)}

    run_async(main)


@pytest.mark.feature("F116")
def test_what_a_member_says_comes_again_is_what_comes_twice(tmp_path):
    """The first member is done with b and d, and hangs at a and c: all four come again."""

    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=2)
            await world.send("Orders", "done", "a", "b", "c", "d", queue_id=1)
            came, free, heir, reports = [], asyncio.Event(), Seen(), Reports()

            async def handle(message):
                came.append(message.body.decode())
                if message.body in (b"a", b"c"):
                    await free.wait()

            given = {**SETTINGS, "handover_wait_ms": 20, "persist_interval_ms": 20}
            first = AsyncConsumer(
                world.namesrv,
                *("demo", "Orders", handle),
                on_rebalance=reports,
                instance_name="a",
                **given,
            )
            second = AsyncConsumer(
                world.namesrv, "demo", "Orders", heir, instance_name="b", **given
            )
            async with first:
                await until(lambda: len(came) == 5 and world.offset("demo", "Orders", 1) == 1)
                async with second:
                    await until(lambda: len(heir.messages) == 4 and reports.lost("Orders"))
                free.set()

            assert sorted(came) == ["a", "b", "c", "d", "done"]
            assert reports.lost("Orders")[1] == (1, 4)
            assert counts(heir) == {"a": 1, "b": 1, "c": 1, "d": 1}

    run_async(main)


@pytest.mark.feature("F116")
@pytest.mark.parametrize("in_batches", [1, 2, 6])
def test_messages_that_a_handler_had_behind_the_consumer_offset_are_counted(in_batches):
    held = ProcessQueue(QUEUE, 0, FakeClock())
    messages = [delivery(offset) for offset in range(6)]
    step = 6 // in_batches
    for at in range(0, 6, step):
        held.put(messages[at : at + step], at + step)

    assert held.repeated == 0
    held.start(messages)
    assert held.repeated == 6
    held.remove([messages[0], *messages[3:]])
    assert (held.consumer_offset, held.repeated) == (1, 5)
    held.stop([messages[2]])
    assert held.repeated == 4
    held.remove(messages[1:3])
    assert (held.consumer_offset, held.repeated) == (6, 0)


def delivery(offset: int) -> Delivery:
    message = Delivery.__new__(Delivery)
    message.queue_offset, message._body_bytes = offset, 1
    return message


@pytest.mark.feature("F116")
def test_a_listener_that_fails_or_hangs_holds_up_nobody(caplog):
    """It runs in a thread of its own, and its exceptions are logged."""
    hang, came = threading.Event(), threading.Event()
    threads = []

    def listen(report: RebalanceReport) -> None:
        threads.append(threading.current_thread())
        hang.wait(20)
        raise ValueError("no more of this")

    with Broker() as broker:
        with Admin(broker.namesrv) as admin:
            admin.create_topic("Orders", queues=1)
        with Producer(broker.namesrv, "test") as producer:
            producer.send(Message("Orders", b"hello"))
        handler = lambda message: came.set()  # noqa: E731
        with Consumer(
            broker.namesrv, "demo", "Orders", handler, on_rebalance=listen, **SETTINGS
        ) as consumer:
            assert came.wait(20)
            loop_thread = consumer.opened_loop.run(current_thread())
            hang.set()

    assert threads
    assert loop_thread not in threads
    assert "on_rebalance failed" in caplog.text


async def current_thread() -> threading.Thread:
    return threading.current_thread()


def test_notes_tell_how_long_ago_something_was_and_survive_the_way():
    changes = QueueChanges()
    changes.took(QUEUE, 7, now_ms=1_000)
    changes.gave_up(MessageQueue("Orders", "broker-a", 1), 9, 2, now_ms=1_400)

    notes = parse_notes(changes.notes(now_ms=1_500))

    assert notes is not None
    assert notes.taken == [TakenNote(QUEUE, 7, 500)]
    assert [(one.offset, one.repeated, one.ago_ms) for one in notes.given_up] == [(9, 2, 100)]
    changes.gave_up(QUEUE, 8, 0, now_ms=1_600)
    assert parse_notes(changes.notes(now_ms=1_600)).taken == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"taken": 7}', '{"taken": [{"offset": 1}]}'])
def test_notes_that_are_none_are_passed_over(text):
    assert parse_notes(text) is None


def test_no_notes_are_empty_notes():
    assert parse_notes("{}") == MemberNotes([], [])
