"""The kernels of filters, in two forms with one signature: `plain` and `compiled`.

As with the kernels of `format`, `plain` is the reference that can be read, and `compiled` is numba. A filter
uses the plain ones until it is worth loading the others, in a thread.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Final

from orbitmq.sql92.fast.plain import KERNELS as PLAIN
from orbitmq.sql92.fast.program import FilterKernels

logger = logging.getLogger(__name__)

PLAIN_MESSAGES: Final = 5_000
"""So many messages are asked about in the time that loading the compiled kernels takes away from others."""


def plain() -> FilterKernels:
    """Return the reference kernels; ready at once."""
    return PLAIN


def compiled() -> FilterKernels:
    """Return the compiled kernels; the first call imports numba and loads its cache."""
    from orbitmq.sql92.fast.compiled import KERNELS

    return KERNELS


def twins() -> Sequence[FilterKernels]:
    """Return both, for tests that compare them."""
    return (plain(), compiled())


class KernelChoice:
    """Which kernels a process uses. Any thread may ask."""

    def __init__(self, plain_messages: int = PLAIN_MESSAGES) -> None:
        self._lock = threading.Lock()
        self._left = plain_messages
        self._in_use = plain()
        self._loading: threading.Thread | None = None

    def for_messages(self, count: int) -> FilterKernels:
        """Return the kernels for so many messages; after many the compiled ones, once they are there."""
        if self._loading is None:
            self._count(count)
        return self._in_use

    def wait(self) -> None:
        """Load the compiled kernels if nobody has yet, and wait until they are in use."""
        self._count(self._left)
        if self._loading is not None:
            self._loading.join()

    def _count(self, count: int) -> None:
        with self._lock:
            self._left -= count
            if self._left > 0 or self._loading is not None:
                return
            self._loading = threading.Thread(target=self._load, name="orbitmq-filters", daemon=True)
            self._loading.start()

    def _load(self) -> None:
        try:
            self._in_use = compiled()
        except Exception:  # the plain ones do the same, slowly
            logger.exception("compiled kernels of filters: not loaded, the plain ones stay")


CHOICE: Final = KernelChoice()
