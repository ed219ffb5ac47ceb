"""An SQL92 expression, compiled once and asked for many messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from orbitmq.errors import Sql92EvaluationError
from orbitmq.format.properties import find_property
from orbitmq.sql92.grammar import parse
from orbitmq.sql92.nodes import Node


@dataclass(frozen=True, slots=True)
class Sql92Expression:
    """A condition over the properties of a message."""

    text: str
    node: Node

    @classmethod
    def compile(cls, text: str) -> "Sql92Expression":
        """Return the expression. Sql92SyntaxError: the text is none."""
        return cls(text, parse(text))

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


@lru_cache(maxsize=256)  # they come from peers, and a long one takes half a megabyte
def compiled(text: str) -> Sql92Expression:
    """Return the expression of a text, compiled once. Sql92SyntaxError: the text is none."""
    return Sql92Expression.compile(text)
