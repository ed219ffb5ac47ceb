"""What the operating system can be told about the pages of a mapping; Python has no calls for most of it.

The calls run without the interpreter lock.
"""

import ctypes
import mmap
import os
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_POPULATE_WRITE: Final = 23  # MADV_POPULATE_WRITE, since Linux 5.14


def populate(mapping: mmap.mmap, start: int, end: int) -> None:
    """Map the pages of [start, end) for writing, so that no write faults on them; their bytes stay.

    Where the kernel cannot do it nothing happens.
    """
    start -= start % mmap.PAGESIZE
    _call(mapping, _LIBC.madvise, start, end - start, _POPULATE_WRITE)


def lock_pages(mapping: mmap.mmap) -> str:
    """Keep the mapping in memory; return why not, empty if it is."""
    if _call(mapping, _LIBC.mlock, 0, len(mapping)) == 0:
        return ""
    return os.strerror(ctypes.get_errno())


def unlock_pages(mapping: mmap.mmap) -> None:
    _call(mapping, _LIBC.munlock, 0, len(mapping))


def resident_pages(mapping: mmap.mmap) -> int:
    """Count the pages of a writable mapping that are in memory now; -1 if the system does not tell."""
    states = (ctypes.c_ubyte * (-(-len(mapping) // mmap.PAGESIZE)))()
    if _call(mapping, _LIBC.mincore, 0, len(mapping), states) != 0:
        return -1
    return sum(state & 1 for state in states)


def _call(
    mapping: mmap.mmap,
    function: "ctypes._NamedFuncPointer",
    start: int,
    length: int,
    *arguments: object,
) -> int:
    # The anchor is an export of the mapping: it cannot be unmapped while the call runs.
    anchor = ctypes.c_char.from_buffer(mapping)
    address = ctypes.c_void_p(ctypes.addressof(anchor) + start)
    result: int = function(address, ctypes.c_size_t(length), *arguments)
    return result
