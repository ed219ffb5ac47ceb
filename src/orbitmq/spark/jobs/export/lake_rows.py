"""The rows of a lake: the columns of the message table, without what only a read of a log can say.

With fields for a topic (`values`) its table has a column `value` too, made of the body. What cannot be in the
table of its topic goes to the table `<topic>~dlq`: the same columns, the body as it is stored, and `reason`.
It never stops the others.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.spark.jobs.export.parts import Place
from orbitmq.spark.jobs.export.values import OTHERS, Fields, read_values, value_type
from orbitmq.spark.source.row_columns import ARROW_SCHEMA
from orbitmq.spark.source.schemas import BODY, ERROR, KEY

VALUE: Final = "value"
REASON: Final = "reason"
MESSAGES: Final = pa.schema([one for one in ARROW_SCHEMA if one.name not in (ERROR, KEY)])
"""The columns that every table has."""
MISFITS: Final = MESSAGES.append(pa.field(REASON, pa.string()))
"""The columns of a table `~dlq`."""


def with_reasons(rows: pa.Table, reasons: Sequence[str] | pa.Array) -> pa.Table:
    """Return rows as a table `~dlq` has them."""
    return rows.append_column(MISFITS.field(REASON), pa.array(reasons, type=pa.string()))


@dataclass(frozen=True, slots=True)
class LakeRows:
    """Makes the rows of tables from those of a read. Immutable; travels to tasks."""

    values: Mapping[str, Fields] = field(default_factory=dict)  # by topic; none: no column `value`

    def fields(self, topic: str) -> Fields:
        """Return the fields of a topic's bodies; none: they are not looked at."""
        return self.values.get(topic, self.values.get(OTHERS, {}))

    def schema(self, topic: str, *, dlq: bool) -> pa.Schema:
        """Return the columns of a topic's table, or of its `~dlq`."""
        if dlq:
            return MISFITS
        fields = self.fields(topic)
        return MESSAGES.append(pa.field(VALUE, value_type(fields))) if fields else MESSAGES

    def parts(
        self, place: Place, rows: pa.Table, misfits: pa.Table
    ) -> Iterator[tuple[Place, pa.Table]]:
        """Yield the rows of one topic and day, and where they go."""
        fields = self.fields(place.topic)
        if fields and rows.num_rows:
            rows, more = _with_values(rows, fields)
            misfits = pa.concat_tables([misfits, more])
        yield place, rows
        if misfits.num_rows:
            yield place._replace(dlq=True), misfits


def _with_values(rows: pa.Table, fields: Fields) -> tuple[pa.Table, pa.Table]:
    """Return the rows whose bodies fit, with their values, and the others, with reasons."""
    values, reasons = read_values(rows[BODY].combine_chunks(), fields)
    fit = pc.is_null(reasons)
    good = rows.append_column(pa.field(VALUE, values.type), values).filter(fit)
    bad = pc.invert(fit)
    return good, with_reasons(rows.filter(bad), reasons.filter(bad))
