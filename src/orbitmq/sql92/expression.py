"""An SQL92 expression, compiled once and asked for many messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from orbitmq.errors import Sql92EvaluationError
from orbitmq.format.columns import Bytes, Ints
from orbitmq.format.properties import find_property
from orbitmq.sql92.fast.program import ASK, TRUE, FilterKernels, Program
from orbitmq.sql92.fast.translate import translate
from orbitmq.sql92.grammar import parse
from orbitmq.sql92.nodes import Node

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sql92Expression:
    """A condition over the properties of a message."""

    text: str
    node: Node
    program: Program | None  # None: only its nodes can be asked

    @classmethod
    def compile(cls, text: str) -> "Sql92Expression":
        """Return the expression. Sql92SyntaxError: the text is none."""
        node = parse(text)
        return cls(text, node, translate(node))

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Return what the condition says; None: unknown. Sql92EvaluationError: a value does not fit."""
        found = self.node.evaluate(properties.get)
        return None if found is None else bool(found)

    def matches(self, properties: bytes) -> bool:
        """Tell whether a message with this property string is wanted: unknown and errors are not."""
        try:
            return self.node.evaluate(partial(find_property, properties)) is True
        except Sql92EvaluationError:
            return False

    def matches_many(self, kernels: FilterKernels, buffer: Bytes, at: Ints, lengths: Ints) -> Mask:
        """Tell the same of many property strings, by where they lie; a length of -1 is never wanted.

        FormatError: one lies outside the buffer.
        """
        if self.program is None:
            asked = np.flatnonzero(lengths >= 0)
            mask = np.zeros(len(at), dtype=np.bool_)
        else:
            answers = kernels.run(buffer, at, lengths, self.program)
            mask = answers == TRUE
            asked = np.flatnonzero(answers == ASK)
        for index in asked.tolist():
            start = int(at[index])
            mask[index] = self.matches(buffer[start : start + int(lengths[index])].tobytes())
        return mask


@lru_cache(maxsize=256)  # they come from peers, and a long one takes half a megabyte
def compiled(text: str) -> Sql92Expression:
    """Return the expression of a text, compiled once. Sql92SyntaxError: the text is none."""
    return Sql92Expression.compile(text)
