"""OwnLease: until when this broker may say that it is the primary, by its own clock.

The coordinator counts from when it got the request to keep the lease, which was after it was sent. So
the lease is counted from before the request was sent, less a tenth: clocks do not run alike. Whoever asks
looks at the clock at that moment. No timer decides: a process that was paused has none that came in time.
"""

from typing import Final

from orbitmq.clock import Clock

MARGIN: Final = 0.1
"""This share of a lease is not used."""


class OwnLease:
    """One lease after the other. Belongs to the event loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.id = 0  # 0: there is none
        self.is_taken = False  # the coordinator holds us as the primary by it
        self._until_ms = 0.0

    def begin(self, lease: int, asked_ms: float, ms: int) -> None:
        """Count a new lease of so long that was asked for at that time."""
        self.id, self.is_taken = lease, False
        self.kept(asked_ms, ms)

    def kept(self, asked_ms: float, ms: int) -> None:
        """Count it anew from when that was asked for."""
        self._until_ms = asked_ms + ms * (1 - MARGIN)

    def end(self) -> None:
        self.id, self.is_taken, self._until_ms = 0, False, 0.0

    @property
    def left_ms(self) -> float:
        """How long it lasts from now on; 0: it has ended, or may have."""
        return max(0.0, self._until_ms - self._clock.monotonic_ms()) if self.is_taken else 0.0

    @property
    def is_valid(self) -> bool:
        return self.is_taken and self._clock.monotonic_ms() < self._until_ms
