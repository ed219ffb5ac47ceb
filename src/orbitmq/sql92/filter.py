"""A read of a queue that wants what an SQL92 expression selects."""

from orbitmq.errors import FormatError
from orbitmq.format.cq_ext_unit import ExtUnit
from orbitmq.format.record import properties_of
from orbitmq.sql92.expression import Sql92Expression, compiled


class Sql92Filter:
    """Asks an expression about each record (`MessageFilter`): queue units say nothing about properties."""

    def __init__(self, expression: Sql92Expression) -> None:
        self._matches = expression.matches

    @classmethod
    def parse(cls, text: str) -> "Sql92Filter":
        """Return the filter of an expression. Sql92SyntaxError: the text is none."""
        return cls(compiled(text))

    def by_unit(self, tag_hash: int | None, ext: ExtUnit | None) -> bool:
        return True

    def by_record(self, record: memoryview) -> bool:
        try:
            return self._matches(properties_of(record))
        except FormatError:
            return False  # damaged: nobody could read it
