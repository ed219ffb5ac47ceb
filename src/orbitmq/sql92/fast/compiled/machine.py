"""Run programs over property strings, compiled. `program` says what each step does."""

from typing import Final

import numpy as np

from orbitmq.format.columns import Bytes, Ints
from orbitmq.format.compiled.arrays import frozen
from orbitmq.format.compiled.gather import inside
from orbitmq.format.compiled.jit import helper, kernel
from orbitmq.format.compiled.memory import SEPARATORS_BYTES, trailing_zeros
from orbitmq.format.compiled.text import next_separators, same_bytes
from orbitmq.sql92.fast.compiled.records import as_ints, require_inside, require_numbers
from orbitmq.sql92.fast.compiled.values import (
    contains,
    is_ascii,
    is_text,
    is_true,
    read_double,
    read_integer,
)
from orbitmq.sql92.fast.program import (
    ABOVE,
    ASK,
    BELOW,
    ERROR,
    FALSE,
    LEVEL,
    TRUE,
    UNKNOWN,
    Answers,
    Program,
    Step,
    Where,
)

_PUSH, _MAP, _SKIP, _JOIN, _SAME, _AGAINST = (int(step) for step in list(Step)[:6])
_ABSENT, _TRUTH, _IS_TEXT, _SEARCH = (int(step) for step in list(Step)[6:10])
_INTEGER, _DOUBLE, _EQUAL, _ORDER = (int(step) for step in list(Step)[10:])
_START, _END = int(Where.START), int(Where.END)
_NAME_END: Final = 1


def run(buffer: Bytes, at: Ints, lengths: Ints, program: Program) -> Answers:
    require_numbers(at, lengths)
    answers = np.zeros(len(at), dtype=np.uint8)
    bad = _run(
        frozen(buffer),
        as_ints(at),
        as_ints(lengths),
        program.steps,
        program.doubles,
        program.texts,
        program.data,
        program.borders,
        np.empty((program.name_count, 2), dtype=np.int64),
        np.empty(program.stack_size, dtype=np.int64),
        answers,
    )
    require_inside(bad, at, lengths, len(buffer))
    return answers


@kernel
def _run(buffer, at, lengths, steps, doubles, texts, data, borders, values, stack, answers):
    """Fill `answers`; return -1, or the index of the first string that lies outside the buffer."""
    for index in range(len(at)):
        if not inside(at[index], max(lengths[index], 0), len(buffer)):
            return index
        if lengths[index] < 0:
            continue
        _find_values(buffer, at[index], at[index] + lengths[index], texts, data, values)
        answer = _answer(buffer, values, steps, doubles, texts, data, borders, stack)
        if answer == TRUE or answer == ASK:  # noqa: PLR1714, SIM109 - this is what compiles well
            answers[index] = answer
    return -1


@helper
def _find_values(buffer, at, end, texts, data, values):
    """Set where the value of each name begins and ends; begin -1: there is none. The last one counts."""
    for name in range(len(values)):
        values[name, 0] = -1
    name_end = end  # none seen yet in this piece
    block = at
    bits = np.uint64(0)
    while at < end:
        while bits == np.uint64(0) and block < end:
            bits, block = next_separators(buffer, block, end)
        if bits == np.uint64(0):
            piece_end = end
        else:
            piece_end = block - SEPARATORS_BYTES + trailing_zeros(bits)
            bits &= bits - np.uint64(1)
            if buffer[piece_end] == _NAME_END:
                name_end = min(name_end, piece_end)
                continue
        length = name_end + 1 - at  # with the separator behind it
        if name_end + 1 < piece_end:
            for name in range(len(values)):
                if texts[name, 1] == length and same_bytes(
                    buffer, at, data, texts[name, 0], length
                ):
                    values[name, 0] = name_end + 1
                    values[name, 1] = piece_end
                    break
        at = piece_end + 1
        name_end = end


@helper
def _answer(buffer, values, steps, doubles, texts, data, borders, stack):
    top, step = -1, 0
    while step < len(steps):
        kind, one, two, three = steps[step, 0], steps[step, 1], steps[step, 2], steps[step, 3]
        four, five = steps[step, 4], steps[step, 5]
        step += 1
        if kind == _PUSH:
            top += 1
            stack[top] = one
        elif kind == _MAP:
            stack[top] = _mapped(stack[top], one, two, three)
        elif kind == _SKIP:
            if stack[top] == one or stack[top] >= ERROR:
                step = two
        elif kind == _JOIN:
            top -= 1
            stack[top] = _joined(one, stack[top], stack[top + 1])
        elif kind == _SAME:
            top -= 1
            stack[top] = _same(stack[top], stack[top + 1])
        elif kind == _AGAINST:
            if values[one, 0] < 0:
                stack[top] = _mapped(stack[top], FALSE, FALSE, TRUE)
            else:
                stack[top] = _mapped(stack[top], ERROR, ERROR, UNKNOWN)
        else:
            top += 1
            at, end = values[one, 0], values[one, 1]
            if kind == _ABSENT:
                stack[top] = TRUE if at < 0 else FALSE
            elif kind == _EQUAL:
                stack[top] = _equal(buffer, at, end, values[two, 0], values[two, 1])
            elif kind == _ORDER:
                stack[top] = _order(buffer, at, end, values[two, 0], values[two, 1], three)
            elif kind == _INTEGER:
                stack[top] = five if at < 0 else _integer(buffer, at, end, two, three, four)
            elif kind == _DOUBLE:
                stack[top] = four if at < 0 else _double(buffer, at, end, two, doubles[three])
            elif kind == _TRUTH:
                stack[top] = UNKNOWN if at < 0 else _told(is_true(buffer, at, end))
            elif kind == _IS_TEXT:
                stack[top] = (
                    four if at < 0 else _is_one_of(buffer, at, end, data, texts, two, three)
                )
            elif at < 0:
                stack[top] = FALSE
            else:
                found = _search(buffer, at, end, data, borders, texts, two, three)
                stack[top] = _told(found != (four != 0))
    return stack[0]


@helper
def _told(holds):
    return TRUE if holds else FALSE


@helper
def _mapped(answer, of_true, of_false, of_unknown):
    if answer == TRUE:
        return of_true
    if answer == FALSE:
        return of_false
    return of_unknown if answer == UNKNOWN else answer


@helper
def _joined(decides, left, right):
    if right == decides or right >= ERROR:
        return right
    return left if left == UNKNOWN else right


@helper
def _same(left, right):
    if left >= ERROR or right >= ERROR:
        return max(left, right)
    if left == UNKNOWN:
        return TRUE if right == UNKNOWN else UNKNOWN
    return TRUE if left == right else FALSE


@helper
def _equal(buffer, at, end, other_at, other_end):
    if at < 0:
        return TRUE if other_at < 0 else UNKNOWN
    if other_at < 0:
        return FALSE
    if end - at == other_end - other_at and same_bytes(buffer, at, buffer, other_at, end - at):
        return TRUE
    # Bytes that are no UTF-8 may be the same text.
    if is_ascii(buffer, at, end) or is_ascii(buffer, other_at, other_end):
        return FALSE
    return ASK


@helper
def _integer(buffer, at, end, orders, number, bits):
    read, value = read_integer(buffer, at, end, bits)
    if read != TRUE:
        return read
    order = BELOW if value < number else (ABOVE if value > number else LEVEL)
    return _told(order & orders != 0)


@helper
def _double(buffer, at, end, orders, number):
    read, value = read_double(buffer, at, end)
    if read != TRUE:
        return read
    order = BELOW if value < number else (ABOVE if value > number else LEVEL)
    return _told(order & orders != 0)


@helper
def _order(buffer, at, end, other_at, other_end, orders):
    if at < 0 or other_at < 0:
        return UNKNOWN
    read, value = read_double(buffer, at, end)
    if read != TRUE:
        return read
    read, other = read_double(buffer, other_at, other_end)
    if read != TRUE:
        return read
    if value == 0 and other == 0:  # as `Double.compare`: -0.0 is below 0.0
        value, other = np.copysign(1.0, value), np.copysign(1.0, other)
    order = BELOW if value < other else (ABOVE if value > other else LEVEL)
    return _told(order & orders != 0)


@helper
def _is_one_of(buffer, at, end, data, texts, first, count):
    for text in range(first, first + count):
        if is_text(buffer, at, end, data, texts[text, 0], texts[text, 1]):
            return TRUE
    return FALSE


@helper
def _search(buffer, at, end, data, borders, texts, text, where):
    text_at, length = texts[text, 0], texts[text, 1]
    if length > end - at:
        return False
    if where == _START:
        return same_bytes(buffer, at, data, text_at, length)
    if where == _END:
        return same_bytes(buffer, end - length, data, text_at, length)
    return contains(buffer, at, end, data, borders, text_at, length)
