"""A read of a queue that wants what an SQL92 expression selects."""

from orbitmq.errors import FormatError
from orbitmq.format.columns import Bytes, Ints
from orbitmq.format.cq_ext_unit import ExtUnit
from orbitmq.format.record import properties_of
from orbitmq.sql92.expression import Mask, Sql92Expression, compiled
from orbitmq.sql92.fast.kernels import CHOICE, KernelChoice


class Sql92Filter:
    """Asks an expression about records (`RecordFilter`): queue units say nothing about properties."""

    def __init__(self, expression: Sql92Expression, kernels: KernelChoice = CHOICE) -> None:
        self._expression, self._kernels = expression, kernels

    @classmethod
    def parse(cls, text: str) -> "Sql92Filter":
        """Return the filter of an expression. Sql92SyntaxError: the text is none."""
        return cls(compiled(text))

    def by_unit(self, tag_hash: int | None, ext: ExtUnit | None) -> bool:
        return True

    def by_record(self, record: memoryview) -> bool:
        try:
            return self._expression.matches(properties_of(record))
        except FormatError:
            return False  # damaged: nobody could read it

    def by_records(self, data: Bytes, at: Ints, sizes: Ints) -> Mask:
        """Tell the same of many records at once, by where they lie. FormatError: one lies outside."""
        kernels = self._kernels.for_messages(len(at))
        starts, lengths = kernels.find_properties(data, at, sizes)
        return self._expression.matches_many(kernels, data, starts, lengths)
