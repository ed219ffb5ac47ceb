"""A driver that asks its executors where OrbitMQ is: `python package_job.py MASTER SETTINGS-AS-JSON STORE`.

It runs under spark-submit too; then MASTER is `-`. With the Avro schema of the store's bodies behind it,
they are decoded.
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


def decoded(rows: Any, schema: str) -> list[Any]:
    """Return what the bodies say, and what is wrong with those that say nothing."""
    from orbitmq.spark import decode

    found = decode(rows, schema, format="avro").select("log_offset", "value.*", "error")
    return [list(row)[1:] for row in sorted(found.collect())]


def main(master: str, settings: str, store: str, schema: str = "") -> None:
    from orbitmq.spark.start.session import make_session

    given = None if master == "-" else master
    spark = make_session(app="package", master=given, conf=json.loads(settings), quiet=True)
    try:
        workers = spark.sparkContext.parallelize(range(4), 4).map(look).collect()
        rows = spark.read.format("orbitmq").option("includeBody", "false").load(store)
        plan = rows._jdf.queryExecution().toString()
        answer = {"master": spark.sparkContext.master, "workers": workers, "count": rows.count()}
        if schema:
            answer["decoded"] = decoded(spark.read.format("orbitmq").load(store), schema)
        answer["reader"] = "columns" if "(columns)" in plan else "rows"
        sys.stdout.write(json.dumps(answer) + "\n")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
