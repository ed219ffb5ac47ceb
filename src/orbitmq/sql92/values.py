"""Values of an expression, compared and converted as Java does it.

Java    | here
String  | str
Integer | int
Long    | `Long`
Double  | float
Boolean | bool
"""

import math
import re
from typing import Final

from orbitmq.errors import Sql92EvaluationError

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_INTEGER: Final = re.compile(r"[+-]?0*\d{1,19}")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
_HEX: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_CHAR_MAX: Final = (
    "\uffff"  # Java looks for digits in single chars, and takes two for what is above
)
_NAMED: Final = {"NaN": math.nan, "Infinity": math.inf}
_TRIMMED: Final = "".join(map(chr, range(33)))  # what Java's trim takes away


class Long(int):
    """A 64-bit integer: what it is compared with may be as long."""

    __slots__ = ()


Value = str | int | float | bool | None


def to_integer(text: str) -> int:
    return _to_int(text, INT_MAX)


def to_long(text: str) -> Long:
    return Long(_to_int(text, LONG_MAX))


def _to_int(text: str, largest: int) -> int:
    if not _INTEGER.fullmatch(text) or max(text) > _CHAR_MAX:
        raise Sql92EvaluationError(f"{text!r} is no integer")
    digits = text.lstrip("+-").lstrip("0") or "0"  # Python refuses to read thousands of zeros
    number = -int(digits) if text.startswith("-") else int(digits)
    if not -largest - 1 <= number <= largest:
        raise Sql92EvaluationError(f"{text!r} does not fit an integer of up to {largest}")
    return number


def to_double(text: str) -> float:
    bare = text.strip(_TRIMMED)
    if _DECIMAL.fullmatch(bare):
        return float(bare.rstrip("fFdD"))
    sign, name = (-1.0, bare[1:]) if bare.startswith("-") else (1.0, bare.removeprefix("+"))
    if name in _NAMED:
        return sign * _NAMED[name]
    found = _HEX.fullmatch(bare)
    if found is None:
        raise Sql92EvaluationError(f"{text!r} is no number")
    try:
        return float.fromhex(found[1])
    except (OverflowError, ValueError):  # an exponent of any length
        return sign * math.inf


def to_boolean(text: str) -> bool:
    return text.lower() == "true"


_FROM_TEXT: Final = {bool: to_boolean, int: to_integer, Long: to_long, float: to_double}


def compare(left: Value, right: Value) -> int | None:
    """Return below 0, 0 or above 0; None: values of these kinds are never equal, nor in any order.

    Sql92EvaluationError: a text is not of the other side's kind.
    """
    kinds = type(left), type(right)
    if kinds[0] is not kinds[1]:
        if str in kinds:
            left, right = _alike(left, right)
        elif bool in kinds:
            return None
        elif float in kinds:
            left, right = float(left or 0), float(right or 0)
    if isinstance(left, float) and isinstance(right, float):
        return _double_order(left, right)
    return (left > right) - (left < right)  # type: ignore[operator]


def _alike(left: Value, right: Value) -> tuple[Value, Value]:
    """Convert the text of the two to the other's kind."""
    if isinstance(left, str):
        return _FROM_TEXT[type(right)](left), right
    if isinstance(left, bool):  # Java takes the wrong one for the text
        raise Sql92EvaluationError("a boolean on the left cannot be compared with a property")
    return left, _FROM_TEXT[type(left)](str(right))


def _double_order(left: float, right: float) -> int:
    """Compare as `Double.compare`: NaN is above all and equal to itself, -0.0 is below 0.0."""
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) - math.isnan(right)
    if left == right == 0:
        left, right = math.copysign(1, left), math.copysign(1, right)
    return (left > right) - (left < right)
