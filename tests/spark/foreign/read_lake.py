"""Run by a Spark that is not ours: prints the rows of a lake's tables, one line of JSON each.

read_lake.py delta|iceberg LAKE JARS COLUMNS TABLE...   (commas between jars, semicolons between columns)

A line is [table, value of each column...], with bytes in hexadecimal digits.
"""

import json
import sys

from pyspark.sql import DataFrame, SparkSession

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
ICEBERG = {
    "spark.sql.catalog.orbitmq": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.orbitmq.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
}


def session(format_: str, lake: str, jars: str) -> SparkSession:
    builder = SparkSession.builder.master("local[1]")
    given = QUIET | {"spark.jars": jars}
    if format_ == "delta":
        given |= DELTA
    else:
        given |= ICEBERG
        given["spark.sql.catalog.orbitmq.uri"] = f"jdbc:sqlite:{lake}/catalog.db"
        given["spark.sql.catalog.orbitmq.warehouse"] = f"file://{lake}"
    for name, value in given.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def table_of(spark: SparkSession, format_: str, lake: str, name: str) -> DataFrame:
    if format_ == "delta":
        return spark.read.format("delta").load(f"{lake}/{name}")
    return spark.read.table(f"orbitmq.orbitmq.`{name}`")


def tell(*values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")


def main() -> None:
    format_, lake, jars, columns, *tables = sys.argv[1:]
    spark = session(format_, lake, jars)
    tell("version", spark.version)
    for name in tables:
        frame = table_of(spark, format_, lake, name).selectExpr(*columns.split(";"))
        for row in frame.orderBy("log_offset").toLocalIterator():
            values = [
                bytes(one).hex() if isinstance(one, bytes | bytearray) else one for one in row
            ]
            tell(name, *values)
    spark.stop()


if __name__ == "__main__":
    main()
