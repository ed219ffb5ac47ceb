"""The nodes of an expression: what may stand where, and what each answers for the properties of a message.

Three-valued logic: None is unknown. Names and rules are those of RocketMQ's filter classes, which come
from a message selector of JMS.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from orbitmq.errors import Sql92SyntaxError
from orbitmq.sql92.values import Long, Value, compare, to_double

Get = Callable[[str], str | None]
"""Returns the value of a property, None if there is none."""

_ORDER: Final[dict[str, Callable[[int], bool]]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}
_SEARCH: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": lambda text, wanted: wanted in text,
    "STARTSWITH": lambda text, wanted: text.startswith(wanted),
    "ENDSWITH": lambda text, wanted: text.endswith(wanted),
}


class Kind(Enum):
    """What a node is, for those who translate an expression (`fast.translate`, Spark)."""

    CONSTANT = auto()
    PROPERTY = auto()
    PRESENCE = auto()  # a bare property where a condition is wanted
    CHAIN = auto()  # of AND or OR
    NEGATION = auto()
    MINUS = auto()
    EQUAL = auto()
    ORDERED = auto()
    ONE_OF = auto()
    SEARCH = auto()


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression. `boolean`: it can stand where a condition is wanted."""

    kind: Kind
    evaluate: Callable[[Get], Value]
    boolean: bool = True
    name: str = ""  # of a bare property
    value: Value = None  # of a constant
    depth: int = 1
    parts: "tuple[Node, ...]" = ()
    decides: bool | None = None  # True: a chain of OR, False: of AND
    word: str = ""  # of an order: its symbol; of a search: CONTAINS, STARTSWITH or ENDSWITH
    texts: tuple[str, ...] = ()  # that a property is compared with
    negated: bool = False  # of a search

    @property
    def constant(self) -> bool:
        return self.kind is Kind.CONSTANT


def constant(value: Value) -> Node:
    is_boolean = value is None or isinstance(value, bool)
    return Node(Kind.CONSTANT, lambda get: value, is_boolean, value=value)


def property_of(name: str) -> Node:
    return Node(Kind.PROPERTY, lambda get: get(name), boolean=False, name=name)


def either(left: Node, right: Node) -> Node:
    return _chain(True, left, right)


def both(left: Node, right: Node) -> Node:
    return _chain(False, left, right)


def _chain(decides: bool, left: Node, right: Node) -> Node:
    """Join conditions: one that has the deciding value settles it, in their order."""
    parts = (*(left.parts if left.decides is decides else (condition(left),)), condition(right))
    asked = [part.evaluate for part in parts]

    def evaluate(get: Get) -> Value:
        answer: bool | None = not decides
        for ask in asked:
            found = ask(get)
            if found is decides:
                return decides
            if found is None:
                answer = None
        return answer

    return Node(Kind.CHAIN, evaluate, depth=_depth(*parts), parts=parts, decides=decides)


def negation(operand: Node) -> Node:
    denied = condition(operand)
    inner = denied.evaluate

    def evaluate(get: Get) -> Value:
        found = inner(get)
        return None if found is None else not found

    return Node(Kind.NEGATION, evaluate, depth=_depth(operand), parts=(denied,))


def condition(node: Node) -> Node:
    """Return the node as a condition: a bare property is never true, for its value is a text."""
    if node.boolean:
        return node
    if not node.name:
        raise Sql92SyntaxError("the expression does not result in true or false")
    inner = node.evaluate

    def evaluate(get: Get) -> Value:
        return None if inner(get) is None else False

    return Node(Kind.PRESENCE, evaluate, depth=_depth(node), parts=(node,))


def minus(operand: Node) -> Node:
    inner = operand.evaluate

    def evaluate(get: Get) -> Value:
        value = inner(get)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return Long(-value) if isinstance(value, Long) else -value

    return Node(Kind.MINUS, evaluate, boolean=False, depth=_depth(operand), parts=(operand,))


def equal(left: Node, right: Node) -> Node:
    for side in (left, right):
        if side.constant and side.value is None:
            raise Sql92SyntaxError("NULL cannot be compared; use IS NULL")
    if left.constant and right.constant and left.boolean and not right.boolean:
        raise Sql92SyntaxError(f"{left.value} cannot be compared with {right.value!r}")
    return _equal(left, right)


def is_null(operand: Node) -> Node:
    return _equal(operand, constant(None))


def _equal(left: Node, right: Node) -> Node:
    first, second = left.evaluate, right.evaluate

    def evaluate(get: Get) -> Value:
        one, other = first(get), second(get)
        if one is None:
            return True if other is None else None
        if other is None:
            return False
        return compare(one, other) == 0

    return Node(Kind.EQUAL, evaluate, depth=_depth(left, right), parts=(left, right))


def ordered(left: Node, symbol: str, right: Node) -> Node:
    _require_number(left)
    _require_number(right)
    first, second, holds = left.evaluate, right.evaluate, _ORDER[symbol]

    def evaluate(get: Get) -> Value:
        one = first(get)
        if one is None:
            return None
        other = second(get)
        if other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            one, other = to_double(one), to_double(other)
        order = compare(one, other)
        return order is not None and holds(order)

    depth = _depth(left, right)
    return Node(Kind.ORDERED, evaluate, depth=depth, parts=(left, right), word=symbol)


def _require_number(node: Node) -> None:
    is_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if node.constant and not is_number:
        raise Sql92SyntaxError(f"{node.value!r} has no order: only numbers and properties have one")
    if not node.constant and node.boolean:
        raise Sql92SyntaxError("a condition cannot be compared by its order")


def between(value: Node, low: Node, high: Node) -> Node:
    if low.constant and high.constant:
        _require_number(low)
        _require_number(high)
        if (compare(low.value, high.value) or 0) > 0:
            raise Sql92SyntaxError(f"BETWEEN {low.value!r} AND {high.value!r} is no range")
    return both(ordered(value, ">=", low), ordered(value, "<=", high))


def not_between(value: Node, low: Node, high: Node) -> Node:
    return either(ordered(value, "<", low), ordered(value, ">", high))


def one_of(operand: Node, texts: Sequence[str]) -> Node:
    if not operand.name:
        raise Sql92SyntaxError("IN is for properties: write the name of one before it")
    wanted, inner = frozenset(texts), operand.evaluate

    def evaluate(get: Get) -> Value:
        value = inner(get)
        return None if value is None else value in wanted

    depth = _depth(operand)
    return Node(Kind.ONE_OF, evaluate, depth=depth, parts=(operand,), texts=tuple(texts))


def search(operand: Node, kind: str, wanted: str, *, negated: bool) -> Node:
    inner, holds = operand.evaluate, _SEARCH[kind]

    def evaluate(get: Get) -> Value:
        value = inner(get)
        if not isinstance(value, str) or not wanted:
            return False
        return holds(value, wanted) is not negated

    return Node(
        Kind.SEARCH,
        evaluate,
        depth=_depth(operand),
        parts=(operand,),
        word=kind,
        texts=(wanted,),
        negated=negated,
    )


def _depth(*parts: Node) -> int:
    return 1 + max(part.depth for part in parts)
