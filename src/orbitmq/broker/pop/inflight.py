"""InFlight: how many messages of each queue a group has popped and not acknowledged."""

from orbitmq.broker.pop.progress import QueueKey


class InFlight:
    """Counts since the broker's start; acks of earlier pops do not count. Belongs to the loop's thread."""

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._counts: dict[QueueKey, int] = {}

    def count(self, key: QueueKey) -> int:
        return self._counts.get(key, 0)

    def add(self, key: QueueKey, messages: int) -> None:
        self._counts[key] = self._counts.get(key, 0) + messages

    def remove(self, key: QueueKey, messages: int, pop_ms: int) -> None:
        """Count messages as done: acknowledged, or on their way to the retry topic."""
        if pop_ms < self._start_ms:
            return
        left = self._counts.get(key, 0) - messages
        if left > 0:
            self._counts[key] = left
        else:
            self._counts.pop(key, None)

    def clear(self, key: QueueKey) -> None:
        self._counts.pop(key, None)
