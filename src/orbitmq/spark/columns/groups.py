"""Counts by topic, tag and the like, made in the worker: Spark gets a few rows for each task.

They are partial results, which Spark puts together: it adds counts up, and takes the smallest minimum. Only
columns whose values repeat are grouped by here: of others there would be as many groups as rows, and all
work would be done twice.
"""

from typing import Final, Literal

import msgspec
import pyarrow as pa
from pyspark.sql.types import DataType, LongType, StructField, StructType

from orbitmq.spark.source.schemas import MESSAGE_COLUMNS

REPEATING: Final = frozenset(
    ("topic", "queue_id", "tags", "born_host", "store_host", "sys_flag", "flag", "reconsume_times")
)
_ORDERED: Final = frozenset(("int", "bigint", "timestamp"))
_TYPES: Final = {"count": _ORDERED | {"string"}, "min": _ORDERED, "max": _ORDERED}


class Aggregate(msgspec.Struct, frozen=True):
    """One figure of a group; a count without a column is one of rows."""

    kind: Literal["count", "min", "max"]
    column: str = ""


class Groups(msgspec.Struct, frozen=True):
    """What is counted, and by which columns."""

    by: list[str]
    made: list[Aggregate]

    def is_taken(self) -> bool:
        """Return whether this is done here."""
        # Without a group there would be no row at all of an empty log, and Spark adds nothing up to null.
        is_plain = bool(self.by) and REPEATING.issuperset(self.by)
        return is_plain and len({*self.made}) == len(self.made) and all(map(_is_taken, self.made))

    def columns(self) -> list[str]:
        """Return the columns of messages that it takes."""
        return list(dict.fromkeys((*self.by, *(one.column for one in self.made if one.column))))

    def schema(self) -> StructType:
        """Return the columns of the result: groups first, then figures, as Spark expects them."""
        groups = [StructField(name, MESSAGE_COLUMNS[name]) for name in self.by]
        figures = [StructField(f"{one.kind}({one.column or '*'})", _type(one)) for one in self.made]
        return StructType([*groups, *figures])

    def grouped(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return the groups of a batch."""
        wanted = [(one.column, one.kind) if one.column else ([], "count_all") for one in self.made]
        keys = pa.Table.from_batches([batch]).group_by(self.by, use_threads=False)
        found = keys.aggregate(wanted)
        names = [
            *self.by,
            *(f"{one.column}_{one.kind}" if one.column else "count_all" for one in self.made),
        ]
        arrays = [found.column(name).combine_chunks() for name in names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def merged(self, found: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Return several partial results as one: a batch takes Spark as long as hundreds of rows."""
        schema, figures = found[0].schema, found[0].schema.names[len(self.by) :]
        how = {"count": "sum", "min": "min", "max": "max"}
        wanted = [(name, how[one.kind]) for name, one in zip(figures, self.made, strict=True)]
        table = pa.Table.from_batches(found).group_by(self.by, use_threads=False).aggregate(wanted)
        names = [*self.by, *(f"{name}_{function}" for name, function in wanted)]
        arrays = [table.column(name).combine_chunks() for name in names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _type(one: Aggregate) -> DataType:
    return LongType() if one.kind == "count" else MESSAGE_COLUMNS[one.column]


def _is_taken(one: Aggregate) -> bool:
    if not one.column:
        return one.kind == "count"
    kind = MESSAGE_COLUMNS.get(one.column)
    return kind is not None and kind.simpleString() in _TYPES[one.kind]
