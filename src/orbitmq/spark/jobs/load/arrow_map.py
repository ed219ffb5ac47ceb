"""A function over the Arrow batches of a table's partitions, where pandas is not installed."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(frame: DataFrame, work: Work, schema: str) -> DataFrame:
    """Return `frame.mapInArrow(work, schema)`, which itself asks for pandas and does not use it."""
    try:
        from pyspark.sql.udf import UserDefinedFunction
        from pyspark.util import PythonEvalType

        function: Any = UserDefinedFunction(
            work, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        )
        column = function(*(frame[name] for name in frame.columns))
        mapped = frame._jdf.mapInArrow(column._jc, False, None)
    except (ImportError, AttributeError, TypeError):  # another PySpark: its own way, with pandas
        return frame.mapInArrow(work, schema)
    return DataFrame(mapped, frame.sparkSession)
