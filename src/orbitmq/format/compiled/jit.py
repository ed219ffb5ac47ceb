"""How the kernels are compiled: without the GIL, cached on disk, never from another version's cache."""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])
_KERNELS: Final[list[Any]] = []

BOUNDS_CHECKED: Final = bool(getattr(numba.config, "BOUNDSCHECK", False))
"""Set by NUMBA_BOUNDSCHECK=1: every access is checked, for tests. Such code is not cached."""


@cache
def source_stamp(folder: Path) -> str:
    """Return a hash of all sources of a folder of kernels, and of these here, which they call."""
    digest = hashlib.sha256()
    for path in sorted({*Path(__file__).parent.glob("*.py"), *folder.glob("*.py")}):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def kernel(function: _Function) -> _Function:
    """Compile a function that Python calls."""
    compiled: Any = None if BOUNDS_CHECKED else _cached(function)
    if compiled is None:
        compiled = numba.njit(nogil=True, error_model="numpy")(function)
    _KERNELS.append(compiled)
    result: _Function = compiled
    return result


def _cached(function: _Function) -> Any:
    """Return the function compiled and cached, or None where no directory for the cache is writable."""
    try:
        compiled: Any = numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    except RuntimeError:
        return None
    # Numba looks only at the file that a cached function stands in. A kernel calls functions of
    # other files, and must not be loaded from a cache that was made before one of them changed.
    folder = Path(function.__code__.co_filename).parent
    compiled._cache._cache_file._source_stamp = source_stamp(folder)
    return compiled


def kernels() -> list[Any]:
    """Return all that `kernel` compiled."""
    return list(_KERNELS)


def close(package: str) -> None:
    """Compile no kernel of this package from now on: a call with other types fails instead of stalling.

    Those of other packages may be on their way in another thread.
    """
    for compiled in kernels():
        if compiled.py_func.__module__.startswith(f"{package}."):
            assert compiled.signatures, compiled
            compiled.disable_compile()


def helper(function: _Function) -> _Function:
    """Compile a function that only kernels call; it becomes part of them."""
    compiled: Any = numba.njit(nogil=True, error_model="numpy")(function)
    result: _Function = compiled
    return result


def inlined(function: _Function) -> _Function:
    """Compile a helper that is put into the kernel in place of the call: what is called for each record."""
    compiled: Any = numba.njit(nogil=True, error_model="numpy", forceinline=True)(function)
    result: _Function = compiled
    return result
