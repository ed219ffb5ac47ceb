"""An SQL92 expression as a condition of Spark over the column `properties`.

It is true for the rows that the option `sql92` selects, and false for all others. Spark's logic has three
values too, but no errors: a message whose value does not fit is not wanted, whatever the rest of the
expression would say. So each step has two texts: what it answers, and when it is such an error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.errors import Sql92TranslationError
from orbitmq.sql92.expression import compiled
from orbitmq.sql92.fast.program import (
    ABOVE,
    BELOW,
    ERROR,
    FALSE,
    LEVEL,
    TRUE,
    UNKNOWN,
    Program,
    Step,
    Where,
)
from orbitmq.units import KiB

if TYPE_CHECKING:
    from pyspark.sql import Column

TEXT_MAX: Final = 256 * KiB
"""A longer condition takes Spark longer to read than messages by the option."""

_NULL: Final = "CAST(NULL AS BOOLEAN)"
_VALUES: Final = {TRUE: "TRUE", FALSE: "FALSE", UNKNOWN: _NULL, ERROR: _NULL}
_SYMBOLS: Final = {
    BELOW: "<",
    BELOW | LEVEL: "<=",
    LEVEL: "=",
    ABOVE | LEVEL: ">=",
    ABOVE: ">",
}
_SEARCHES: Final = {Where.ANYWHERE: "contains", Where.START: "startswith", Where.END: "endswith"}

# As `sql92.values` reads numbers.
_TRUE_WORD: Final = r"\A[tT][rR][uU][eE]\z"
_INTEGER: Final = r"\A[+-]?0*[\p{Nd}&&[\x{0}-\x{FFFF}]]{1,19}\z"
_DIGITS: Final = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_HEX: Final = r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+"
_NAMED: Final = r"[+-]?(?:NaN|Infinity)"
_SPACE: Final = r"[\x00-\x20]*"
_NEGATIVE: Final = rf"\A{_SPACE}-"


def sql92(expression: str, properties: str = "properties") -> "Column":
    """Return a condition that holds for messages that an SQL92 expression selects.

    `properties` names the column with the map of properties. Sql92SyntaxError: the text is no expression;
    Sql92TranslationError: it cannot be a condition of Spark; the option `sql92` takes it.
    """
    from pyspark.sql import functions

    return functions.expr(spark_sql(expression, properties))


def spark_sql(expression: str, properties: str = "properties") -> str:
    """Return the condition as a text in Spark's SQL."""
    program = compiled(expression).program
    if program is None:
        raise _refused(expression, "it has a part that has no counterpart there")
    found = _Translation(expression, program, f"`{properties.replace('`', '``')}`").condition()
    text = _and(f"coalesce({found.value}, FALSE)", _not(found.error) if found.error else "")
    if len(text) > TEXT_MAX:
        raise _refused(expression, f"that would take {len(text)} characters")
    return text


def _refused(expression: str, why: str) -> Sql92TranslationError:
    return Sql92TranslationError(
        f"{expression[:80]!r} cannot be a condition of Spark: {why}. Use the option sql92 of the table."
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a step answers, as text: null is unknown, and also stands where there is an error."""

    value: str
    error: str = ""  # when it is one; empty: never


class _Translation:
    """Reads the steps of one program, with texts in place of answers on its stack."""

    def __init__(self, expression: str, program: Program, column: str) -> None:
        self._expression, self._program, self._column = expression, program, column
        self._stack: list[_Answer] = []

    def condition(self) -> _Answer:
        of_stack: dict[int, Callable[[list[int]], None]] = {
            Step.SKIP: lambda _: None,  # the order of a chain is in its errors
            Step.MAP: self._map,
            Step.JOIN: self._join,
            Step.SAME: self._same,
            Step.AGAINST: self._against,
        }
        for step, *operands in self._program.steps.tolist():
            if step in of_stack:
                of_stack[step](operands)
            else:
                self._stack.append(self._pushed(step, operands))
            if len(self._stack[-1].value) + len(self._stack[-1].error) > TEXT_MAX:
                raise _refused(self._expression, "it is too long")
        return self._stack[-1]

    def _map(self, operands: list[int]) -> None:
        answer = self._stack.pop()
        of_true, of_false, of_unknown, *_ = operands
        value = _case(
            (answer.value, _VALUES[of_true]),
            (f"NOT {answer.value}", _VALUES[of_false]),
            otherwise=_VALUES.get(of_unknown, _NULL),
        )
        if (of_true, of_false, of_unknown) == (FALSE, TRUE, UNKNOWN):
            value = _not(answer.value)
        errors = [answer.error]
        errors += [f"coalesce({answer.value}, FALSE)"] if of_true == ERROR else []
        errors += [f"coalesce(NOT {answer.value}, FALSE)"] if of_false == ERROR else []
        self._stack.append(_Answer(value, _or(*errors)))

    def _join(self, operands: list[int]) -> None:
        right, left = self._stack.pop(), self._stack.pop()
        is_or = operands[0] == TRUE
        value = f"({left.value} {'OR' if is_or else 'AND'} {right.value})"
        # What follows the one that decides is not looked at.
        goes_on = _not(left.value) if is_or else left.value
        later = f"(coalesce({goes_on}, TRUE) AND {right.error})" if right.error else ""
        self._stack.append(_Answer(value, _or(left.error, later)))

    def _same(self, _: list[int]) -> None:
        right, left = self._stack.pop(), self._stack.pop()
        self._stack.append(_Answer(_equal(left.value, right.value), _or(left.error, right.error)))

    def _against(self, operands: list[int]) -> None:
        answer, text = self._stack.pop(), self._property(operands[0])
        value = _case((f"{text} IS NULL", f"{answer.value} IS NULL"), otherwise=_NULL)
        error = f"({text} IS NOT NULL AND {answer.value} IS NOT NULL)"
        self._stack.append(_Answer(value, _or(answer.error, error)))

    def _pushed(self, step: int, operands: list[int]) -> _Answer:
        if step == Step.PUSH:
            return _Answer(_VALUES[operands[0]], "TRUE" if operands[0] == ERROR else "")
        text = self._property(operands[0])
        match step:
            case Step.ABSENT:
                return _Answer(f"({text} IS NULL)")
            case Step.TRUTH:
                return _Answer(_like(text, _TRUE_WORD))
            case Step.IS_TEXT:
                _, first, count, absent, _ = operands
                texts = ", ".join(map(self._text, range(first, first + count)))
                return _Answer(_or_absent(f"({text} IN ({texts}))", absent))
            case Step.SEARCH:
                _, number, where, negated, _ = operands
                found = f"{_SEARCHES[Where(where)]}({text}, {self._text(number)})"
                return _Answer(f"coalesce({_not(found) if negated else found}, FALSE)")
            case Step.INTEGER:
                _, orders, number, bits, absent = operands
                return _integer(text, orders, number, bits, absent)
            case Step.DOUBLE:
                _, orders, number, absent, _ = operands
                return _double(text, orders, float(self._program.doubles[number]), absent)
            case Step.EQUAL:
                return _Answer(_equal(text, self._property(operands[1])))
            case _:  # ORDER
                return _ordered(text, self._property(operands[1]), operands[2])

    def _property(self, number: int) -> str:
        name = _literal(self._program.text(number)[:-1])
        return f"try_element_at({self._column}, {name})"

    def _text(self, number: int) -> str:
        return _literal(self._program.text(number))


def _literal(raw: bytes) -> str:
    """Return a text as its bytes: what a backslash means depends on Spark's settings."""
    return f"CAST(X'{raw.hex()}' AS STRING)"


def _like(text: str, pattern: str) -> str:
    return f"({text} RLIKE {_literal(pattern.encode())})"


def _integer(text: str, orders: int, number: int, bits: int, absent: int) -> _Answer:
    limit = 1 << (bits - 1)
    read = f"try_cast({text} AS DECIMAL(38, 0))"
    fits = f"({_like(text, _INTEGER)} AND {read} BETWEEN {-limit}BD AND {limit - 1}BD)"
    value = _case((fits, f"{read} {_SYMBOLS[orders]} {number}BD"), otherwise=_NULL)
    return _number(text, value, fits, absent)


def _as_double(text: str) -> tuple[str, str]:
    """Return when a text is a double, and which one it is then."""
    any_form = f"(?:{_DIGITS}[fFdD]?|{_HEX}[fFdD]?|{_NAMED})"
    fits = _like(text, rf"\A{_SPACE}{any_form}{_SPACE}\z")
    # Java reads a sign before NaN where Spark does not; what is behind the number is not read.
    found = _literal(f"{_HEX}|{_DIGITS}|NaN|[+-]?Infinity".encode())
    return fits, f"try_cast(regexp_extract({text}, {found}, 0) AS DOUBLE)"


def _double(text: str, orders: int, number: float, absent: int) -> _Answer:
    fits, read = _as_double(text)
    holds = f"{read} {_SYMBOLS[orders]} CAST('{number!r}' AS DOUBLE)"
    return _number(text, _case((fits, holds), otherwise=_NULL), fits, absent)


def _ordered(left: str, right: str, orders: int) -> _Answer:
    """Return when two properties are doubles in one of these orders. Java has two zeros, Spark has one."""
    (left_fits, one), (right_fits, other) = _as_double(left), _as_double(right)
    zeros = [f"if({_like(text, _NEGATIVE)}, 0, 1)" for text in (left, right)]
    symbol = _SYMBOLS[orders]
    holds = _case(
        (f"{one} = 0D AND {other} = 0D", f"{zeros[0]} {symbol} {zeros[1]}"),
        otherwise=f"{one} {symbol} {other}",
    )
    fits = f"({left_fits} AND {right_fits})"
    there = f"{left} IS NOT NULL AND {right} IS NOT NULL"
    value = _case((fits, holds), otherwise=_NULL)
    return _Answer(value, f"({there} AND NOT coalesce({fits}, FALSE))")


def _number(text: str, value: str, fits: str, absent: int) -> _Answer:
    if absent != UNKNOWN:
        value = _case((f"{text} IS NULL", _VALUES[absent]), otherwise=value)
    return _Answer(value, f"({text} IS NOT NULL AND NOT coalesce({fits}, FALSE))")


def _or_absent(value: str, absent: int) -> str:
    return value if absent == UNKNOWN else f"coalesce({value}, {_VALUES[absent]})"


def _equal(left: str, right: str) -> str:
    """Return when two are equal: nothing is equal to nothing, and unknown to what there is."""
    return _case(
        (f"{left} IS NULL", _case((f"{right} IS NULL", "TRUE"), otherwise=_NULL)),
        (f"{right} IS NULL", "FALSE"),
        otherwise=f"{left} = {right}",
    )


def _case(*cases: tuple[str, str], otherwise: str) -> str:
    whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in cases)
    return f"(CASE {whens} ELSE {otherwise} END)"


def _not(text: str) -> str:
    return f"(NOT {text})"


def _and(*texts: str) -> str:
    return f"({' AND '.join(text for text in texts if text)})"


def _or(*texts: str) -> str:
    kept = [text for text in texts if text]
    return f"({' OR '.join(kept)})" if kept else ""
