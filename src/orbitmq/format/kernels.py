"""The hot loops over whole buffers, in two forms with one signature: `plain` and `compiled`.

`plain` is the readable reference, says what each kernel does, and serves until the compiled form is loaded
(importing numba costs most of a second). `compiled` is numba, releases the GIL and is cached on disk. Any
byte string given to a kernel yields a result or a FormatError; no length is used before it is checked.
"""

from collections.abc import Sequence

from orbitmq.format.columns import QueueTable
from orbitmq.format.plain import Kernels

__all__ = ["Kernels", "QueueTable", "compiled", "plain", "twins"]

_PLAIN = Kernels()


def plain() -> Kernels:
    """Return the reference kernels; ready at once."""
    return _PLAIN


def compiled() -> Kernels:
    """Return the compiled kernels; the first call imports numba and loads its cache."""
    from orbitmq.format.compiled import KERNELS

    return KERNELS


def twins() -> Sequence[Kernels]:
    """Return both, for tests that compare them."""
    return (plain(), compiled())
