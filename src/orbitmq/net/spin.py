"""Busy poll for a moment while requests follow each other closely.

A loop that sleeps until the next request has its processor put to sleep and woken again, and so has its
peer: on a virtual machine that costs more than the request itself, in time and in work. So a loop whose
last two reads were close together looks for the next one for as long before it sleeps. One that is asked
rarely never does.
"""

import asyncio
import time
from typing import Final

NEAR_S: Final = 200e-6
"""Reads that are no further apart are close; so long the loop busy polls after one."""


class Spin:
    """Makes one loop busy poll. Belongs to its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._read_at = 0.0
        self._is_polling = False

    def after_read(self) -> None:
        """Say that a read was handled."""
        now = time.perf_counter()
        is_near = now - self._read_at < NEAR_S
        self._read_at = now
        if is_near and not self._is_polling:
            self._is_polling = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        # Each turn of the loop looks at the sockets, and does not wait while there is another turn to do.
        if time.perf_counter() - self._read_at < NEAR_S:
            self._loop.call_soon(self._turn)
        else:
            self._is_polling = False
