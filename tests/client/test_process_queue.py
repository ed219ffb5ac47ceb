"""What a queue holds, and which offset may be told to the broker."""

from hypothesis import given
from hypothesis import strategies as st

from async_run import run_async
from orbitmq.client.consumer.process_queue import ProcessQueue, batches
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.bodies.message_queue import MessageQueue

QUEUE = MessageQueue("Orders", "broker-a", 0)


def message(offset: int, body: bytes = b"12345") -> ReceivedMessage:
    return ReceivedMessage(
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


def messages(*offsets: int) -> list[ReceivedMessage]:
    return [message(offset) for offset in offsets]


def new_queue(next_offset: int = 10, clock: FakeClock | None = None) -> ProcessQueue:
    return ProcessQueue(QUEUE, next_offset, clock or FakeClock())


def test_a_new_queue_has_its_start_as_consumer_offset():
    assert new_queue(10).consumer_offset == 10


def test_consumer_offset_is_the_smallest_that_is_still_held():
    queue = new_queue()
    queue.put(messages(10, 11, 12), 13)

    after_second = queue.remove(messages(11))
    after_first = queue.remove(messages(10))
    after_last = queue.remove(messages(12))

    assert (after_second, after_first, after_last) == (10, 12, 13)


def test_filtered_messages_count_as_done_with():
    queue = new_queue()

    queue.put(messages(10, 14), 20)

    assert queue.remove(messages(10)) == 14
    assert queue.remove(messages(14)) == 20


def test_a_pull_that_found_nothing_for_us_moves_the_consumer_offset():
    queue = new_queue()

    queue.put([], 17)

    assert queue.consumer_offset == 17


def test_a_repeated_pull_adds_nothing():
    queue = new_queue()
    queue.put(messages(10, 11), 12)
    queue.remove(messages(10))

    new = queue.put(messages(10, 11, 12), 13)

    assert [one.queue_offset for one in new] == [12]
    assert queue.count == 2
    assert queue.consumer_offset == 11


def test_next_offset_never_goes_back():
    queue = new_queue()
    queue.put(messages(10), 20)

    queue.put([], 12)

    assert queue.next_offset == 20


def test_bytes_count_and_span_follow_what_is_held():
    queue = new_queue()

    queue.put(messages(10, 11, 15), 16)
    queue.remove(messages(11))

    assert (queue.count, queue.held_bytes, queue.span) == (2, 10, 5)


def test_removing_what_is_not_held_changes_nothing():
    queue = new_queue()
    queue.put(messages(10), 11)

    queue.remove(messages(99))

    assert (queue.count, queue.held_bytes) == (1, 5)


def test_messages_that_a_handler_has_too_long_are_overdue():
    clock = FakeClock()
    queue = new_queue(clock=clock)
    queue.put(messages(10, 11, 12), 13)
    queue.start(messages(10))
    clock.advance(1000)
    queue.start(messages(11))
    clock.advance(1)

    assert [one.queue_offset for one in queue.overdue(1000, 16)] == [10]
    assert queue.overdue(2000, 16) == []


def test_taken_messages_stay_held_until_they_are_removed():
    queue = new_queue()
    queue.put(messages(10, 11, 12), 13)

    taken = queue.take(2)
    queue.stop(taken)

    assert [one.queue_offset for one in taken] == [10, 11]
    assert queue.consumer_offset == 10
    assert queue.take(2) == taken


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
        import asyncio

        queue = new_queue()
        queue.put(messages(10), 11)
        queue.start(messages(10))
        early = await queue.wait_idle(1)
        asyncio.get_running_loop().call_soon(queue.remove, messages(10))
        return early, await queue.wait_idle(5000)

    assert run_async(main) == (False, True)


def test_batches_keep_the_order():
    assert [[m.queue_offset for m in part] for part in batches(messages(1, 2, 3), 2)] == [
        [1, 2],
        [3],
    ]


@given(
    pulls=st.lists(st.lists(st.booleans(), max_size=6), max_size=8),
    order=st.randoms(use_true_random=False),
)
def test_consumer_offset_never_passes_an_unfinished_message_and_never_goes_back(pulls, order):
    queue, open_offsets, next_offset, told = new_queue(0), [], 0, 0

    for pull in pulls:
        found = [next_offset + index for index, matches in enumerate(pull) if matches]
        next_offset += len(pull)
        queue.put(messages(*found), next_offset)
        open_offsets += found
        for offset in order.sample(open_offsets, order.randint(0, len(open_offsets))):
            open_offsets.remove(offset)
            queue.remove(messages(offset))
        expected = min(open_offsets, default=next_offset)
        assert queue.consumer_offset == expected
        assert expected >= told
        told = expected
