"""From the nodes of an expression to its program: what can be decided before there is a message is."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from orbitmq.errors import Sql92EvaluationError
from orbitmq.sql92.fast.program import (
    ABOVE,
    ASK,
    BELOW,
    ERROR,
    FALSE,
    LEVEL,
    NAMES_MAX,
    OPERANDS,
    TRUE,
    UNKNOWN,
    Program,
    Step,
    Where,
)
from orbitmq.sql92.nodes import Kind, Node
from orbitmq.sql92.values import Long, Value, to_boolean

_ANSWERS: Final = {True: TRUE, False: FALSE, None: UNKNOWN}
_ORDERS: Final = {">": ABOVE, ">=": ABOVE | LEVEL, "<": BELOW, "<=": BELOW | LEVEL, "=": LEVEL}
_WHERE: Final = {"CONTAINS": Where.ANYWHERE, "STARTSWITH": Where.START, "ENDSWITH": Where.END}
_REPLACEMENT: Final = "\ufffd"  # stands for any bytes that are no UTF-8


class _NotTranslatedError(Exception):
    """There is something in the expression that programs do not know."""


@dataclass(frozen=True, slots=True)
class _Constant:
    """An operand with one value for all messages."""

    value: Value


@dataclass(frozen=True, slots=True)
class _Name:
    """An operand that is a property: a text, or none."""

    number: int


def translate(node: Node) -> Program | None:
    """Return the program of a condition, None if it has parts that only its nodes can answer."""
    writer = _Writer()
    try:
        writer.condition(node)
    except _NotTranslatedError:
        return None
    return writer.program()


@dataclass(slots=True)
class _Writer:
    """Writes the steps of one expression."""

    steps: list[list[int]] = field(default_factory=list)
    doubles: list[float] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    texts: list[bytes] = field(default_factory=list)
    stack: int = 0
    stack_size: int = 0

    def program(self) -> Program:
        all_texts = [*(_encoded(name) + b"\x01" for name in self.names), *self.texts]
        ends = np.cumsum([0, *map(len, all_texts)], dtype=np.int64)
        rows = np.stack([ends[:-1], np.diff(ends)], axis=1).reshape(-1, 2)
        borders = [border for text in all_texts for border in _borders(text)]
        return Program(
            np.array(self._moved(), dtype=np.int64).reshape(-1, 1 + OPERANDS),
            np.array(self.doubles, dtype=np.float64),
            rows,
            np.frombuffer(b"".join(all_texts), dtype=np.uint8),
            np.array(borders, dtype=np.int64),
            len(self.names),
            self.stack_size,
        )

    def _moved(self) -> list[list[int]]:
        """Return the steps with numbers of texts behind those of all names."""
        texts = (Step.IS_TEXT, Step.SEARCH)
        return [
            [step, name, text + len(self.names), *rest]
            if step in texts
            else [step, name, text, *rest]
            for step, name, text, *rest in self.steps
        ]

    def _write(self, step: Step, *operands: int, grows: int = 1) -> None:
        self.steps.append([step, *operands, *[0] * (OPERANDS - len(operands))])
        self.stack += grows
        self.stack_size = max(self.stack_size, self.stack)

    def _map(self, of_true: int, of_false: int, of_unknown: int) -> None:
        self._write(Step.MAP, of_true, of_false, of_unknown, grows=0)

    def condition(self, node: Node) -> None:
        """Write what pushes the answer of a condition."""
        match node.kind:
            case Kind.CONSTANT:
                self._write(Step.PUSH, _ANSWERS[node.value])  # type: ignore[index]
            case Kind.PRESENCE:
                self._write(Step.ABSENT, self._name(node.parts[0]).number)
                self._map(UNKNOWN, FALSE, ASK)
            case Kind.CHAIN:
                self._chain(node)
            case Kind.NEGATION:
                self.condition(node.parts[0])
                self._map(FALSE, TRUE, UNKNOWN)
            case Kind.EQUAL:
                self._equal(node)
            case Kind.ORDERED:
                self._ordered(node)
            case Kind.ONE_OF:
                texts = [self._text(text) for text in node.texts]
                self._write(
                    Step.IS_TEXT, self._name(node.parts[0]).number, texts[0], len(texts), UNKNOWN
                )
            case Kind.SEARCH:
                self._search(node)
            case _:
                raise _NotTranslatedError

    def _chain(self, node: Node) -> None:
        decides = _ANSWERS[node.decides]
        skips: list[list[int]] = []
        for number, part in enumerate(node.parts):
            if number:
                self._write(Step.SKIP, decides, grows=0)
                skips.append(self.steps[-1])
            self.condition(part)
            if number:
                self._write(Step.JOIN, decides, grows=-1)
        for skip in skips:
            skip[2] = len(self.steps)

    def _equal(self, node: Node) -> None:
        left, right = (self._operand(part) for part in node.parts)
        if isinstance(left, _Constant) and isinstance(right, _Constant):
            self._fold(node)
        elif isinstance(left, _Name) and isinstance(right, _Name):
            self._write(Step.EQUAL, left.number, right.number)
        elif isinstance(left, _Name) and isinstance(right, _Constant):
            self._name_is(left, right.value)
        elif isinstance(left, _Constant) and isinstance(right, _Name):
            self._is_name(left.value, right)
        else:
            self._equal_conditions(node, left, right)

    def _name_is(self, name: _Name, value: Value) -> None:
        """Write `name = value`: without the property it is unknown."""
        if value is None:
            self._write(Step.ABSENT, name.number)
        elif isinstance(value, bool):
            self._write(Step.TRUTH, name.number)
            self._write(Step.PUSH, _ANSWERS[value])
            self._write(Step.SAME, grows=-1)
        elif isinstance(value, str):
            self._write(Step.IS_TEXT, name.number, self._text(value), 1, UNKNOWN)
        else:
            self._number(name, LEVEL, value, UNKNOWN)

    def _is_name(self, value: Value, name: _Name) -> None:
        """Write `value = name`: without the property it is false."""
        if value is None:
            self._write(Step.ABSENT, name.number)
            self._map(TRUE, UNKNOWN, ASK)
        elif isinstance(value, bool):
            self._write(Step.ABSENT, name.number)
            self._map(FALSE, ERROR, ASK)
        elif isinstance(value, str):
            self._write(Step.IS_TEXT, name.number, self._text(value), 1, FALSE)
        else:
            self._number(name, LEVEL, value, FALSE)

    def _equal_conditions(
        self, node: Node, left: "_Constant | _Name | Node", right: "_Constant | _Name | Node"
    ) -> None:
        """Write an equality of which one side at least is a condition."""
        if isinstance(left, Node) and isinstance(right, _Name):
            self.condition(left)
            self._write(Step.AGAINST, right.number, grows=0)
        elif isinstance(left, Node) and isinstance(right, _Constant):
            self.condition(left)
            self._map(*_of_condition_and(right.value))
        elif isinstance(left, _Constant) and isinstance(right, Node):
            self.condition(right)
            self._map(*_of_constant_and_condition(left.value))
        else:
            if isinstance(left, _Name):
                self._write(Step.TRUTH, left.number)
            else:
                self.condition(node.parts[0])
            self.condition(node.parts[1])
            self._write(Step.SAME, grows=-1)

    def _ordered(self, node: Node) -> None:
        left, right = (self._operand(part) for part in node.parts)
        orders = _ORDERS[node.word]
        if isinstance(left, _Constant) and isinstance(right, _Constant):
            self._fold(node)
        elif isinstance(left, _Name) and isinstance(right, _Name):
            self._write(Step.ORDER, left.number, right.number, orders)
        elif isinstance(left, _Name) and isinstance(right, _Constant):
            self._number(left, orders, right.value, UNKNOWN)
        elif isinstance(left, _Constant) and isinstance(right, _Name):
            self._number(right, _turned(orders), left.value, UNKNOWN)
        else:
            raise _NotTranslatedError

    def _number(self, name: _Name, orders: int, value: Value, absent: int) -> None:
        if isinstance(value, float):
            self._write(Step.DOUBLE, name.number, orders, len(self.doubles), absent)
            self.doubles.append(value)
        elif isinstance(value, int):
            bits = 64 if isinstance(value, Long) else 32
            self._write(Step.INTEGER, name.number, orders, int(value), bits, absent)
        else:
            self._write(Step.PUSH, UNKNOWN)  # nothing has an order to what is no number

    def _search(self, node: Node) -> None:
        operand, (text,) = self._operand(node.parts[0]), node.texts
        if isinstance(operand, _Constant):
            self._fold(node)
        elif isinstance(operand, Node):
            self.condition(operand)
            self._map(FALSE, FALSE, FALSE)
        elif not text:
            self._write(Step.PUSH, FALSE)
        else:
            where = _WHERE[node.word]
            self._write(Step.SEARCH, operand.number, self._text(text), where, node.negated)

    def _fold(self, node: Node) -> None:
        """Write the answer of a condition that is the same for all messages."""
        try:
            answer = _ANSWERS[node.evaluate(lambda _: None)]  # type: ignore[index]
        except Sql92EvaluationError:
            answer = ERROR
        self._write(Step.PUSH, answer)

    def _operand(self, node: Node) -> "_Constant | _Name | Node":
        """Return an operand of a comparison; a node is a condition."""
        if node.kind is Kind.CONSTANT:
            return _Constant(node.value)
        if node.kind is Kind.PROPERTY:
            return self._name(node)
        if node.kind is not Kind.MINUS:
            return node
        inner = self._operand(node.parts[0])
        if isinstance(inner, Node):
            raise _NotTranslatedError  # no number, but it may be an error
        return _Constant(node.evaluate(lambda _: None))  # a text has no minus: then it is nothing

    def _name(self, node: Node) -> _Name:
        number = self.names.setdefault(node.name, len(self.names))
        if number >= NAMES_MAX:
            raise _NotTranslatedError
        _encoded(node.name)
        return _Name(number)

    def _text(self, text: str) -> int:
        self.texts.append(_encoded(text))
        return len(self.texts) - 1


def _encoded(text: str) -> bytes:
    """Return the only bytes that are this text."""
    if _REPLACEMENT in text:
        raise _NotTranslatedError
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a surrogate pair: no bytes are it
        raise _NotTranslatedError from None


def _borders(text: bytes) -> list[int]:
    borders = [0] * len(text)
    length = 0
    for at in range(1, len(text)):
        while length and text[at] != text[length]:
            length = borders[length - 1]
        length += text[at] == text[length]
        borders[at] = length
    return borders


def _turned(orders: int) -> int:
    """Return the orders as the other side sees them."""
    return orders & LEVEL | (ABOVE if orders & BELOW else 0) | (BELOW if orders & ABOVE else 0)


def _of_condition_and(value: Value) -> tuple[int, int, int]:
    """Return what `condition = value` is for a condition that is true, false, unknown."""
    if value is None:
        return FALSE, FALSE, TRUE
    if isinstance(value, bool):
        return _ANSWERS[value], _ANSWERS[not value], UNKNOWN
    if isinstance(value, str):
        return ERROR, ERROR, UNKNOWN
    return FALSE, FALSE, UNKNOWN


def _of_constant_and_condition(value: Value) -> tuple[int, int, int]:
    """Return what `value = condition` is for a condition that is true, false, unknown."""
    if value is None:
        return UNKNOWN, UNKNOWN, TRUE
    if isinstance(value, str):
        value = to_boolean(value)
    if isinstance(value, bool):
        return _ANSWERS[value], _ANSWERS[not value], FALSE
    return FALSE, FALSE, FALSE
