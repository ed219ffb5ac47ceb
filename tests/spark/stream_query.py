"""A streaming query as a process of its own, to be killed: python stream_query.py SETTINGS.

SETTINGS is JSON: "options" of the source, "out" and "checkpoint" directories, "now" (end with what is there).
"""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from orbitmq.spark.start.session import make_session

CONF = {
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "600m",
    # It does not live long: a JVM that starts fast is worth more than one that runs fast.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
RUNNING = "running"


def start(spark: SparkSession, settings: dict[str, Any]) -> StreamingQuery:
    messages = spark.readStream.format("orbitmq").options(**settings["options"]).load()
    rows = messages.selectExpr("cast(body as string) body", "queue_id", "queue_offset")
    writer = rows.writeStream.format("parquet").option("path", settings["out"])
    trigger = {"availableNow": True} if settings["now"] else {"processingTime": "0 seconds"}
    return writer.option("checkpointLocation", settings["checkpoint"]).trigger(**trigger).start()


def main(text: str) -> None:
    spark = make_session(app="orbitmq-killed", master="local[2]", conf=CONF)
    query = start(spark, json.loads(text))
    sys.stdout.write(f"{RUNNING}\n")
    sys.stdout.flush()
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
