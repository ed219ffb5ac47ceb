"""Lines: those who wait for the same thing go on in the order in which they came."""

from collections.abc import Callable

Step = Callable[[], None]


class Lines:
    """Lines by name. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Step]] = {}

    def joined(self, name: str, step: Step) -> bool:
        """Stand behind those who wait already; False if nobody does."""
        line = self._waiting.get(name)
        if line is None:
            return False
        line.append(step)
        return True

    def begin(self, name: str) -> None:
        """Wait as the first; `end` has to follow, however the waiting ends."""
        self._waiting.setdefault(name, [])

    def end(self, name: str) -> None:
        """Let everybody go on, in order. One of them may begin a new line; the rest then joins it."""
        for step in self._waiting.pop(name, []):
            step()
