"""A query as plain data: what the JVM's reader asks for, and the table that answers.

The rules are those of the plain source, `LogTable`, in every step: options, schema, filters, plan and rows.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

from orbitmq.spark.columns.groups import Groups
from orbitmq.spark.shared_paths import absolute_text
from orbitmq.spark.source.log_table import PLACE_BYTES, LogTable, LogTask
from orbitmq.spark.source.metrics import ReadMetrics
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.pushdown import pushed
from orbitmq.spark.source.row_columns import arrow_schema
from orbitmq.spark.source.schemas import MESSAGE_SCHEMA, table_schema

COUNTED: Final = "queue_id"
"""The column of a query that needs none, but the number of rows."""
PATHS: Final = ("path", "config", "metricspath")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Moment(msgspec.Struct, frozen=True):
    """A time in a filter, in microseconds since 1970."""

    micros: int


class FilterText(msgspec.Struct, frozen=True):
    """A filter of Spark: its name, a column, values."""

    kind: str
    column: str
    values: list[str | int | Moment]
    negated: bool = False

    def filter(self) -> Filter | None:
        """Return it as the plain source gets it; None for one that it could not get."""
        try:
            values = [_value(value) for value in self.values]
        except OverflowError:  # a year that Python does not know
            return None
        kind, path = getattr(datasource, self.kind), (self.column,)
        if kind is datasource.In:
            found: Filter = kind(path, tuple(values))
        else:
            found = kind(path, *values)
        return datasource.Not(found) if self.negated else found


def _value(value: str | int | Moment) -> Any:
    return _EPOCH + timedelta(microseconds=value.micros) if isinstance(value, Moment) else value


MERGED_ROWS: Final = 65_536
"""Of partial results: a worker keeps about so many before it hands them on as one."""


class Query(msgspec.Struct, frozen=True):
    """One query over a store directory. `now_ms` is the time of its options, in every process.

    `cores` is how many tasks run at once, 0: nobody knows.
    """

    options: dict[str, str]
    now_ms: int
    schema: str = ""
    columns: list[str] | None = None
    filters: list[FilterText] = []
    limit: int | None = None
    groups: Groups | None = None
    cores: int = 0

    def schema_text(self) -> str:
        """Return the schema of the whole table as Spark writes it."""
        options = self._options
        return table_schema(options.row_per_key, options.body_as).json()

    def taken(self) -> list[bool]:
        """Return of each filter whether the table does it."""
        self._table()  # looks at the schema
        if not self._options.pushdown:
            return [False] * len(self.filters)
        return [one is not None and not pushed([one])[1] for one in self._filters()]

    def grouped_schema_text(self) -> str | None:
        """Return the columns of the groups; None: Spark makes them itself."""
        self._table()  # looks at the schema
        groups = self.groups
        if groups is None or not self._options.pushdown or not groups.is_taken():
            return None
        return groups.schema().json()

    def absolute_options(self) -> dict[str, str]:
        """Return the options for tasks: a relative path counts from where the query is planned."""
        return {
            name: absolute_text(text) if name.lower() in PATHS else text
            for name, text in self.options.items()
        }

    def tasks(self) -> list[dict[str, Any]]:
        """Return what each task reads, and about how many bytes of the log that is."""
        return [{"task": task, "bytes": _bytes_of(task)} for task in self._planned()]

    def _planned(self) -> Iterator[LogTask]:
        for task in self._filtered().partitions():
            if isinstance(task, LogTask):
                yield task

    def arrow_schema(self) -> pa.Schema:
        if self.groups is not None:
            return arrow_schema(self.groups.schema())
        return self._filtered().arrow_schema

    def rows(self, task: LogTask, name: str, metrics: ReadMetrics) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, not more than the limit; `name` is for its figures."""
        if self.groups is not None:
            yield from self._grouped(self.groups, task, name, metrics)
            return
        left = self.limit
        for batch in self._filtered().batches(task, name, metrics):
            yield batch if left is None else batch.slice(0, left)
            if left is not None:
                left -= batch.num_rows
                if left <= 0:
                    return

    def _grouped(
        self, groups: Groups, task: LogTask, name: str, metrics: ReadMetrics
    ) -> Iterator[pa.RecordBatch]:
        schema, found, rows = arrow_schema(groups.schema()), list[pa.RecordBatch](), 0
        for batch in self._filtered().batches(task, name, metrics):
            found.append(groups.grouped(batch, schema))
            rows += found[-1].num_rows
            if rows > MERGED_ROWS:
                yield groups.merged(found)
                found, rows = [], 0
        if found:
            yield groups.merged(found)

    @property
    def _options(self) -> ReadOptions:
        return ReadOptions.parse(self.options, now_ms=self.now_ms)

    def _table(self) -> LogTable:
        """Return the table with the schema that was asked for; ConfigError: it has no such column."""
        return LogTable(self._options, self._whole_schema())

    def _whole_schema(self) -> StructType:
        return StructType.fromJson(msgspec.json.decode(self.schema))

    def _filtered(self) -> LogTable:
        self._table()  # a wrong column is wrong also where the query does not need it
        whole = self._whole_schema()
        names = whole.fieldNames() if self.columns is None else self.columns or [COUNTED]
        if self.groups is not None:
            names = self.groups.columns()
        known = {field.name: field for field in (*MESSAGE_SCHEMA.fields, *whole.fields)}
        schema = StructType([known[name] for name in names])
        figures = self.groups is not None
        table = LogTable(
            self._options, schema, cores=self.cores, for_figures=figures, in_place=not figures
        )
        if table.push([one for one in self._filters() if one is not None]):
            raise ValueError("a filter that was taken is no longer taken")
        return table

    def _filters(self) -> list[Filter | None]:
        return [text.filter() for text in self.filters]


def _bytes_of(task: LogTask) -> int:
    stretches = sum(split.end - split.start for split in task.splits)
    return stretches + PLACE_BYTES * len(task.singles)
