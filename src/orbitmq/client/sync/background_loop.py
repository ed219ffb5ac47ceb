"""BackgroundLoop: the event loop on which synchronous clients run. All of a process share one.

Who runs it? A thread that waits for a result, if it is the only one that waits: the answer is then handled
where it is wanted, and no other thread has to be woken, which costs more than the whole request (ADR 14).
A thread of its own, the background thread, runs it whenever nobody waits, or several do. (The pattern is
known as leader/followers.)

- Who holds the seat runs the loop. Everything that belongs to the loop's thread belongs to the holder.
- The background thread leaves the seat when what a lone caller waited for is done, for the next one will
  soon follow. After a millisecond in which nobody had it the background thread runs the loop again.
- Who leaves the seat wakes the background thread if others wait, or if it had the seat for long.
- A caller in the seat busy polls for a moment before it sleeps, if the last answer came that soon.
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

T = TypeVar("T")

Call = Callable[[], object]

PARK_S: Final = 0.001
"""So long the loop may be without anybody who runs it; a turn that takes longer ends with a wake-up."""
PARK_S_MAX: Final = 0.05
POLL_S: Final = 0.0003
"""So long a caller in the seat looks for its answer before it sleeps."""
CROWD_WAITS: Final = 64
"""After two threads waited at once, the background thread runs the loop for so many waits."""


class BackgroundLoop:
    """One loop and one thread. Any thread may call its methods."""

    def __init__(self) -> None:
        # Not uvloop, which sets up signals anew whenever the main thread begins to run it: 20 us each time.
        self.loop = asyncio.new_event_loop()
        self._calls: deque[Call] = deque()
        self._woken = False
        self._stopping = False
        self._ended = False
        self._seat = threading.Lock()
        self._holder = 0  # which thread has the seat and runs the loop
        self._waiters: set[LightFuture[Any]] = set()  # all that threads wait for
        self._crowd = 0  # so many waits the background thread serves, for there are several callers
        self._turns = 0  # how often callers had the seat
        self._called_at = 0.0  # when the last turn began, or the last call was done since
        self._may_poll = False
        self._is_polling = False
        self._is_quick = False  # the last answer came while a caller may poll
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
            if not self._is_wanted():
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
                if self._may_hold() and self._seat.acquire(blocking=False):
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

    def _take_turn(self, future: LightFuture[Any], timeout_s: float | None) -> None:
        """Run the loop until the future is done; the caller has the seat, and gives it back."""
        started = self._called_at = time.monotonic()
        timer = None if timeout_s is None else self.loop.call_later(timeout_s, self.loop.stop)
        self._may_poll = self._is_quick
        if self._may_poll and not self._is_polling:  # else what the last turn left goes on
            self._poll()
        try:
            if not future.done():
                self._hold()
        finally:
            self._may_poll = False
            if timer is not None:
                timer.cancel()
            ended = time.monotonic()
            # What was sent in this turn took its time too: the answer could not come before.
            self._is_quick = ended - self._called_at <= POLL_S
            self._turns += 1
            self._seat.release()
            if ended - started > PARK_S or self._is_wanted():
                self._ring()

    def _poll(self) -> None:
        # Each turn of the loop looks at the sockets, and does not wait while there is more to call.
        self._is_polling = self._may_poll and time.monotonic() - self._called_at < POLL_S
        if self._is_polling:
            self.loop.call_soon(self._poll)

    def on_done(self, future: LightFuture[Any]) -> None:
        """End the run of the loop if it was for this future; see `Runner`."""
        if future in self._waiters:
            if self._holder != threading.get_ident():
                self._stop_holder()
            elif self._holder != self._thread.ident or not self._crowd:
                self.loop.stop()

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
            self.call(start)
            return outcome.result(timeout_s)
        except BaseException:
            if not tasks:
                with contextlib.suppress(ValueError):
                    self._calls.remove(start)
                work.close()
            elif not outcome.done():
                self.call(tasks[0].cancel)
            raise

    def call(self, function: Call) -> None:
        """Call a function in the loop soon. Many calls together wake the loop once.

        While nobody has the seat that is when the next caller waits, at most a millisecond later.
        """
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
        self._called_at = time.monotonic()

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
