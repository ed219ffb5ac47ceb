"""A background thread that does one thing again and again: when it is time, or when it is woken.

And when a round of flush is due, whether a thread asks or a `tick`.
"""

import logging
import threading
from collections.abc import Callable

from orbitmq.clock import Clock
from orbitmq.errors import StoreError

_log = logging.getLogger(__name__)


class Service:
    """Calls `act` every interval and at each `wake`. Any thread may wake and stop it.

    A StoreError of `act` was already told to the store's flags by whoever raised it: here it is logged
    and the rounds go on. Any other exception is a bug: it goes to `on_bug`, and the service ends.
    """

    def __init__(
        self,
        name: str,
        act: Callable[[], object],
        *,
        interval_ms: float,
        clock: Clock,
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self.name = name
        self._act, self.interval_ms, self._clock, self._on_bug = act, interval_ms, clock, on_bug
        self._event = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"orbitmq-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def state(self) -> str:
        return thread_state(self._thread)

    def wake(self) -> None:
        """Ask for a round as soon as possible; cheap when one was asked for already."""
        if not self._event.is_set():
            self._event.set()

    def stop(self) -> None:
        """End the thread after the round that is under way."""
        self._stopping = True
        self._event.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            self._clock.wait(self._event, self.interval_ms)
            self._event.clear()
            if self._stopping:
                return
            try:
                self._act()
            except StoreError as error:
                _log.warning("%s: %s", self.name, error)
            except Exception as error:
                _log.exception("%s: stopped", self.name)
                self._on_bug(self.name, error)
                return


def thread_state(thread: threading.Thread | None) -> str:
    """Return what the list of services tells of a thread."""
    if thread is None or thread.ident is None:
        return "not started"
    return "running" if thread.is_alive() else "stopped"


class PageSchedule:
    """Decides when the next round is due and how thorough it is. Pure; times are monotonic."""

    def __init__(
        self, now_ms: float, interval_ms: float, least_pages: int, thorough_ms: float
    ) -> None:
        self.change(interval_ms, least_pages, thorough_ms)
        self._round_at_ms = self._thorough_at_ms = now_ms

    def change(self, interval_ms: float, least_pages: int, thorough_ms: float) -> None:
        """Decide by these from the next round on."""
        self._interval_ms, self._thorough_ms = interval_ms, thorough_ms
        self._least_pages = least_pages

    def due(self, now_ms: float) -> int | None:
        """Return the least number of dirty pages for a round now (0: everything), None if it is too early."""
        if now_ms < self._round_at_ms + self._interval_ms:
            return None
        self._round_at_ms = now_ms
        return self.pages(now_ms)

    def pages(self, now_ms: float) -> int:
        """Return the least number of dirty pages for a round that takes place now in any case."""
        if now_ms - self._thorough_at_ms >= self._thorough_ms:
            self._thorough_at_ms = now_ms
            return 0
        return self._least_pages

    def moved(self, now_ms: float) -> None:
        """Count the thorough interval from here: something was written (commit thread)."""
        self._thorough_at_ms = now_ms
