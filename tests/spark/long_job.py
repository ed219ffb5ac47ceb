"""A job that never ends by itself, for tests that interrupt one: `python long_job.py FILE`.

It writes "cancelled" to FILE if the driver was told of it and could still use Spark afterwards.
"""

import sys
import time
from pathlib import Path

from orbitmq.cli.spark.progress import shown_progress
from orbitmq.spark.failures import clear_errors
from orbitmq.spark.start.session import make_session

MIB = 1 << 20
TASKS = 10_000  # ten minutes


def main(report: Path) -> None:
    conf = {"spark.driver.memory": "512m"}
    spark = make_session(app="long-job", master="local[2]", conf=conf, quiet=True)
    numbers = spark.sparkContext.parallelize(range(TASKS), TASKS)
    try:
        with clear_errors("the long job"), shown_progress(spark) as progress:
            counter = progress.stage("count", TASKS * MIB)

            def work(_: int) -> None:
                time.sleep(0.1)  # sleep: a task that takes its time is what this job is for
                counter.add(MIB, 7)

            numbers.foreach(work)
    except KeyboardInterrupt:
        assert spark.sparkContext.parallelize([1, 2], 1).sum() == 3
        assert not spark.sparkContext.statusTracker().getActiveJobsIds()
        report.write_text("cancelled")
        raise
    finally:
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
