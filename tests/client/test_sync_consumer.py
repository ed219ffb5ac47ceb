"""`for message in consumer` and handlers in threads, against a live broker."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable

import pytest

from async_run import run_async
from consumer_world import ConsumerWorld, consumer_world, names
from orbitmq.client.sync.consumer import Consumer
from orbitmq.errors import ClientClosedError, UnreachableError


def in_thread(tmp_path, work: Callable[[ConsumerWorld], object], queues: int = 1, count: int = 3):
    """Run synchronous code beside a broker that has `count` messages in topic Orders."""

    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues)
            await world.send("Orders", *names(count))
            result = await asyncio.to_thread(work, world)
            offsets = [world.offset("demo", "Orders", queue) for queue in range(queues)]
            store = world.broker.context.store
            waiting = sum(store.next_queue_offset("SCHEDULE_TOPIC_XXXX", n) for n in range(18))
            return result, sum(offsets), waiting

    return run_async(main)


def consumer(world: ConsumerWorld, **given) -> Consumer:
    return Consumer(
        namesrv=world.namesrv, group="demo", topics="Orders", start_from="first", **given
    )


def test_a_loop_gets_every_message_and_acknowledges_each(tmp_path):
    def work(world):
        bodies = []
        with consumer(world) as members:
            for message in members:
                bodies.append(message.body.decode())
                if len(bodies) == 50:
                    message.ack()
                    break
        return bodies

    bodies, offset, waiting = in_thread(tmp_path, work, queues=4, count=50)

    assert sorted(bodies) == sorted(names(50))
    assert (offset, waiting) == (50, 0)


def leave_by_break(member):
    for message in member:
        if message.body == b"m1":
            break


def leave_by_return(member):
    for message in member:
        if message.body == b"m1":
            return


def leave_by_an_exception(member):
    for message in member:
        if message.body == b"m1":
            raise ValueError


def leave_one_that_nobody_ended(member):
    loop = iter(member)
    assert [next(loop).body, next(loop).body] == [b"m0", b"m1"]
    del loop


@pytest.mark.parametrize(
    "leave", [leave_by_break, leave_by_return, leave_by_an_exception, leave_one_that_nobody_ended]
)
def test_what_a_loop_took_last_is_given_back_however_it_is_left(tmp_path, leave):
    def work(world):
        with consumer(world) as member, contextlib.suppress(ValueError):
            leave(member)

    _, offset, waiting = in_thread(tmp_path, work)

    assert (offset, waiting) == (2, 1)  # m0 acknowledged, m1 waits for its delay, nobody saw m2


def test_a_message_that_was_acknowledged_before_the_loop_is_left_does_not_come_again(tmp_path):
    def work(world):
        with consumer(world) as member:
            for message in member:
                message.ack()
                break

    _, offset, waiting = in_thread(tmp_path, work)

    assert (offset, waiting) == (1, 0)


def test_an_orderly_loop_that_is_left_keeps_nobody_waiting(tmp_path, caplog):
    def work(world):
        with consumer(world, orderly=True) as members:
            for message in members:  # the next one is ready, and nobody takes it
                message.ack()
                break

    _, offset, _ = in_thread(tmp_path, work)

    assert offset == 1
    assert "handlers are still at work" not in caplog.text


def test_an_orderly_message_that_is_acknowledged_the_second_time_is_done(tmp_path):
    def work(world):
        bodies = []
        with consumer(world, orderly=True, suspend_queue_ms=10) as members:
            for message in members:
                bodies.append(message.body.decode())
                if len(bodies) == 1:
                    message.retry()
                    continue
                message.ack()
                if len(bodies) == 4:
                    break
        return bodies

    bodies, offset, _ = in_thread(tmp_path, work)

    assert bodies == [names(1)[0], *names(3)]
    assert offset == 3


def test_an_exception_gives_the_message_back(tmp_path):
    def fail(world):
        with consumer(world) as member:
            for message in member:
                if message.body == b"m1":
                    raise ValueError("no")

    def work(world):
        with pytest.raises(ValueError, match="no"):
            fail(world)

    _, offset, waiting = in_thread(tmp_path, work)

    assert (offset, waiting) == (2, 1)


def test_handlers_run_in_several_threads(tmp_path):
    def work(world):
        together = threading.Barrier(3, timeout=10)
        names_of_threads, done = set(), threading.Event()

        def handle(message):
            together.wait()
            names_of_threads.add(threading.current_thread().name)
            if len(names_of_threads) == 3:
                done.set()

        with consumer(world, handler=handle, workers=3):
            assert done.wait(10)
        return names_of_threads

    threads, offset, _ = in_thread(tmp_path, work)

    assert offset == 3
    assert all(name.startswith("orbitmq-demo") for name in threads)


def test_a_handler_that_raises_gets_the_message_again(tmp_path):
    def work(world):
        times, done = [], threading.Event()

        def handle(message):
            if message.body == b"m1":
                times.append(message.reconsume_times)
                if len(times) == 1:
                    raise ValueError("not yet")
                done.set()

        with consumer(world, handler=handle, retry_level=1):
            assert done.wait(10)
        return times

    times, offset, _ = in_thread(tmp_path, work)

    assert (times, offset) == ([0, 1], 3)


def test_several_threads_may_share_a_loop_and_closing_ends_them(tmp_path):
    def work(world):
        bodies: list[bytes] = []

        def loop(member):
            bodies.extend(message.body for message in member)

        with consumer(world) as member:
            threads = [threading.Thread(target=loop, args=(member,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            end = time.monotonic() + 30
            while len(bodies) < 20 and time.monotonic() < end:
                time.sleep(0.01)
        for thread in threads:
            thread.join(10)
        return sorted(bodies)

    bodies, _, _ = in_thread(tmp_path, work, count=20)

    assert bodies == sorted(name.encode() for name in names(20))


def test_wait_ends_when_another_thread_closes(tmp_path):
    def work(world):
        member = consumer(world, handler=lambda message: None).open()
        early = member.wait(0.05)
        threading.Timer(0.1, member.close).start()
        return early, member.wait(10)

    result, _, _ = in_thread(tmp_path, work)

    assert result == (False, True)


def test_a_message_may_be_settled_after_its_consumer_was_closed(tmp_path):
    def work(world):
        member = consumer(world, close_wait_ms=50).open()
        message = member.receive(timeout=5)
        member.close()
        message.ack()  # too late, and no error: it comes again
        member.close()

    assert in_thread(tmp_path, work)[1] == -1


def test_a_consumer_can_be_opened_again(tmp_path):
    def work(world):
        member = consumer(world)
        bodies = []
        for _ in range(3):
            with member:
                message = member.receive(timeout=5)
                bodies.append(message.body)
                message.ack()
        return bodies

    bodies, offset, _ = in_thread(tmp_path, work)

    assert (bodies, offset) == ([b"m0", b"m1", b"m2"], 3)


def test_a_consumer_that_is_not_open_says_so():
    member = Consumer(namesrv="127.0.0.1:9", group="demo", topics="Orders")

    with pytest.raises(ClientClosedError, match="with"):
        iter(member)


def test_without_a_name_server_opening_fails():
    with pytest.raises(UnreachableError):
        Consumer(namesrv="127.0.0.1:9", group="demo", topics="Orders").open()


def test_paused_and_resumed(tmp_path):
    def work(world):
        with consumer(world, suspend_ms=100) as member:
            member.receive(timeout=5).ack()
            member.pause()
            member.resume()
            return [queue.topic for queue in member.queues if queue.topic == "Orders"]

    topics, _, _ = in_thread(tmp_path, work)

    assert topics == ["Orders"]
