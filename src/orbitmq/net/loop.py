"""The event loop: uvloop where it is installed, asyncio's own elsewhere."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

SWITCH_SECONDS: Final = 0.0005
"""How long a thread of a server may keep the interpreter while the loop has work; Python's own is 5 ms."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop; the caller closes it."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def run_server(main: Coroutine[Any, Any, T]) -> T:
    """Run a server's coroutine as `run` does; the process is the server's, so answers come first."""
    sys.setswitchinterval(SWITCH_SECONDS)
    return run(main)
