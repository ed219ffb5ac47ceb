"""A driver that asks its executors where OrbitMQ is: `python package_job.py MASTER SETTINGS-AS-JSON STORE`.

It runs under spark-submit too; then MASTER is `-`.
"""

import json
import sys
from typing import Any


def look(_: int) -> dict[str, Any]:
    import orbitmq
    from orbitmq.format.compiled import jit
    from orbitmq.format.kernels import compiled

    compiled()
    missed = [kernel.py_func.__name__ for kernel in jit.kernels() if kernel.stats.cache_misses]
    return {"path": orbitmq.__path__[0], "python": sys.executable, "compiled_here": missed}


def main(master: str, settings: str, store: str) -> None:
    from orbitmq.spark.start.session import make_session

    given = None if master == "-" else master
    spark = make_session(app="package", master=given, conf=json.loads(settings), quiet=True)
    try:
        workers = spark.sparkContext.parallelize(range(4), 4).map(look).collect()
        rows = spark.read.format("orbitmq").option("includeBody", "false").load(store)
        plan = rows._jdf.queryExecution().toString()
        answer = {"master": spark.sparkContext.master, "workers": workers, "count": rows.count()}
        answer["reader"] = "columns" if "(columns)" in plan else "rows"
        sys.stdout.write(json.dumps(answer) + "\n")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
