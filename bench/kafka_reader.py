"""Reads a Kafka server with Spark's own connector; run by `kafka_side` in the connector's environment.

    kafka_reader.py load address=HOST:PORT jars=JAR,... parquet=DIR
    kafka_reader.py measure address=HOST:PORT jars=JAR,... target=DIR keys=K,... queries=Q,... runs=N tuned=0

A row becomes a record of the topic and partition that it has in the log: its key is the record's key, its
tag a header. Prints one JSON row.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import spark_queries

TOPICS = "Bench[0-9]+"
WARM_TOPIC = "Bench00000"
TUNED = {
    "kafka.max.poll.records": "4000",
    "kafka.max.partition.fetch.bytes": str(4 << 20),
    "kafka.fetch.max.wait.ms": "5",
}
"""The connector asks the server where a partition begins and ends after every poll, which throws away what
was fetched ahead: larger polls ask less often, and a short wait does not hold such a question up."""


def load(spark: SparkSession, options: dict[str, str]) -> dict[str, object]:
    """Write the rows of a Parquet directory to Kafka. Tasks write side by side: not in the log's order."""
    tag = F.struct(F.lit("TAGS").alias("key"), F.col("tags").cast("binary").alias("value"))
    rows = spark.read.parquet(options["parquet"])
    records = rows.select(
        "topic",
        F.col("queue_id").alias("partition"),
        F.col("key").cast("binary").alias("key"),
        F.col("body").alias("value"),
        F.array(tag).alias("headers"),
    )
    writer = records.write.format("kafka").option("kafka.bootstrap.servers", options["address"])
    # What makes a producer quick in bulk; reading is measured, not writing.
    writer.option("kafka.batch.size", "262144").option("kafka.linger.ms", "5").option(
        "includeHeaders", "true"
    ).save()
    return {"rows": rows.count()}


def table(spark: SparkSession, address: str, topics: str, settings: dict[str, str]) -> DataFrame:
    """Return the benchmark's table, read through the connector."""
    records = (
        spark.read.format("kafka")
        .options(**settings)
        .option("kafka.bootstrap.servers", address)
        .option("subscribePattern", topics)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("includeHeaders", "true")
        .load()
    )
    return records.select(
        "topic",
        F.col("partition").alias("queue_id"),
        F.col("offset").alias("queue_offset"),
        F.col("headers")[0]["value"].cast("string").alias("tags"),
        F.col("key").cast("string").alias("key"),
        F.col("value").alias("body"),
    )


def measure(spark: SparkSession, options: dict[str, str]) -> dict[str, object]:
    address, settings = options["address"], TUNED if options.get("tuned") == "1" else {}
    queries = options["queries"].split(",")
    side = spark_queries.Side(
        lambda _: table(spark, address, TOPICS, settings),
        lambda _: table(spark, address, WARM_TOPIC, settings),
        Path(options["target"]),
    )
    row = spark_queries.measure({"kafka": side}, queries, int(options["runs"]))["kafka"]
    if "lookup" in queries:
        everything = table(spark, address, TOPICS, settings)
        keys = options["keys"].split(",")
        row["lookup_seconds"], row["found"] = spark_queries.lookups(
            lambda key: spark_queries.find(everything, key), keys
        )
    return row


def main() -> None:
    options = dict(option.split("=", 1) for option in sys.argv[2:])
    master = options.get("master", "local[*]")
    # The connector keeps the consumers of 64 partitions, and what each of them fetched.
    conf = {"spark.jars": options["jars"], "spark.driver.memory": "4g"}
    spark = spark_queries.session("kafka", master, **conf)
    try:
        row = {"load": load, "measure": measure}[sys.argv[1]](spark, options)
    finally:
        spark.stop()
    print(json.dumps(row))


if __name__ == "__main__":
    main()
