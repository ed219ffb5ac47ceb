"""Runs programs in Python: the reference for `compiled`, and in use until that is loaded.

Values are converted and compared by the functions that the nodes of an expression use. So this one never
has to leave a message to them.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from orbitmq.errors import FormatError, Sql92EvaluationError
from orbitmq.format.columns import Bytes, Ints
from orbitmq.format.plain.gather import require_pieces
from orbitmq.format.properties import find_property
from orbitmq.format.record import properties_place
from orbitmq.sql92.fast.program import (
    ABOVE,
    BELOW,
    ERROR,
    FALSE,
    LEVEL,
    TRUE,
    UNKNOWN,
    Answers,
    FilterKernels,
    Program,
    Step,
    Where,
)
from orbitmq.sql92.values import Long, compare, to_boolean, to_double

_ORDERS: Final = {-1: BELOW, 0: LEVEL, 1: ABOVE}
_SEARCHES: Final[dict[int, Callable[[str, str], bool]]] = {
    Where.ANYWHERE: str.__contains__,
    Where.START: str.startswith,
    Where.END: str.endswith,
}


def find_properties(buffer: Bytes, at: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """Return where the property strings of records begin, and their lengths; -1: there is no record.

    Raises FormatError if a record would lie outside the buffer.
    """
    require_pieces(at, sizes, len(buffer))
    places = [
        _place(buffer.data[start : start + size], start)
        for start, size in zip(at.tolist(), sizes.tolist(), strict=True)
    ]
    found = np.array(places, dtype=np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _place(record: memoryview, start: int) -> tuple[int, int]:
    try:
        at, end = properties_place(record)
    except FormatError:
        return 0, -1
    return start + at, end - at


def run(buffer: Bytes, at: Ints, lengths: Ints, program: Program) -> Answers:
    """Return for each property string whether the program says TRUE, FALSE or ASK.

    A length of -1 is a damaged record: nobody wants it. Raises FormatError if another one lies outside the
    buffer.
    """
    require_pieces(at, np.maximum(lengths, 0), len(buffer))
    machine = _Machine(program)
    answers = np.zeros(len(at), dtype=np.uint8)
    for index, (start, length) in enumerate(zip(at.tolist(), lengths.tolist(), strict=True)):
        if length >= 0:
            raw = buffer[start : start + length].tobytes()
            answers[index] = TRUE if machine.answer(raw) == TRUE else FALSE
    return answers


class _Machine:
    """Answers for one property string after the other."""

    def __init__(self, program: Program) -> None:
        texts = [program.text(number).decode() for number in range(len(program.texts))]
        self._steps = program.steps.tolist()
        self._doubles = program.doubles.tolist()
        self._names = [text[:-1] for text in texts[: program.name_count]]
        self._texts = texts
        self._raw = b""

    def answer(self, raw: bytes) -> int:
        self._raw = raw
        stack: list[int] = []
        at, steps = 0, self._steps
        while at < len(steps):
            step, *operands = steps[at]
            at += 1
            match step:
                case Step.PUSH:
                    stack.append(operands[0])
                case Step.MAP:
                    stack[-1] = _mapped(stack[-1], operands)
                case Step.SKIP:
                    if stack[-1] == operands[0] or stack[-1] >= ERROR:
                        at = operands[1]
                case Step.JOIN:
                    stack[-2:] = [_joined(operands[0], *stack[-2:])]
                case Step.SAME:
                    stack[-2:] = [_same(*stack[-2:])]
                case Step.AGAINST:
                    absent = self._value(operands[0]) is None
                    of_known, of_unknown = (FALSE, TRUE) if absent else (ERROR, UNKNOWN)
                    stack[-1] = _mapped(stack[-1], [of_known, of_known, of_unknown])
                case _:
                    stack.append(self._of_properties(step, operands))
        return stack[-1]

    def _value(self, name: int) -> str | None:
        return find_property(self._raw, self._names[name])

    def _of_properties(self, step: int, operands: list[int]) -> int:
        value = self._value(operands[0])
        try:
            match step:
                case Step.ABSENT:
                    return _answer(value is None)
                case Step.TRUTH:
                    return UNKNOWN if value is None else _answer(to_boolean(value))
                case Step.IS_TEXT:
                    _, first, count, absent, _ = operands
                    return (
                        absent
                        if value is None
                        else _answer(value in self._texts[first : first + count])
                    )
                case Step.SEARCH:
                    _, text, where, negated, _ = operands
                    found = value is not None and _SEARCHES[where](value, self._texts[text])
                    return _answer(value is not None and found is not bool(negated))
                case Step.INTEGER:
                    _, orders, number, bits, absent = operands
                    other = Long(number) if bits == 64 else number
                    return absent if value is None else _in_order(value, other, orders)
                case Step.DOUBLE:
                    _, orders, number, absent, _ = operands
                    return (
                        absent if value is None else _in_order(value, self._doubles[number], orders)
                    )
                case Step.EQUAL:
                    return _equal(value, self._value(operands[1]))
                case _:  # ORDER
                    other_text = self._value(operands[1])
                    if value is None or other_text is None:
                        return UNKNOWN
                    return _in_order(value, to_double(other_text), operands[2])
        except Sql92EvaluationError:
            return ERROR


def _answer(holds: bool) -> int:
    return TRUE if holds else FALSE


def _mapped(answer: int, by_answer: list[int]) -> int:
    """Return the answer's answer; `by_answer` is for true, false, unknown."""
    if answer >= ERROR:
        return answer
    return by_answer[(TRUE, FALSE, UNKNOWN).index(answer)]


def _joined(decides: int, left: int, right: int) -> int:
    """Join answers of a chain; the left one does not decide it, or this would not be asked."""
    if right == decides or right >= ERROR:
        return right
    return UNKNOWN if UNKNOWN in (left, right) else right


def _same(left: int, right: int) -> int:
    if left >= ERROR or right >= ERROR:
        return max(left, right)
    if left == UNKNOWN:
        return TRUE if right == UNKNOWN else UNKNOWN
    return _answer(left == right)


def _equal(left: str | None, right: str | None) -> int:
    if left is None:
        return TRUE if right is None else UNKNOWN
    return _answer(left == right)


def _in_order(value: str, other: float, orders: int) -> int:
    """Compare a property with a number of any kind, which says how the property is read."""
    order = compare(value, other)
    return _answer(order is not None and bool(_ORDERS[order] & orders))


KERNELS: Final = FilterKernels("plain", find_properties, run)
