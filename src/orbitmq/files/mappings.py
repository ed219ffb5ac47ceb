"""Memory from the operating system: which files are mapped right now, and mappings without a file."""

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


def private_memory(size: int) -> mmap.mmap:
    """Return zeros that cost nothing until they are written to.

    `np.zeros` promises neither: the allocator may use memory again that it has to fill, and NumPy asks for
    huge pages.
    """
    # Without the flags it is memory to share, which is counted elsewhere.
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _mapped_bytes(mapping: mmap.mmap | None) -> int:
    try:
        return len(mapping) if mapping is not None else 0
    except ValueError:  # it was closed
        return 0
