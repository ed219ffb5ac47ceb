"""Run a coroutine function of a test on the loop that the servers use."""

import asyncio
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
