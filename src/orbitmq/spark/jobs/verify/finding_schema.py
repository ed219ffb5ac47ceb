"""The columns of a table of findings.

column     | Spark type | meaning
severity   | string     | error or note
kind       | string     | what is damaged: file, record, tail, queue, index, ... (`Kind`)
file       | string     | path
position   | bigint     | byte in the file
log_offset | bigint     | of the record that is meant; null where none is
cause      | string     |
advice     | string     | what to do next
"""

from typing import Final

from pyspark.sql.types import LongType, StringType, StructField, StructType

FINDING_SCHEMA: Final = StructType(
    [
        StructField("severity", StringType(), nullable=False),
        StructField("kind", StringType(), nullable=False),
        StructField("file", StringType(), nullable=False),
        StructField("position", LongType(), nullable=False),
        StructField("log_offset", LongType(), nullable=True),
        StructField("cause", StringType(), nullable=False),
        StructField("advice", StringType(), nullable=False),
    ]
)
