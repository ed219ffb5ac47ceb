"""The process that Spark forks its Python workers from, with the kernels already in it.

Spark starts it as `python -m orbitmq.spark.daemon <worker module>` (spark.python.daemon.module). A worker
then has the compiled kernels at once and shares their memory, instead of loading them for a second.
"""

import gc
import os
import sys
from typing import Final

from pyspark.daemon import manager

TASKS: Final = "pyspark.worker"
"""The module that runs tasks. The others plan a query, one process each, and may not need kernels."""


def main() -> None:
    if TASKS in sys.argv[1:]:
        load_kernels()
    manager()


def load_kernels() -> None:
    """Load what tasks need and what starts no thread: a forked process would not have it.

    That rules out pyarrow, and threads of numpy's linear algebra, which nobody here uses.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from orbitmq.format.kernels import compiled

    compiled()
    # Spark collects garbage after each task: 75 ms of it would go into numba's objects, which stay anyway.
    gc.freeze()


if __name__ == "__main__":
    main()
