"""The rows of a lake: the columns of the message table, without what only a read of a log can say.

What cannot be in the table of its topic goes to the table `<topic>~dlq`: the same columns, the body as it is
stored, and `reason`. It never stops the others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from orbitmq.spark.jobs.export.parts import Place
from orbitmq.spark.source.row_columns import ARROW_SCHEMA
from orbitmq.spark.source.schemas import ERROR, KEY

REASON: Final = "reason"
MESSAGES: Final = pa.schema([one for one in ARROW_SCHEMA if one.name not in (ERROR, KEY)])
"""The columns that every table has."""
MISFITS: Final = MESSAGES.append(pa.field(REASON, pa.string()))
"""The columns of a table `~dlq`."""


def with_reasons(rows: pa.Table, reasons: Sequence[str]) -> pa.Table:
    """Return rows as a table `~dlq` has them."""
    return rows.append_column(MISFITS.field(REASON), pa.array(reasons, type=pa.string()))


@dataclass(frozen=True, slots=True)
class LakeRows:
    """Makes the rows of tables from those of a read. Immutable; travels to tasks."""

    def schema(self, _topic: str, *, dlq: bool) -> pa.Schema:
        """Return the columns of a topic's table, or of its `~dlq`."""
        return MISFITS if dlq else MESSAGES

    def parts(
        self, place: Place, rows: pa.Table, misfits: pa.Table
    ) -> Iterator[tuple[Place, pa.Table]]:
        """Yield the rows of one topic and day, and where they go."""
        yield place, rows
        if misfits.num_rows:
            yield place._replace(dlq=True), misfits
