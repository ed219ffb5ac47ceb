"""The kernels of a load, in two forms with one signature: `plain` and `compiled`."""

from collections.abc import Sequence

from orbitmq.spark.jobs.load.encode.layout import EncodeKernels
from orbitmq.spark.jobs.load.encode.plain import KERNELS as PLAIN


def compiled() -> EncodeKernels:
    """Return the compiled kernels; the first call imports numba and loads its cache."""
    from orbitmq.spark.jobs.load.encode.compiled import KERNELS

    return KERNELS


def twins() -> Sequence[EncodeKernels]:
    """Return both, for tests that compare them."""
    return (PLAIN, compiled())
