"""A streaming query as a process of its own, to be killed: python stream_query.py SETTINGS.

SETTINGS is JSON: "options" of the source, "out" and "checkpoint" directories, "now" (end with what is there).
"""

import json
import sys

from orbitmq.spark.start.session import make_session

CONF = {
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "600m",
    # It does not live long: a JVM that starts fast is worth more than one that runs fast.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
RUNNING = "running"


def main(text: str) -> None:
    settings = json.loads(text)
    spark = make_session(app="orbitmq-killed", master="local[2]", conf=CONF)
    messages = spark.readStream.format("orbitmq").options(**settings["options"]).load()
    rows = messages.selectExpr("cast(body as string) body", "queue_id", "queue_offset")
    writer = rows.writeStream.format("parquet").option("path", settings["out"])
    trigger = {"availableNow": True} if settings["now"] else {"processingTime": "0 seconds"}
    query = writer.option("checkpointLocation", settings["checkpoint"]).trigger(**trigger).start()
    sys.stdout.write(f"{RUNNING}\n")
    sys.stdout.flush()
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
