"""Bring arrays into the one form that each kernel is compiled for."""

from typing import Any

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import Bytes


def frozen(buffer: Bytes) -> Bytes:
    """Return a read-only view of the bytes; a copy only if they do not lie one after another.

    Numba compiles once more for every kind of array that it meets, and takes seconds for it: a
    read-only mapping and a writable buffer must look the same.
    """
    view = buffer.view() if buffer.flags.c_contiguous else np.ascontiguousarray(buffer)
    view.setflags(write=False)
    return view


def frozen_rows(rows: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a read-only view of structured rows, one after another and of exactly this type."""
    view = np.ascontiguousarray(rows).view(dtype)
    view.setflags(write=False)
    return view
