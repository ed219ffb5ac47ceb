"""From text to nodes: the words and rules of an expression.

As RocketMQ's own parser, it reads an expression as long as the text goes on as one, and does not look at
what follows: `a = 1 anything` is `a = 1`.
"""

import math
import re
from functools import cache
from typing import Any, Final

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args

from orbitmq.errors import Sql92SyntaxError
from orbitmq.sql92 import nodes
from orbitmq.sql92.nodes import Node
from orbitmq.sql92.values import INT_MAX, LONG_MAX, Long
from orbitmq.units import KiB

TEXT_MAX: Final = 16 * KiB
WORDS_MAX: Final = 2_000
"""An expression comes from a peer, and the event loop waits until it is read."""
_DIGITS_MAX: Final = len(str(LONG_MAX))
DEPTH_MAX: Final = 200
"""So deep may conditions stand in one another: each level is a call when a message is looked at."""

# Words that belong together are one token, so that half of them ends an expression. A comment up to the end
# of its line has a limit: else each of a thousand dashes would be searched to the end of the text.
GRAMMAR: Final = r"""
start: _or
_or: disjunction | _and
disjunction: _or OR _and
_and: conjunction | _equality
conjunction: _and AND _equality
_equality: equals | differs | is_null | is_not_null | _comparison
equals: _equality "=" _comparison
differs: _equality "<>" _comparison
is_null: _equality IS_NULL
is_not_null: _equality IS_NOT_NULL
_comparison: ordered | search | between | not_between | one_of | not_one_of | _unary
ordered: _comparison ORDER _unary
search: _comparison SEARCH STRING
between: _comparison BETWEEN _unary AND _unary
not_between: _comparison NOT_BETWEEN _unary AND _unary
one_of: _comparison IN "(" STRING ("," STRING)* ")"
not_one_of: _comparison NOT_IN "(" STRING ("," STRING)* ")"
_unary: "+" _unary | minus | negation | _primary
minus: "-" _unary
negation: NOT _unary
_primary: text | integer | real | true | false | null | name | "(" _or ")"
text: STRING
integer: INTEGER
real: REAL
true: TRUE
false: FALSE
null: NULL
name: NAME

OR.9: /OR(?![A-Z0-9_$])/i
AND.9: /AND(?![A-Z0-9_$])/i
IS_NULL.9: /IS(?:GAP)+NULL(?![A-Z0-9_$])/i
IS_NOT_NULL.9: /IS(?:GAP)+NOT(?:GAP)+NULL(?![A-Z0-9_$])/i
SEARCH.9: /(?:NOT(?:GAP)+)?(?:CONTAINS|STARTSWITH|ENDSWITH)(?![A-Z0-9_$])/i
BETWEEN.9: /BETWEEN(?![A-Z0-9_$])/i
NOT_BETWEEN.9: /NOT(?:GAP)+BETWEEN(?![A-Z0-9_$])/i
IN.9: /IN(?![A-Z0-9_$])/i
NOT_IN.9: /NOT(?:GAP)+IN(?![A-Z0-9_$])/i
NOT.8: /NOT(?![A-Z0-9_$])/i
TRUE.9: /TRUE(?![A-Z0-9_$])/i
FALSE.9: /FALSE(?![A-Z0-9_$])/i
NULL.9: /NULL(?![A-Z0-9_$])/i
ORDER.9: /[<>]=|>|<(?!>)/
STRING: /'(?:''|[^'])*'/
REAL.5: /[0-9]+\.[0-9]*(?:E[+-]?[0-9]+)?|\.[0-9]+(?:E[+-]?[0-9]+)?|[0-9]+E[+-]?[0-9]+/i
INTEGER.4: /0|[1-9][0-9]*L?/i
NAME: /[A-Z_$][A-Z0-9_$]*/i
SPACE.10: /(?:GAP)+/
%ignore SPACE
""".replace("GAP", r"[ \t\n\r\f]|--[^\n\r]{0,500}[\n\r]|\/\*[^*]*\*+(?:[^*\/][^*]*\*+)*\/")

_KEYWORD: Final = re.compile(
    r"(?:NOT|AND|OR|BETWEEN|IN|IS|NULL|TRUE|FALSE|CONTAINS|STARTSWITH|ENDSWITH)(?![A-Z0-9_$])", re.I
)


@v_args(inline=True)
class _Build(Transformer[Token, Node]):
    """Makes nodes of what the parser has found."""

    def start(self, found: Node) -> Node:
        return nodes.condition(found)

    def disjunction(self, left: Node, _: Token, right: Node) -> Node:
        return nodes.either(left, right)

    def conjunction(self, left: Node, _: Token, right: Node) -> Node:
        return nodes.both(left, right)

    def equals(self, left: Node, right: Node) -> Node:
        return nodes.equal(left, right)

    def differs(self, left: Node, right: Node) -> Node:
        return nodes.negation(nodes.equal(left, right))

    def is_null(self, operand: Node, _: Token) -> Node:
        return nodes.is_null(operand)

    def is_not_null(self, operand: Node, _: Token) -> Node:
        return nodes.negation(nodes.is_null(operand))

    def ordered(self, left: Node, symbol: Token, right: Node) -> Node:
        return nodes.ordered(left, str(symbol), right)

    def search(self, operand: Node, words: Token, text: Token) -> Node:
        kind = words.upper()
        name = next(each for each in ("CONTAINS", "STARTSWITH", "ENDSWITH") if kind.endswith(each))
        return nodes.search(operand, name, _unquoted(text), negated=kind.startswith("NOT"))

    def between(self, value: Node, _: Token, low: Node, __: Token, high: Node) -> Node:
        return nodes.between(value, low, high)

    def not_between(self, value: Node, _: Token, low: Node, __: Token, high: Node) -> Node:
        return nodes.not_between(value, low, high)

    def one_of(self, operand: Node, _: Token, *texts: Token) -> Node:
        return nodes.one_of(operand, [_unquoted(text) for text in texts])

    def not_one_of(self, operand: Node, _: Token, *texts: Token) -> Node:
        return nodes.negation(nodes.one_of(operand, [_unquoted(text) for text in texts]))

    def minus(self, operand: Node) -> Node:
        return nodes.minus(operand)

    def negation(self, _: Token, operand: Node) -> Node:
        return nodes.negation(operand)

    def text(self, token: Token) -> Node:
        return nodes.constant(_unquoted(token))

    def integer(self, token: Token) -> Node:
        digits = token.rstrip("lL")
        number = int(digits) if len(digits) <= _DIGITS_MAX else LONG_MAX + 1
        if number > LONG_MAX:
            raise Sql92SyntaxError(f"{token[:40]} is greater than {LONG_MAX}")
        return nodes.constant(number if number <= INT_MAX else Long(number))

    def real(self, token: Token) -> Node:
        number = float(token)
        if number == 0 or math.isinf(number):
            raise Sql92SyntaxError(f"{token} is no number above 0 that a double can hold")
        return nodes.constant(number)

    def true(self, _: Token) -> Node:
        return nodes.constant(True)

    def false(self, _: Token) -> Node:
        return nodes.constant(False)

    def null(self, _: Token) -> Node:
        return nodes.constant(None)

    def name(self, token: Token) -> Node:
        return nodes.property_of(str(token))


def _unquoted(token: Token) -> str:
    return str(token)[1:-1].replace("''", "'")


@cache
def _parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=_Build())


def parse(text: str) -> Node:
    """Return the condition that a text says. Sql92SyntaxError: it is none."""
    if len(text) > TEXT_MAX:
        raise Sql92SyntaxError(
            f"the expression has {len(text)} characters, at most {TEXT_MAX} are read"
        )
    found = _read(text)
    if found.depth > DEPTH_MAX:
        raise Sql92SyntaxError(
            f"conditions stand {found.depth} deep in one another, at most {DEPTH_MAX}"
        )
    return found


def _read(text: str) -> Node:
    state: Any = _parser().parse_interactive(text)  # Lark has no types for what follows
    at = words = 0
    try:
        for token in state.lexer_thread.lex(state.parser_state):
            at, words = token.start_pos, words + 1
            if words > WORDS_MAX:
                raise Sql92SyntaxError(f"the expression has more than {WORDS_MAX} words")
            state.feed_token(token)
            at = token.end_pos
    except UnexpectedToken:
        pass  # it ends before this word, or is none: the end of the input tells
    except UnexpectedCharacters as error:
        at = error.pos_in_stream or 0
        if not _KEYWORD.match(text, at):
            raise Sql92SyntaxError(f"{text[at]!r} at character {at + 1} is not known") from None
    try:
        node: Node = state.feed_eof()
    except UnexpectedToken:
        found = repr(text[at : at + 20]) if text[at:].strip() else "its end"
        raise Sql92SyntaxError(f"not understood at character {at + 1}: {found}") from None
    return node
