"""Which files are mapped right now, and how many bytes of address space they take."""

import mmap
import weakref


class Mappings:
    """The mappings that a disk made and that are not gone yet. Any thread may use it.

    A mapping whose owner has let go of it lives on while a reader holds a view of it, and counts so long.
    """

    def __init__(self) -> None:
        self._alive: dict[int, weakref.ref[mmap.mmap]] = {}

    def note(self, mapping: mmap.mmap) -> None:
        """Count a new mapping."""
        # Single steps of a dict, no lock: the end of an object can be told in the middle of anything.
        key = id(mapping)
        self._alive[key] = weakref.ref(mapping, lambda _: self._alive.pop(key, None))

    def total(self) -> tuple[int, int]:
        """Return how many files are mapped, and their bytes together."""
        sizes = [size for ref in list(self._alive.values()) if (size := _mapped_bytes(ref()))]
        return len(sizes), sum(sizes)


def _mapped_bytes(mapping: mmap.mmap | None) -> int:
    try:
        return len(mapping) if mapping is not None else 0
    except ValueError:  # it was closed
        return 0
