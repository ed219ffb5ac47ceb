"""The loop of synchronous clients."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from orbitmq.client.sync.background_loop import (
    BackgroundLoop,
    SharedLoop,
    acquire_loop,
    release_loop,
)
from orbitmq.client.sync.light_future import LightFuture
from orbitmq.errors import ClientClosedError


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    made = BackgroundLoop()
    yield made
    made.stop()


async def where() -> str:
    return threading.current_thread().name


def test_coroutines_run_in_the_thread_and_errors_come_back():
    loop = BackgroundLoop()

    async def fail():
        raise ValueError("no")

    assert loop.run(where()) in ("orbitmq-client", "MainThread")
    with pytest.raises(ValueError, match="no"):
        loop.run(fail())
    loop.stop()


def test_clients_share_one_loop_until_the_last_lets_go():
    first, second = acquire_loop(), acquire_loop()
    assert first is second

    release_loop()
    assert first.run(where())
    release_loop()

    assert first.loop.is_closed()
    third = acquire_loop()
    assert third is not first
    release_loop()


def test_a_wait_for_oneself_is_refused():
    loop = BackgroundLoop()

    async def inner():
        loop.run(where())

    with pytest.raises(RuntimeError, match="async client"):
        loop.run(inner())
    loop.stop()


def test_calls_of_many_threads_all_arrive():
    loop = BackgroundLoop()
    seen: list[int] = []

    def call_often():
        for number in range(1000):
            loop.call(lambda number=number: seen.append(number))

    threads = [threading.Thread(target=call_often) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loop.run(asyncio.sleep(0))
    loop.run(asyncio.sleep(0))

    assert len(seen) == 5000
    assert loop.waiting_count == 0
    loop.stop()


def test_stopping_cancels_what_is_left():
    loop = BackgroundLoop()
    cancelled = threading.Event()

    async def wait_for_ever():
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    asyncio.run_coroutine_threadsafe(wait_for_ever(), loop.loop)
    loop.run(asyncio.sleep(0))
    loop.stop()

    assert cancelled.is_set()


def test_a_call_after_the_end_is_refused_and_one_before_it_is_made():
    loop = BackgroundLoop()
    seen: list[int] = []
    loop.loop.call_soon_threadsafe(loop.loop.stop)
    loop.call(lambda: seen.append(1))
    loop.stop()

    assert seen == [1]
    with pytest.raises(ClientClosedError, match="open the client again"):
        loop.call(lambda: seen.append(2))


def test_a_child_process_starts_anew():
    shared = SharedLoop()
    loop = shared.acquire()

    shared.forget()

    assert shared.acquire() is not loop
    shared.release()
    loop.stop()


# --- who runs it ---


def test_a_lone_caller_runs_the_loop_itself(loop):
    own, deadline = 0, time.monotonic() + 30
    while own < 10:  # on a busy machine the background thread often has the seat
        assert time.monotonic() < deadline
        own += loop.run(where()) == "MainThread"


def test_the_background_thread_goes_on_when_the_callers_are_gone(loop):
    ticks = []

    async def tick():
        for _ in range(10_000):
            ticks.append(threading.current_thread().name)
            await asyncio.sleep(0.001)  # sleep: a timer of the loop is what has to go on

    async def start() -> None:
        tasks.append(asyncio.get_running_loop().create_task(tick()))

    loop.run(where())
    loop.run(start())
    for _ in range(20):
        loop.run(where())

    deadline = time.monotonic() + 10
    while ticks.count("orbitmq-client") < 5:
        assert time.monotonic() < deadline
        time.sleep(0.01)


tasks: list[object] = []  # asyncio itself does not keep them


def test_after_a_long_turn_of_a_caller_the_loop_is_not_left_alone(loop):
    for _ in range(20):
        loop.run(where())
    loop.run(asyncio.sleep(0.2))  # sleep: so long this thread runs the loop
    heard = threading.Event()
    started = time.monotonic()
    loop.call(heard.set)

    assert heard.wait(10)
    assert time.monotonic() - started < 5


def test_who_had_the_seat_for_long_wakes_the_background_thread(loop, monkeypatch):
    async def where_after_a_while() -> str:
        await asyncio.sleep(
            0.005
        )  # sleep: longer than the background thread waits between two looks
        return threading.current_thread().name

    rings: list[str] = []
    monkeypatch.setattr(loop, "_ring", lambda: rings.append(threading.current_thread().name))
    deadline = time.monotonic() + 30
    while loop.run(where_after_a_while(), 10) != "MainThread":  # the background thread had the seat
        assert time.monotonic() < deadline
        rings.clear()

    assert rings == ["MainThread"]


def test_a_caller_leaves_when_its_answer_is_there_though_another_one_waits(loop):
    for _ in range(10):
        loop.run(where())  # the seat is free for a moment
        first: LightFuture[int] = LightFuture(loop)
        second: LightFuture[int] = LightFuture(loop)
        with ThreadPoolExecutor(2) as pool:
            results = [pool.submit(future.result, 10) for future in (first, second)]
            loop.call(lambda first=first: loop.loop.call_later(0.01, first.set_result, 1))
            assert results[0].result(10) == 1
            assert not second.done()
            loop.call(lambda second=second: second.set_result(2))
            assert results[1].result(10) == 2


def test_busy_polls_do_not_pile_up(loop):
    left, deadline = 0, time.monotonic() + 30
    while left < 20:  # else the background thread had the seat, or a turn was slow
        assert time.monotonic() < deadline
        loop.run(where())
        polls = sum("_poll" in repr(handle) for handle in tuple(loop.loop._ready))
        assert polls <= 1
        left += polls


def test_what_a_turn_has_to_send_first_does_not_count_as_waiting(loop):
    runners: list[str] = []

    def send_for_long() -> None:
        time.sleep(0.002)  # sleep: longer than a caller polls
        runners.append(threading.current_thread().name)

    deadline = time.monotonic() + 30
    is_quick = False
    while not is_quick:  # else the background thread had the seat, or the machine was busy
        assert time.monotonic() < deadline
        answer: LightFuture[int] = LightFuture(loop)
        loop.call(send_for_long)
        loop.call(lambda answer=answer: loop.loop.call_soon(answer.set_result, 1))
        answer.result(10)
        is_quick = runners[-1] == "MainThread" and loop._is_quick


def test_callers_that_wait_for_each_other_are_all_served(loop):
    for _ in range(30):
        event = asyncio.Event()

        async def set_later(event=event):
            await asyncio.sleep(0.002)  # sleep: the other one shall wait beside
            event.set()

        with ThreadPoolExecutor(2) as pool:
            waiting = pool.submit(loop.run, event.wait(), 10)
            setting = pool.submit(loop.run, set_later(), 10)
            assert waiting.result(10)
            setting.result(10)


def test_one_that_waits_beside_a_caller_is_served_when_that_one_leaves(loop):
    async def last(running: threading.Event) -> None:
        running.set()
        await asyncio.sleep(0.05)  # sleep: the other one shall wait beside

    for _ in range(10):
        loop.run(where())  # the seat is free for a moment
        running = threading.Event()
        thread = threading.Thread(target=lambda: loop.run(last(running)))  # noqa: B023
        thread.start()
        assert running.wait(10)
        # sleep: it ends behind the other one
        assert loop.run(asyncio.sleep(0.1, "done"), 10) == "done"
        thread.join()


def test_a_thread_that_runs_a_loop_of_its_own_is_served_by_the_background_thread(loop):
    async def main():
        return [loop.run(where(), 10) for _ in range(5)]

    assert set(asyncio.run(main())) == {"orbitmq-client"}


def test_many_threads_are_all_served(loop):
    async def work(number: int) -> int:
        await asyncio.sleep(0.0005 * (number % 3))  # sleep: answers that take unlike long
        return number

    def call_often(start: int) -> list[int]:
        return [loop.run(work(start + step), 20) for step in range(200)]

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(call_often, range(0, 6000, 1000)))

    assert found == [list(range(start, start + 200)) for start in range(0, 6000, 1000)]


def test_a_wait_ends_in_time_and_what_was_waited_for_is_cancelled(loop):
    for _ in range(5):
        loop.run(where())
        cancelled = threading.Event()

        async def wait_for_ever(cancelled=cancelled):
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        with pytest.raises(TimeoutError):
            loop.run(wait_for_ever(), 0.01)
        assert cancelled.wait(10)


def test_a_future_that_another_thread_cancels_ends_the_wait(loop):
    for _ in range(5):
        loop.run(where())
        future: LightFuture[int] = LightFuture(loop)
        timer = threading.Timer(0.01, future.cancel)
        timer.start()
        with pytest.raises(CancelledError):
            future.result(10)
        timer.join()


def test_a_callback_that_waits_is_refused_instead_of_waiting_for_itself(loop):
    refused = []

    def call() -> None:
        try:
            loop.run(where())
        except RuntimeError as error:
            refused.append(str(error))

    for _ in range(5):
        loop.call(call)
        loop.run(where())

    assert len(refused) == 5
    assert "another thread" in refused[0]
