"""The kernels of filters in numba: what they answer is what the plain ones answer, or ASK.

Importing this loads every kernel from numba's cache (or compiles them once, for seconds), so that no call
stalls later. All of them release the GIL.
"""

import numpy as np

from orbitmq.format.compiled import jit
from orbitmq.sql92.fast.compiled.machine import run
from orbitmq.sql92.fast.compiled.records import find_properties
from orbitmq.sql92.fast.program import OPERANDS, FilterKernels, Program

KERNELS = FilterKernels("compiled", find_properties, run)


def _warm() -> None:
    """Call every kernel once on next to nothing, so that all are loaded or compiled before real work."""
    nothing, none = np.empty(0, dtype=np.uint8), np.empty(0, dtype=np.int64)
    steps = np.zeros((1, 1 + OPERANDS), dtype=np.int64)
    texts = np.empty((0, 2), dtype=np.int64)
    find_properties(nothing, none, none)
    run(nothing, none, none, Program(steps, np.empty(0), texts, nothing, none, 0, 1))
    jit.close(__name__)


_warm()
