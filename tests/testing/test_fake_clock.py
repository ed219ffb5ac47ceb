"""The clock that tests own."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from orbitmq.testing.fake_clock import FakeClock


def test_time_stands_still_until_it_is_moved() -> None:
    clock = FakeClock(1000)

    assert (clock.now_ms(), clock.monotonic_ms()) == (1000, 0.0)
    clock.advance(250)
    clock.sleep(50)

    assert (clock.now_ms(), clock.monotonic_ms()) == (1300, 300.0)


def test_the_wall_clock_may_jump_but_durations_do_not() -> None:
    clock = FakeClock(1000)

    clock.set_now_ms(10)

    assert (clock.now_ms(), clock.monotonic_ms()) == (10, 0.0)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)


def test_waiting_for_nothing_returns_at_once() -> None:
    clock, event = FakeClock(), threading.Event()

    assert not clock.wait(event, 0)
    event.set()
    assert clock.wait(event, 1e9)


def test_a_waiting_thread_wakes_when_its_time_has_come_and_not_before() -> None:
    clock, event = FakeClock(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(clock.wait, event, 100)
        clock.advance(99.5)
        with pytest.raises(TimeoutError):
            waiting.result(0.05)

        while not waiting.done():  # the thread may have begun to wait after the first step
            clock.advance(100)

        assert waiting.result(10) is False


def test_a_waiting_thread_wakes_when_the_event_is_set() -> None:
    clock, event = FakeClock(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(clock.wait, event, 100)
        event.set()

        assert waiting.result(10) is True
    assert clock.monotonic_ms() == 0.0


def test_a_wait_that_nobody_ends_fails_the_test() -> None:
    with pytest.raises(TimeoutError, match="nobody"):
        FakeClock(patience_s=0.01).wait(threading.Event(), 5)
