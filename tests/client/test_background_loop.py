"""The loop of synchronous clients."""

import asyncio
import threading

import pytest

from orbitmq.client.sync.background_loop import (
    BackgroundLoop,
    SharedLoop,
    acquire_loop,
    release_loop,
)
from orbitmq.errors import ClientClosedError


async def where() -> str:
    return threading.current_thread().name


def test_coroutines_run_in_the_thread_and_errors_come_back():
    loop = BackgroundLoop()

    async def fail():
        raise ValueError("no")

    assert loop.run(where()) == "orbitmq-client"
    with pytest.raises(ValueError, match="no"):
        loop.run(fail())
    loop.stop()


def test_clients_share_one_loop_until_the_last_lets_go():
    first, second = acquire_loop(), acquire_loop()
    assert first is second

    release_loop()
    assert first.run(where()) == "orbitmq-client"
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
