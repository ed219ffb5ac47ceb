"""A Spark session that can run OrbitMQ's tasks."""

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def make_session(
    *,
    app: str = "orbitmq",
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the running session, or a new one; `master` None: what spark-submit says, else local[*]."""
    # Workers would take whatever python3 is on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app)
    settings = {**DEFAULTS, **(conf or {})}
    settings["spark.master"] = master or settings.get("spark.master") or "local[*]"
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
