"""The Python that Spark starts: this one, which finds the installed PySpark before Spark's archives."""

import json
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from orbitmq.spark.start.worker_python import worker_python

pytestmark = pytest.mark.spark

LOOK = "import json, os, sys; print(json.dumps([sys.argv[1:], sys.executable, os.environ['PYTHONPATH']]))"


def test_archives_are_left_out_and_everything_else_stays(tmp_path: Path) -> None:
    archives = Path(pyspark.__file__).parent / "python" / "lib"
    kept = [str(tmp_path / "a b"), str(tmp_path / "*"), "/other/pyspark.zip"]
    path = [str(archives / "pyspark.zip"), kept[0], str(archives / "py4j-src.zip"), *kept[1:]]

    done = subprocess.run(
        [worker_python(), "-c", LOOK, "two words", "*"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(path)},
        cwd=tmp_path,
        check=True,
    )

    assert json.loads(done.stdout) == [["two words", "*"], sys.executable, ":".join(kept)]


def test_tasks_run_with_the_installed_package(spark: SparkSession) -> None:
    def look(_: int) -> tuple[str, str]:
        return sys.executable, pyspark.__file__

    found = spark.sparkContext.parallelize([1], 1).map(look).collect()

    assert found == [(sys.executable, pyspark.__file__)]
