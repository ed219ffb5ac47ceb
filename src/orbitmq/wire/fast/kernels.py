"""The kernels of sends, in two forms with one signature: `plain` and `compiled`.

As with the kernels of `format`, `plain` is the reference that can be read, and `compiled` is numba.
"""

from collections.abc import Sequence

from orbitmq.wire.fast.layout import SendKernels


def plain() -> SendKernels:
    """Return the reference kernels; ready at once."""
    from orbitmq.wire.fast.plain import KERNELS

    return KERNELS


def compiled() -> SendKernels:
    """Return the compiled kernels; the first call imports numba and loads its cache."""
    from orbitmq.wire.fast.compiled import KERNELS

    return KERNELS


def twins() -> Sequence[SendKernels]:
    """Return both, for tests that compare them."""
    return (plain(), compiled())
