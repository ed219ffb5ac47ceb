"""ByteRate: how many bytes went over a connection in the last whole second, counted without a thread."""

from typing import Final

from orbitmq.clock import Clock
from orbitmq.units import SECOND_MS

_NEVER: Final = -2


class ByteRate:
    """Bytes by seconds. One thread adds; what another one reads may be a moment old."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second, self._bytes, self._before = _NEVER, 0, 0

    def add(self, count: int) -> None:
        second = self._now()
        if second != self._second:
            self._before = self._bytes if second == self._second + 1 else 0
            self._second, self._bytes = second, 0
        self._bytes += count

    @property
    def per_second(self) -> int:
        """Bytes of the last whole second, as RocketMQ tells them."""
        passed = self._now() - self._second
        return {0: self._before, 1: self._bytes}.get(passed, 0)

    def _now(self) -> int:
        return int(self._clock.monotonic_ms() // SECOND_MS)
