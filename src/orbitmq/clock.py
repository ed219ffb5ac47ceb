"""The time: everything that asks for it or waits for it goes through a `Clock`, so tests can own it."""

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What the rest of the code knows of time."""

    def now_ms(self) -> int:
        """Return the wall clock in epoch milliseconds."""

    def monotonic_ms(self) -> float:
        """Return a clock for durations; it never goes backwards."""

    def sleep(self, milliseconds: float) -> None:
        """Let time pass."""

    def wait(self, event: threading.Event, milliseconds: float) -> bool:
        """Wait for the event at most so long; return whether it is set."""


class SystemClock:
    """The machine's own clock. Any thread may use it."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic_ns() / 1_000_000

    def sleep(self, milliseconds: float) -> None:
        time.sleep(milliseconds / 1000)

    def wait(self, event: threading.Event, milliseconds: float) -> bool:
        return event.wait(milliseconds / 1000)
