"""The process that Spark forks its Python workers from, with the kernels already in it.

Spark starts it as `python -m orbitmq.spark.start.daemon <worker module>` (spark.python.daemon.module). A
worker then has the compiled kernels at once and shares their memory, instead of loading them for a second.
"""

import os
import sys
from pathlib import Path
from typing import Final

from orbitmq.spark.start.prestart import handed_over
from orbitmq.spark.start.workers import load_kernels, serve, serve_tasks

TASKS: Final = "pyspark.worker"
"""The module that runs tasks. The others plan a query, one process each, and may not need kernels."""


def main() -> None:
    sys.path[:] = installed_first(sys.path)
    if TASKS in sys.argv[1:]:
        if handed_over():
            return
        load_kernels()
        serve_tasks()
        return
    from pyspark import daemon as of_spark

    serve(of_spark)


def installed_first(path: list[str]) -> list[str]:
    """Return a module path on which the archives of an installed PySpark come last.

    Spark puts them first, for machines that have nothing else. They hold no compiled modules: this process
    and each worker would compile them anew, a second's work, and look into them for every other import.
    """
    packages = tuple(str(Path(site, "pyspark")) + os.sep for site in path)
    archives = [entry for entry in path if entry.startswith(packages)]
    return [entry for entry in path if entry not in archives] + archives


if __name__ == "__main__":
    main()
