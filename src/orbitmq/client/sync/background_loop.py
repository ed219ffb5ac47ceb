"""BackgroundLoop: the event loop on which synchronous clients run, in a thread of its own.

All synchronous clients of a process share one. It starts with the first of them and ends with the last.
"""

import asyncio
import atexit
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from orbitmq.errors import ClientClosedError
from orbitmq.net.loop import new_event_loop

T = TypeVar("T")


class BackgroundLoop:
    """One loop in one thread. Any thread may call its methods."""

    def __init__(self) -> None:
        self.loop = new_event_loop()
        self._calls: deque[Callable[[], None]] = deque()
        self._woken = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="orbitmq-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            pending = asyncio.all_tasks(self.loop)
            for task in pending:
                task.cancel()
            if pending:
                self.loop.run_until_complete(asyncio.wait(pending, timeout=1))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self._ended = True
            self._work_off()  # whoever called until now gets its answer; later calls see the flag
            asyncio.set_event_loop(None)
            self.loop.close()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine in the loop and wait for its result. Not from the loop's own thread."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "a synchronous client was called from the client thread, where it would wait for"
                " itself: use the async client there, or another thread"
            )
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the loop soon. Many calls together wake the loop once."""
        self._calls.append(function)
        if self._ended:
            raise ClientClosedError("the client thread has ended: open the client again")
        if not self._woken:
            self._woken = True
            # A loop that ends at this moment works off what was appended before it closes.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._work_off)

    def _work_off(self) -> None:
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
            self.loop.call_soon_threadsafe(self.loop.stop)
            if threading.current_thread() is not self._thread:
                self._thread.join()


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
