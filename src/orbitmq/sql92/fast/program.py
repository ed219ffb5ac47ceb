"""A program: an expression as a flat list of steps over the bytes of properties.

Its steps work on a stack of answers. Two of these are not answers of a condition: ERROR is a value that does
not fit, which ends an evaluation, and ASK leaves a message to the nodes of the expression.

step     | operands                           | what it does
PUSH     | answer                             | pushes it
MAP      | of true, of false, of unknown      | replaces the top answer; ERROR and ASK stay
SKIP     | decides, step                      | goes there if the top answer decides its chain, or ends it
JOIN     | decides                            | joins two answers of a chain: one that decides, else unknown
SAME     |                                    | whether the two top answers are equal
AGAINST  | name                               | whether the top answer is a property: ERROR if both are there
ABSENT   | name                               | pushes whether there is no such property
TRUTH    | name                               | pushes a property as a boolean; unknown: there is none
IS_TEXT  | name, text, count, absent          | pushes whether a property is one of so many texts
SEARCH   | name, text, where, negated         | pushes whether a text is part of a property
INTEGER  | name, orders, number, bits, absent | pushes whether it has one of these orders to a number
DOUBLE   | name, orders, number, absent       | the same of doubles; the number is one of `doubles`
EQUAL    | name, name                         | pushes whether two properties are equal
ORDER    | name, name, orders                 | pushes whether two doubles are in one of these orders

Names and texts are numbers of `texts`. `absent` is the answer for a message without the property. Orders are
bits: 1 below, 2 equal, 4 above.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import Bytes, Ints

FALSE, TRUE, UNKNOWN, ERROR, ASK = range(5)
"""Answers. From ERROR on they end an evaluation."""

BELOW: Final = 1
LEVEL: Final = 2
ABOVE: Final = 4

OPERANDS: Final = 5
NAMES_MAX: Final = 64
"""So many properties may an expression name: each piece of a property string is compared with all."""

Answers = npt.NDArray[np.uint8]  # TRUE, FALSE or ASK, one per message


class Step(IntEnum):
    """What a step does."""

    PUSH = 0
    MAP = 1
    SKIP = 2
    JOIN = 3
    SAME = 4
    AGAINST = 5
    ABSENT = 6
    TRUTH = 7
    IS_TEXT = 8
    SEARCH = 9
    INTEGER = 10
    DOUBLE = 11
    EQUAL = 12
    ORDER = 13


class Where(IntEnum):
    """Where in a property a text is searched."""

    ANYWHERE = 0
    START = 1
    END = 2


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """What the kernels run. Immutable."""

    steps: Ints  # rows of a step and its operands
    doubles: npt.NDArray[np.float64]
    texts: Ints  # rows of position and length in `data`; the names come first
    data: Bytes
    borders: Ints
    """Per byte of `data`: how long an end of its text up to here is also its start (Knuth, Morris, Pratt)."""
    name_count: int
    stack_size: int

    def __post_init__(self) -> None:
        for array in (self.steps, self.doubles, self.texts, self.data, self.borders):
            array.setflags(write=False)  # the one form that the kernels are compiled for

    def text(self, number: int) -> bytes:
        at, length = self.texts[number].tolist()
        return self.data[at : at + length].tobytes()


@dataclass(frozen=True, slots=True)
class FilterKernels:
    """One set of kernels. `plain` tells what each does."""

    name: str  # "plain" or "compiled"
    find_properties: Callable[[Bytes, Ints, Ints], tuple[Ints, Ints]]
    run: Callable[[Bytes, Ints, Ints, Program], Answers]
