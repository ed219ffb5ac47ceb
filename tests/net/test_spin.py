"""A loop stays awake while reads are close together, and only then."""

import asyncio

import pytest

from async_run import run_async, until
from orbitmq.net import spin
from orbitmq.net.spin import Spin


class Loop:
    """Counts what is to be done in the next turn."""

    def __init__(self) -> None:
        self.ready: list[object] = []

    def call_soon(self, act: object) -> None:
        self.ready.append(act)


class Time:
    """What the clock shows."""

    now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(spin.time, "perf_counter", lambda: clock.now)
    return clock


def after_reads(clock: Time, apart_s: float) -> tuple[Loop, Spin]:
    """Return a loop and its spin after three reads so far apart."""
    loop = Loop()
    one = Spin(loop)  # type: ignore[arg-type]
    for _ in range(3):
        one.after_read()
        clock.now += apart_s
    return loop, one


def test_reads_that_are_far_apart_let_the_loop_sleep(clock: Time) -> None:
    loop, _ = after_reads(clock, 1)
    assert loop.ready == []


def test_reads_that_are_close_make_it_poll_for_a_moment(clock: Time) -> None:
    loop, one = after_reads(clock, spin.NEAR_S / 2)
    assert len(loop.ready) == 1  # not one for each read
    turn = loop.ready.pop()
    turn()  # type: ignore[operator]
    assert loop.ready == [turn]
    clock.now += spin.NEAR_S
    loop.ready.pop()()  # type: ignore[operator]
    assert loop.ready == []
    one.after_read()
    clock.now += spin.NEAR_S / 2
    one.after_read()
    assert len(loop.ready) == 1  # and again


def test_a_real_loop_comes_to_rest() -> None:
    async def main() -> bool:
        loop = asyncio.get_running_loop()
        one = Spin(loop)
        one.after_read()
        one.after_read()
        was_polling = one._is_polling
        await until(lambda: not one._is_polling)
        return was_polling

    assert run_async(main) is True
