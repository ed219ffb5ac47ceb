"""The one thread beside: order, limits and errors."""

import threading

import pytest

from orbitmq.store.aside import WAITING_MAX, Aside


def test_everything_is_done_in_order_when_the_context_ends():
    done = []
    with Aside("test") as aside:
        for number in range(100):
            aside.call(done.append, number)
    assert done == list(range(100))


def test_it_is_another_thread():
    names = []
    with Aside("test") as aside:
        aside.call(lambda: names.append(threading.current_thread().name))
    assert names[0].startswith("test")


def test_an_error_comes_out_at_the_end_at_the_latest():
    def fail() -> None:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"), Aside("test") as aside:
        aside.call(fail)


def test_an_error_comes_out_of_a_later_call():
    def fail() -> None:
        raise OSError("no disk")

    calls = 0
    with pytest.raises(OSError, match="no disk"), Aside("test") as aside:  # noqa: PT012
        aside.call(fail)
        for _ in range(WAITING_MAX):
            aside.call(int)
            calls += 1
    assert calls < WAITING_MAX


def test_after_an_error_of_the_caller_what_waits_is_dropped():
    go_on, begun = threading.Event(), threading.Event()
    done = []

    def first() -> None:
        begun.set()
        assert go_on.wait(20)
        done.append("first")

    def break_off() -> None:
        with Aside("test") as aside:
            aside.call(first)
            aside.call(done.append, "second")
            assert begun.wait(20)
            threading.Timer(0.05, go_on.set).start()
            raise ValueError("the caller's own")

    with pytest.raises(ValueError, match="own"):
        break_off()
    assert done == ["first"]
