"""A clock that stands still until a test moves it."""

import threading

from orbitmq.clock import Clock


class FakeClock(Clock):
    """Time under a test's control. Any thread may use it.

    `sleep` moves the time itself and returns at once: a test with one thread (`background=False`) never
    waits for real. `wait` returns at once when the event is set, or when the milliseconds are 0;
    otherwise it blocks until another thread sets the event or advances the clock past its end. A
    thread that waits alone, with nobody to advance the clock, would wait for ever, so after
    `patience_s` real seconds it fails the test instead.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000, *, patience_s: float = 30.0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0.0
        self._patience_s = patience_s
        self._moved = threading.Condition()  # guards the two times; notified when they change

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def advance(self, milliseconds: float) -> None:
        """Let time pass; whoever waits for a moment up to the new time wakes up."""
        if milliseconds < 0:
            raise ValueError(
                "time does not run backwards; use set_now_ms for a wall clock that jumps"
            )
        with self._moved:
            self._monotonic_ms += milliseconds
            self._now_ms += round(milliseconds)
            self._moved.notify_all()

    def set_now_ms(self, now_ms: int) -> None:
        """Move the wall clock only, backwards too, as an administrator or a time server might."""
        with self._moved:
            self._now_ms = now_ms

    def sleep(self, milliseconds: float) -> None:
        self.advance(max(0.0, milliseconds))

    def wait(self, event: threading.Event, milliseconds: float) -> bool:
        if event.is_set() or milliseconds <= 0:
            return event.is_set()
        with self._moved:
            end_ms = self._monotonic_ms + milliseconds
            left_s = self._patience_s
            while not event.is_set() and self._monotonic_ms < end_ms:
                if left_s <= 0:
                    raise TimeoutError("nobody advanced the fake clock or set the event")
                # An event does not notify the condition, so look for it now and then.
                self._moved.wait(_LOOK_S)
                left_s -= _LOOK_S
        return event.is_set()


_LOOK_S = 0.002
