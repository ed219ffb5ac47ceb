"""Background threads: rounds by time and by waking, and what ends them."""

import threading

from orbitmq.clock import SystemClock
from orbitmq.errors import StoreError
from orbitmq.store.service import Service
from orbitmq.testing.fake_clock import FakeClock


class Rounds:
    """Counts rounds and can fail in one of them."""

    def __init__(self) -> None:
        self.count = 0
        self.done = threading.Semaphore(0)
        self.error: Exception | None = None
        self.bugs: list[str] = []

    def __call__(self) -> None:
        self.count += 1
        self.done.release()
        if self.error is not None:
            raise self.error

    def service(self, clock, interval_ms: float) -> Service:
        def note(name: str, error: Exception) -> None:
            self.bugs.append(f"{name}: {error}")
            self.done.release()

        return Service("test", self, interval_ms=interval_ms, clock=clock, on_bug=note)

    def wait(self) -> None:
        assert self.done.acquire(timeout=20)


def test_rounds_come_at_each_interval():
    clock, rounds = FakeClock(), Rounds()
    service = rounds.service(clock, 100)
    service.start()

    for expected in (1, 2, 3):
        for _ in range(3000):
            if rounds.done.acquire(timeout=0.01):
                break
            clock.advance(100)  # until the thread has begun to wait and sees the time pass
        assert rounds.count == expected
    service.stop()


def test_waking_brings_a_round_at_once():
    rounds = Rounds()
    service = rounds.service(SystemClock(), 600_000)
    service.start()

    service.wake()
    rounds.wait()
    service.wake()
    rounds.wait()
    service.stop()

    assert rounds.count == 2


def test_a_call_during_a_round_brings_another_round():
    rounds = Rounds()
    service = rounds.service(SystemClock(), 600_000)

    def act() -> None:
        rounds()
        if rounds.count < 3:
            service.wake()

    service._act = act
    service.start()

    service.wake()

    for _ in range(3):
        rounds.wait()
    service.stop()


def test_an_error_of_the_store_does_not_end_the_rounds(caplog):
    rounds = Rounds()
    rounds.error = StoreError("somewhere", "it failed", "Look.")
    service = rounds.service(SystemClock(), 600_000)
    service.start()

    for _ in range(3):
        service.wake()
        rounds.wait()
    service.stop()

    assert rounds.count == 3
    assert rounds.bugs == []
    assert "it failed" in caplog.text


def test_a_bug_ends_the_service_and_is_told():
    rounds = Rounds()
    rounds.error = ZeroDivisionError("oops")
    service = rounds.service(SystemClock(), 600_000)
    service.start()

    service.wake()
    rounds.wait()
    rounds.wait()

    assert rounds.bugs == ["test: oops"]
    service.stop()


def test_stopping_a_service_that_never_ran_is_harmless():
    rounds = Rounds()

    rounds.service(SystemClock(), 1).stop()

    assert rounds.bugs == []
