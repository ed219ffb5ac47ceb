"""How long records take from append to dispatched."""

import threading
from collections.abc import Sequence
from typing import Final

import numpy as np

from orbitmq.format.columns import Ints

SAMPLE: Final = 10_000
"""The figures are those of so many records, the newest ones."""


class DispatchTimes:
    """Counts and times of a job. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the rest
        self._sample: Ints = np.zeros(0, dtype=np.int64)
        self.records = 0
        self.batches = 0

    def add(self, store_ms: Sequence[Ints], now_ms: int) -> None:
        """Note a batch: when its records were appended, and that they are dispatched now."""
        with self._lock:
            self.batches += 1
            self.records += sum(len(times) for times in store_ms)
            taken = [now_ms - times for times in store_ms]
            self._sample = np.concatenate([self._sample, *taken])[-SAMPLE:]

    def percentiles(self) -> tuple[float, float]:
        """Return p50 and p99 in ms; 0 before the first record."""
        with self._lock:
            if not len(self._sample):
                return 0.0, 0.0
            median, slow = np.percentile(self._sample, [50, 99])
            return float(median), float(slow)
