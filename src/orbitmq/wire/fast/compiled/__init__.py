"""The kernels of sends in numba: the same results as the plain ones at the speed of memory.

Importing this loads every kernel from numba's cache (or compiles them once, for seconds), so that no call
stalls later. All of them release the GIL.
"""

import numpy as np

from orbitmq.format.compiled import jit
from orbitmq.wire.fast.compiled.frames import find_sends
from orbitmq.wire.fast.compiled.records import publish_records, write_answers, write_sends
from orbitmq.wire.fast.layout import PARTS, SendKernels
from orbitmq.wire.fast.run import SendRun

KERNELS = SendKernels("compiled", find_sends, write_sends, publish_records, write_answers)


def _warm() -> None:
    """Call every kernel once on next to nothing, so that all are loaded or compiled before real work."""
    run = SendRun(KERNELS, frame_bytes_max=16, body_bytes_max=16)
    parts: list[bytes] = [b""] * PARTS
    run.use_texts(b"", parts)
    run.find(b"")
    run.write(np.zeros(1, dtype=np.uint8), 0, 0, 0, bytes(16), [])
    run.publish()
    run.answers()
    jit.close(__name__)


_warm()
