"""Futures that cost little."""

import asyncio
import threading
from concurrent.futures import CancelledError, Future, as_completed, wait

import pytest

from orbitmq.client.sync.light_future import LightFuture


def later(action, *arguments) -> threading.Thread:
    timer = threading.Timer(0.02, action, arguments)
    timer.start()
    return timer


def test_a_result_that_is_there_is_given_at_once():
    future: LightFuture[int] = LightFuture()
    assert not future.done()

    future.set_result(5)

    assert future.done()
    assert (future.result(), future.result(0), future.exception()) == (5, 5, None)
    assert isinstance(future, Future)


def test_waiting_for_a_result():
    future: LightFuture[int] = LightFuture()
    timer = later(future.set_result, 7)

    assert future.result(10) == 7
    timer.join()


def test_waiting_for_an_error():
    future: LightFuture[int] = LightFuture()
    timer = later(future.set_exception, ValueError("no"))

    with pytest.raises(ValueError, match="no"):
        future.result(10)
    assert isinstance(future.exception(), ValueError)
    timer.join()


def test_a_wait_ends_in_time():
    future: LightFuture[int] = LightFuture()

    with pytest.raises(TimeoutError):
        future.result(0.01)
    future.set_result(1)
    assert future.result() == 1


def test_callbacks_before_and_after():
    heard: list[str] = []
    future: LightFuture[int] = LightFuture()
    future.add_done_callback(lambda done: heard.append("before"))
    future.set_result(1)
    future.add_done_callback(lambda done: heard.append("after"))

    assert heard == ["before", "after"]


def test_a_cancelled_future_takes_no_result():
    future: LightFuture[int] = LightFuture()

    assert future.cancel()
    assert future.cancelled()
    assert future.done()
    with pytest.raises(CancelledError):
        future.result()


def test_wait_and_as_completed_take_it():
    futures: list[Future[int]] = [LightFuture() for _ in range(20)]
    timers = [later(future.set_result, n) for n, future in enumerate(futures)]

    assert sorted(future.result() for future in as_completed(futures, 10)) == list(range(20))
    assert wait(futures, 10).not_done == set()
    for timer in timers:
        timer.join()


def test_asyncio_can_wait_for_it():
    async def main():
        future: LightFuture[int] = LightFuture()
        timer = later(future.set_result, 3)
        assert await asyncio.wrap_future(future) == 3
        timer.join()

    asyncio.run(main())


def test_no_result_is_missed_however_threads_meet():
    for _ in range(300):
        future: LightFuture[int] = LightFuture()
        thread = threading.Thread(target=future.set_result, args=(1,))
        thread.start()
        assert future.result(10) == 1
        thread.join()
