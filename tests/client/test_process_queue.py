"""What a queue holds, and which offset may be told to the broker."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_run import run_async
from orbitmq.client.consumer.delivery import Delivery
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.bodies.message_queue import MessageQueue

QUEUE = MessageQueue("Orders", "broker-a", 0)


def message(offset: int, body: bytes = b"12345") -> Delivery:
    return Delivery(
        "Orders",
        body,
        "broker-a",
        0,
        offset,
        offset * 100,
        {},
        0,
        0,
        "a:1",
        "b:2",
        f"{offset:032X}",
    )


def messages(*offsets: int) -> list[Delivery]:
    return [message(offset) for offset in offsets]


def new_queue(next_offset: int = 10, clock: FakeClock | None = None) -> ProcessQueue:
    return ProcessQueue(QUEUE, next_offset, clock or FakeClock())


def test_a_new_queue_has_its_start_as_consumer_offset():
    assert new_queue(10).consumer_offset == 10


def test_consumer_offset_is_the_smallest_that_is_still_held():
    queue = new_queue()
    first, second, third = queue.put(messages(10, 11, 12), 13)
    told = []

    for one in (second, first, third):
        queue.remove([one])
        told.append(queue.consumer_offset)

    assert told == [10, 12, 13]


def test_filtered_messages_count_as_done_with():
    queue = new_queue()
    first, second = queue.put(messages(10, 14), 20)

    queue.remove([first])
    between = queue.consumer_offset
    queue.remove([second])

    assert (between, queue.consumer_offset) == (14, 20)


def test_progress_says_nothing_before_something_is_done_with():
    queue = new_queue()
    before = queue.progress
    first, _ = queue.put(messages(10, 11), 12)
    held = queue.progress
    queue.remove([first])

    assert (before, held, queue.progress) == (None, None, 11)


def test_a_pull_that_found_nothing_for_us_moves_the_consumer_offset():
    queue = new_queue()

    queue.put([], 17)

    assert queue.consumer_offset == 17


def test_a_repeated_pull_adds_nothing():
    queue = new_queue()
    first, _ = queue.put(messages(10, 11), 12)
    queue.remove([first])

    new = queue.put(messages(10, 11, 12), 13)

    assert [one.queue_offset for one in new] == [12]
    assert queue.count == 2
    assert queue.consumer_offset == 11


def test_next_offset_never_goes_back():
    queue = new_queue()
    queue.put(messages(10), 20)

    queue.put([], 12)

    assert queue.next_offset == 20


def test_bytes_and_count_follow_what_is_held():
    queue = new_queue()

    new = queue.put(messages(10, 11, 15), 16)
    queue.remove([new[1]])

    assert (queue.count, queue.body_bytes) == (2, 10)
    assert (queue.first_offset, queue.last_offset) == (10, 15)


@pytest.mark.parametrize(
    ("limits", "exceeded"),
    [
        pytest.param((2, 10, 5), False, id="as much as allowed"),
        pytest.param((1, 10, 5), True, id="a message more"),
        pytest.param((2, 9, 5), True, id="a byte more"),
        pytest.param((2, 10, 4), True, id="a longer span"),
        pytest.param((2, 10, None), False, id="any span"),
    ],
)
def test_what_is_held_is_compared_with_limits(limits, exceeded):
    queue = new_queue()
    new = queue.put(messages(10, 11, 15), 16)
    queue.remove([new[1]])

    assert queue.exceeds(*limits) is exceeded


def test_removing_what_is_not_held_changes_nothing():
    queue, other = new_queue(), new_queue()
    queue.put(messages(10), 11)

    queue.remove(messages(10))
    queue.remove(other.put(messages(10), 11))

    assert (queue.count, queue.body_bytes) == (1, 5)


def test_messages_that_somebody_has_too_long_are_overdue():
    clock = FakeClock()
    queue = new_queue(clock=clock)
    first, second, _ = queue.put(messages(10, 11, 12), 13)
    queue.start([first])
    clock.advance(1000)
    queue.start([second])
    clock.advance(1)

    assert queue.overdue(1000, 16) == [first]
    assert queue.overdue(2000, 16) == []


def test_taken_messages_stay_held_until_they_are_removed():
    queue = new_queue()
    queue.put(messages(10, 11, 12), 13)

    taken = queue.take(2)
    position = queue.position
    queue.stop(taken)

    assert [one.queue_offset for one in taken] == [10, 11]
    assert (position, queue.position, queue.consumer_offset) == (12, 10, 10)
    assert queue.take(2) == taken


def test_what_is_taken_comes_from_several_pulls_in_order():
    queue = new_queue()
    queue.put(messages(10, 11), 12)
    queue.put(messages(12, 13), 14)

    assert [one.queue_offset for one in queue.take(3)] == [10, 11, 12]
    assert [one.queue_offset for one in queue.take(3)] == [13]


def test_a_message_that_is_given_back_is_held_until_that_is_done():
    queue, given = new_queue(), []
    queue.on_give_back = given.append
    (message,) = queue.take(queue.put(messages(10), 11)[0].queue_offset)

    message.retry(level=2)
    queue.stop([message])

    assert (given, message.outcome.level) == ([message], 2)
    assert (queue.consumer_offset, queue.running) == (10, 1)
    queue.remove([message])
    assert (queue.consumer_offset, queue.running) == (10, 1)
    queue.remove([message], given_back=True)
    assert (queue.consumer_offset, queue.running) == (11, 0)


def test_a_lock_is_trusted_for_30_seconds():
    clock = FakeClock()
    queue = new_queue(clock=clock)

    queue.set_locked(True)
    clock.advance(30_000)
    still = queue.lock_is_valid
    clock.advance(1)

    assert still
    assert not queue.lock_is_valid


def test_waiting_for_idle_ends_when_the_last_message_is_done():
    async def main():
        queue = new_queue()
        new = queue.put(messages(10), 11)
        queue.start(new)
        early = await queue.wait_idle(1)
        asyncio.get_running_loop().call_soon(queue.remove, new)
        return early, await queue.wait_idle(5000)

    assert run_async(main) == (False, True)


def test_who_waits_for_room_is_told_once_by_a_message_that_another_thread_settles():
    async def main():
        calls = []
        queue = ProcessQueue(QUEUE, 10, FakeClock(), calls.append)
        new = queue.put(messages(10, 11, 12), 13)
        new[0].ack()  # nobody waits
        waiting = asyncio.ensure_future(queue.wait_until(lambda: queue.count == 0))
        await asyncio.sleep(0)
        new[1].ack()
        new[2].ack()
        told = list(calls)
        told[0]()
        await waiting
        return len(told), queue.consumer_offset

    assert run_async(main) == (1, 13)


@given(
    pulls=st.lists(st.lists(st.booleans(), max_size=6), max_size=8),
    order=st.randoms(use_true_random=False),
)
def test_consumer_offset_never_passes_an_unfinished_message_and_never_goes_back(pulls, order):
    queue, held, next_offset, told = new_queue(0), [], 0, 0

    for pull in pulls:
        found = [next_offset + index for index, matches in enumerate(pull) if matches]
        next_offset += len(pull)
        held += queue.put(messages(*found), next_offset)
        for message in order.sample(held, order.randint(0, len(held))):
            held.remove(message)
            message.ack() if order.random() < 0.5 else queue.remove([message])
        expected = min((one.queue_offset for one in held), default=next_offset)
        assert (queue.consumer_offset, queue.count) == (expected, len(held))
        assert expected >= told
        told = expected
