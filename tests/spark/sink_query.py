"""A streaming query into a topic as a process of its own, to be killed: python sink_query.py SETTINGS.

SETTINGS is JSON: "source" and "sink" options, "now" (end with what is there), and where it is not here, with
tasks that are tried four times, "master" and "conf".
"""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from orbitmq.spark.start.session import make_session
from spark.stream_query import CONF, RUNNING


def start(spark: SparkSession, settings: dict[str, Any]) -> StreamingQuery:
    messages = spark.readStream.format("orbitmq").options(**settings["source"]).load()
    columns = "body", "tags", "keys", "flag", "properties", "properties['shard'] sharding_key"
    writer = messages.selectExpr(*columns).writeStream.format("orbitmq").options(**settings["sink"])
    trigger = {"availableNow": True} if settings["now"] else {"processingTime": "0 seconds"}
    return writer.trigger(**trigger).start()


def main(text: str) -> None:
    settings = json.loads(text)
    master, conf = settings.get("master", "local[2,4]"), settings.get("conf", {})
    spark = make_session(app="orbitmq-killed", master=master, conf=CONF | conf)
    query = start(spark, settings)
    sys.stdout.write(f"{RUNNING}\n")
    sys.stdout.flush()
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
