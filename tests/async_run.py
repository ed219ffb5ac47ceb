"""Run a coroutine function of a test on the loop that the servers use, and wait there."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from orbitmq.net.loop import run

T = TypeVar("T")


def run_async(main: Callable[[], Coroutine[Any, Any, T]], *, seconds: float = 30) -> T:
    """Run it to its end; a test that hangs fails after so many seconds."""

    async def limited() -> T:
        async with asyncio.timeout(seconds):
            return await main()

    return run(limited())


async def until(condition: Callable[[], Any], seconds: float = 20) -> None:
    """Wait until a condition holds; it may be a coroutine function."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return
        if time.monotonic() > end:
            raise AssertionError("the condition did not come true in time")
        await asyncio.sleep(0.01)
