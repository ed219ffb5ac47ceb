"""How many bytes this process has fetched from object stores; without the package that fetches them."""

from collections import Counter
from typing import Final

_FETCHED: Final = Counter[str]()


def fetched_bytes() -> int:
    """Return the bytes of all ranges of objects that were fetched so far."""
    return _FETCHED["bytes"]


def note_fetched(count: int) -> None:
    """Count bytes that came."""
    _FETCHED["bytes"] += count
