"""BackgroundLoop: the event loop on which synchronous clients run. All of a process share one.

Who runs it? A thread of its own, as long as nobody waits for anything. A thread that waits for an answer
runs the loop itself meanwhile, if it is the only one that waits: the answer is then handled where it is
wanted, and no thread has to be woken, which costs more than the whole request (ADR 14).

- Who holds the seat runs the loop. Everything that belongs to the loop's thread belongs to the holder.
- A caller that waits alone takes the seat, and the background thread leaves it when it is claimed. After a
  millisecond in which nobody had it the background thread runs the loop again.
- Where several wait, the background thread serves them all.
- Who leaves the seat wakes the background thread if others wait, or if it had the seat for long. For
  turns that are short the background thread looks once a millisecond.
- A caller in the seat busy polls for a moment before it sleeps, as long as answers come that soon.
"""

import asyncio
import atexit
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from orbitmq.client.sync.light_future import LightFuture
from orbitmq.errors import ClientClosedError
from orbitmq.net.loop import new_event_loop

T = TypeVar("T")

Call = Callable[[], object]

PARK_S: Final = 0.001
"""So long the loop may be without anybody who runs it; a turn that takes longer ends with a wake-up."""
PARK_S_MAX: Final = 0.05
POLL_S: Final = 0.0002
"""So long a caller in the seat looks for its answer before it sleeps."""
POLL_PAUSE_MAX: Final = 1023
"""After polls in vain so many turns at most sleep at once."""
CROWD_WAITS: Final = 64
"""After two threads waited at once, the background thread runs the loop for so many waits."""


class BackgroundLoop:
    """One loop and one thread. Any thread may call its methods."""

    def __init__(self) -> None:
        self.loop = new_event_loop()
        self._calls: deque[Call] = deque()
        self._woken = False
        self._stopping = False
        self._ended = False
        self._seat = threading.Lock()
        self._is_claimed = False  # a lone caller waits until the background thread leaves it
        self._holder = 0  # which thread has the seat and runs the loop
        self._awaited: LightFuture[Any] | None = None  # what the holder waits for
        self._waiters: set[LightFuture[Any]] = set()  # all that threads wait for
        self._crowd = 0  # so many waits the background thread serves, for there are several callers
        self._turns = 0  # how often callers had the seat
        self._poll_until = 0.0
        self._poll_pause = self._sleepy_turns = (
            0  # turns without busy poll: how many next time, and left
        )
        self._is_polling = False
        self._bell = threading.Lock()  # released: the background thread is wanted
        self._bell.acquire()
        self._thread = threading.Thread(target=self._serve, name="orbitmq-client", daemon=True)
        self._thread.start()

    # --- the background thread ---

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._stopping:
            with self._seat:
                if not self._stopping:
                    self._hold()
            if self._is_claimed or not self._is_wanted():
                self._park()
        with self._seat:
            self._end()

    def _is_wanted(self) -> bool:
        """Return whether a thread waits for something that is not done."""
        return any(not future.done() for future in tuple(self._waiters))

    def _park(self) -> None:
        """Wait until callers no longer run the loop."""
        pause = PARK_S
        while not self._stopping:
            turns = self._turns
            if self._bell.acquire(timeout=pause):
                return
            if self._turns != turns:
                pause = PARK_S
            elif self._seat.locked():
                pause = min(2 * pause, PARK_S_MAX)  # it rings when it leaves
            else:
                return

    def _end(self) -> None:
        loop = self.loop
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            self._complete(asyncio.wait(pending, timeout=1))
        self._complete(loop.shutdown_asyncgens())
        self._ended = True
        self._drain()  # whoever called until now gets its answer; later calls see the flag
        asyncio.set_event_loop(None)
        loop.close()

    def _complete(self, work: Coroutine[Any, Any, object]) -> None:
        """Run the loop until this is done, whatever earlier calls of stop() are still in it."""
        task = self.loop.create_task(work)
        task.add_done_callback(lambda done: self.loop.stop())
        while not task.done():
            self.loop.run_forever()

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # it rings already
            self._bell.release()

    # --- running the loop ---

    def _hold(self) -> None:
        """Run the loop until something stops it; the caller has the seat."""
        self._holder = threading.get_ident()
        try:
            # Holder first, then the calls; `call` does it the other way round, so nobody is overlooked.
            if self._calls:
                self.loop.call_soon(self._drain)
            self.loop.run_forever()
        finally:
            self._holder = 0

    def run_until(self, future: LightFuture[Any], timeout_s: float | None) -> None:
        """Wait for a future, running the loop if nobody else does. Returns early after the time."""
        if self._holder == threading.get_ident():
            raise RuntimeError(
                "a synchronous client was called from the client thread, where it would wait for"
                " itself: use the async client there, or another thread"
            )
        until = None if timeout_s is None else time.monotonic() + timeout_s
        waiters = self._waiters
        waiters.add(future)
        self._crowd = CROWD_WAITS if len(waiters) > 1 else max(self._crowd - 1, 0)
        try:
            while not future.done():
                left_s = None if until is None else until - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return
                if self._may_hold() and (self._seat.acquire(blocking=False) or self._claim()):
                    self._take_turn(future, left_s)
                else:
                    if not self._holder:
                        self._ring()
                    future.wait_beside(left_s)
        finally:
            waiters.discard(future)

    def _may_hold(self) -> bool:
        # A thread that runs a loop already cannot run another one inside.
        is_free = not self._crowd and not self._stopping
        return is_free and asyncio._get_running_loop() is None

    def _claim(self) -> bool:
        """Have the background thread leave the seat; return whether it could be had."""
        if self._holder != self._thread.ident:
            return False
        self._is_claimed = True
        self._stop_holder()
        has_seat = self._seat.acquire(timeout=PARK_S)
        self._is_claimed = False
        return has_seat

    def _take_turn(self, future: LightFuture[Any], timeout_s: float | None) -> None:
        """Run the loop until the future is done; the caller has the seat, and gives it back."""
        started = time.monotonic()
        timer = None if timeout_s is None else self.loop.call_later(timeout_s, self.loop.stop)
        self._awaited = future
        self._start_poll(started)
        try:
            if not future.done():
                self._hold()
        finally:
            self._awaited = None
            if timer is not None:
                timer.cancel()
            took_s = time.monotonic() - started
            self._judge_poll(took_s)
            self._turns += 1
            self._seat.release()
            if took_s > PARK_S or self._is_wanted():
                self._ring()

    def _start_poll(self, now: float) -> None:
        if self._sleepy_turns:
            self._sleepy_turns -= 1
            self._poll_until = 0.0
            return
        self._poll_until = now + POLL_S
        if not self._is_polling:
            self._is_polling = True
            self.loop.call_soon(self._poll)

    def _poll(self) -> None:
        # Each turn of the loop looks at the sockets, and does not wait while there is more to call.
        if self._awaited is not None and time.monotonic() < self._poll_until:
            self.loop.call_soon(self._poll)
        else:
            self._is_polling = False

    def _judge_poll(self, took_s: float) -> None:
        """Poll no more for some turns when the answer took longer, each time for more of them."""
        if self._poll_until == 0.0:
            return
        if took_s <= POLL_S:
            self._poll_pause = 0
        else:
            self._poll_pause = min(2 * self._poll_pause + 1, POLL_PAUSE_MAX)
            self._sleepy_turns = self._poll_pause

    def on_done(self, future: LightFuture[Any]) -> None:
        """End the turn of whoever waits for this future; see `Runner`."""
        if future is self._awaited:
            if self._holder == threading.get_ident():
                self.loop.stop()
            else:
                self._stop_holder()

    def _stop_holder(self) -> None:
        """Have whoever runs the loop leave it; from any thread."""

        def stop() -> None:
            if self._holder:  # not the run that ends the loop
                self.loop.stop()

        with contextlib.suppress(RuntimeError):  # closed meanwhile: nobody runs it any more
            self.loop.call_soon_threadsafe(stop)

    # --- what clients call ---

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine in the loop and wait for its result. Not from a function that the loop calls."""
        outcome: LightFuture[T] = LightFuture(self)
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            task = self.loop.create_task(work)
            tasks.append(task)
            task.add_done_callback(lambda done: _copy_result(done, outcome))

        try:
            return self.call_and_wait(start, outcome, timeout_s)
        except BaseException:
            if not tasks:
                with contextlib.suppress(ValueError):
                    self._calls.remove(start)
                work.close()
            elif not outcome.done():
                self.call(tasks[0].cancel)
            raise

    def call_and_wait(
        self, function: Call, outcome: LightFuture[T], timeout_s: float | None = None
    ) -> T:
        """Call a function in the loop and wait for the future that it will finish."""
        self._put(function)
        return outcome.result(timeout_s)

    def call(self, function: Call) -> None:
        """Call a function in the loop soon. Many calls together wake the loop once."""
        self._put(function)
        if not self._holder:
            self._ring()

    def _put(self, function: Call) -> None:
        self._calls.append(function)
        if self._ended:
            raise ClientClosedError("the client thread has ended: open the client again")
        if self._holder and not self._woken:
            self._woken = True
            # A loop that ends at this moment drains what was appended before it closes.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        # First the flag: what is appended from now on wakes the loop again, or is seen below.
        self._woken = False
        calls = self._calls
        while calls:
            calls.popleft()()

    @property
    def waiting_count(self) -> int:
        """Calls that the loop has not seen yet."""
        return len(self._calls)

    def stop(self) -> None:
        """End the thread and close the loop."""
        if self._thread.is_alive():
            self._stopping = True
            self._ring()
            self._stop_holder()
            if threading.current_thread() is not self._thread:
                self._thread.join()


def _copy_result(done: "asyncio.Task[T]", outcome: LightFuture[T]) -> None:
    if outcome.done():
        if not done.cancelled():
            done.exception()  # seen, though nobody wants it any more
    elif done.cancelled():
        outcome.cancel()
    elif (failure := done.exception()) is not None:
        outcome.set_exception(failure)
    else:
        outcome.set_result(done.result())


class SharedLoop:
    """The loop of this process and how many clients use it. Any thread may use it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew: a child process has none of its parent's threads."""
        self._lock = threading.Lock()  # guards the two below
        self._loop: BackgroundLoop | None = None
        self._holders = 0

    def acquire(self) -> BackgroundLoop:
        with self._lock:
            if self._loop is None:
                self._loop = BackgroundLoop()
            self._holders += 1
            return self._loop

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders > 0 or self._loop is None:
                return
            ended, self._loop = self._loop, None
        ended.stop()

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.stop()


_shared: Final = SharedLoop()
os.register_at_fork(after_in_child=_shared.forget)
atexit.register(_shared.stop)


def acquire_loop() -> BackgroundLoop:
    """Return the running loop of this process; `release_loop` it when done."""
    return _shared.acquire()


def release_loop() -> None:
    """Let go of the loop; the last one to do so ends its thread."""
    _shared.release()
