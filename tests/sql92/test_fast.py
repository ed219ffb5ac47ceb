"""Programs of expressions: kernels, compiled and plain, answer what the nodes answer."""

import threading
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import FormatError, Sql92SyntaxError
from orbitmq.format.compiled import jit
from orbitmq.sql92.expression import Sql92Expression
from orbitmq.sql92.fast.kernels import KernelChoice, compiled, plain, twins
from orbitmq.sql92.fast.program import ASK
from rounds import rounds
from sql92.filter_cases import by_nodes, golden_cases, golden_properties, joined

pytestmark = pytest.mark.feature("F28")

PLAIN, COMPILED = plain(), compiled()
NEIGHBOURS = 12

WORDS = [
    *("1", "-1", "0", "-0", "+7", "007", "2147483647", "2147483648", "-2147483648", "1_0", "٣"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "9" * 25, "𝟏"),
    *("1.5", "-1.5", ".5", "5.", "1e3", "1E-3", "1e", "1e+", "2.5f", "2.5D", " 1.5 ", "1.5 x", "."),
    *("0.0", "-0.0", "1e22", "1e23", "9007199254740993", "123456789012345678.5", "0.1", "1e400"),
    *("NaN", "-NaN", "Infinity", "-Infinity", "0x1p0", "0x", "-", "+", "1..2", "1e5000", "Nothing"),
    *("true", "TRUE", "tRuE", "false", "x", "it's", "Rome", "Roma", "aaab", "aab", "é", "ëé", "K"),
]
RAW = [b"\xff", b"\xfe", b"a\xc3", b"\xc3\xa9", b"\xed\xa0\x80", b"\x01", b"1\x01", b"\xe2\x82\xff"]
NAMES = ["a", "b", "ab", "TAGS", "$x"]

values = st.one_of(
    st.sampled_from([*(word.encode() for word in WORDS), *RAW]),
    st.integers(-(2**70), 2**70).map(lambda number: str(number).encode()),
    st.floats().map(lambda number: repr(number).encode()),
    st.text(max_size=8).map(lambda text: text.encode("utf-8", "replace")),
    st.binary(max_size=8),
)
pieces = st.tuples(
    st.sampled_from([*(name.encode() for name in NAMES), b"", b"a\x01", b"c", b"aa"]),
    st.sampled_from([b"\x01", b"\x01", b"\x01", b""]),
    values,
).map(b"".join)
property_strings = st.lists(pieces, max_size=6).map(b"\x02".join)

names = st.sampled_from(NAMES)
texts = st.one_of(st.sampled_from(WORDS), st.text(max_size=5), st.just("\ufffd"))
quoted = texts.map(lambda text: "'" + text.replace("'", "''") + "'")
integers = st.sampled_from(["0", "1", "7", "1000", "2147483648", "9223372036854775807", "3L"])
reals = st.sampled_from(["1.5", ".5", "1e3", "0.1", "1e22", "123456789012345678.5", "1e-3"])
numbers = st.one_of(integers, reals, integers.map("-{}".format), names.map("-{}".format))
orders = st.sampled_from([">", ">=", "<", "<="])


def _conditions() -> st.SearchStrategy[str]:
    operand = st.one_of(names, numbers, quoted, st.sampled_from(["TRUE", "FALSE"]))
    leaf = st.one_of(
        st.tuples(operand, st.sampled_from(["=", "<>"]), operand).map(" ".join),
        st.tuples(names | numbers, orders, names | numbers).map(" ".join),
        st.tuples(names, st.sampled_from(["IS NULL", "IS NOT NULL"])).map(" ".join),
        st.builds("{} BETWEEN {} AND {}".format, names, numbers, numbers),
        st.builds("{} NOT BETWEEN {} AND {}".format, names, numbers, numbers),
        st.builds(
            lambda name, word, wanted: f"{name} {word} ({', '.join(wanted)})",
            names,
            st.sampled_from(["IN", "NOT IN"]),
            st.lists(quoted, min_size=1, max_size=4),
        ),
        st.builds(
            "{} {} {}".format,
            operand,
            st.sampled_from(
                [
                    *("CONTAINS", "STARTSWITH", "ENDSWITH"),
                    *("NOT CONTAINS", "NOT STARTSWITH", "NOT ENDSWITH"),
                ]
            ),
            quoted,
        ),
        names,
        st.sampled_from(["TRUE", "FALSE", "NULL"]),
    )

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        bracketed = inner.map("({})".format)
        return st.one_of(
            st.tuples(bracketed, st.sampled_from(["AND", "OR", "="]), bracketed).map(" ".join),
            st.lists(bracketed, min_size=2, max_size=4).map(" AND ".join),
            st.lists(bracketed, min_size=2, max_size=4).map(" OR ".join),
            bracketed.map("NOT {}".format),
            bracketed.map("{} IS NULL".format),
            st.tuples(bracketed, st.just("="), operand).map(" ".join),
            st.tuples(operand, st.just("="), bracketed).map(" ".join),
        )

    return st.recursive(leaf, larger, max_leaves=6)


def check(text: str, strings: list[bytes]) -> None:
    """Compare the nodes of an expression with both kernels, over all strings."""
    expression = Sql92Expression.compile(text)
    buffer, at, lengths = joined(strings)
    expected = by_nodes(expression, strings)
    for kernels in (PLAIN, COMPILED):
        found = expression.matches_many(kernels, buffer, at, lengths)
        assert found.tolist() == expected, (kernels.name, text)


def test_kernels_answer_every_golden_expression_as_its_nodes_do():
    cases = golden_cases()
    strings = [golden_properties(case) for case in cases]
    checked = 0
    for number, case in enumerate(cases):
        if case["result"] != "parse":
            check(case["expression"], strings[number : number + NEIGHBOURS])
            checked += 1

    assert checked > 3_600


@settings(max_examples=rounds(800), deadline=None)
@given(_conditions(), st.lists(property_strings, min_size=1, max_size=8))
def test_kernels_answer_as_the_nodes_do_whatever_the_expression_and_the_bytes(text, strings):
    try:
        Sql92Expression.compile(text)
    except Sql92SyntaxError:
        return
    check(text, strings)


@pytest.mark.parametrize(
    "text", ["a > 1", "a > 1.5", "a = 'x'", "a = b", "a > b", "a = TRUE", "'1' = a"]
)
def test_kernels_read_every_odd_value_as_the_nodes_do(text):
    odd = [word.encode() for word in WORDS] + RAW
    strings = [b"a\x01" + one + b"\x02b\x01" + other for one in odd for other in odd]

    check(text, strings)


@pytest.mark.parametrize("text", ["a = '1'", "a = '2'", "a IS NULL", "b = '1'", "a = '2\x01b'"])
def test_kernels_find_a_property_where_the_nodes_find_it(text):
    odd = [
        *(b"a\x011\x02a\x012", b"a\x012\x02a\x011\x02", b"a\x011\x02a\x01", b"a\x011\x02a"),
        *(b"a\x012\x01b", b"a\x01b\x011", b"a\x02b\x011", b"\x011\x02a\x012", b"ab\x011", b"a"),
        *(b"", b"\x01", b"\x02", b"\x02\x02a\x011", b"b\x01" + b"x" * 40 + b"\x02a\x011"),
    ]
    padding = [b"k\x01" + b"v" * length + b"\x02" for length in (0, 1, 26, 27, 28, 29, 30, 60)]
    strings = [*odd, *(before + one for before in padding for one in odd)]
    check(text, strings)
    for one in odd:  # at the very beginning of a buffer, and its end
        check(text, [one])


@pytest.mark.parametrize(
    "value",
    [  # whose digits, or whose power of ten, is no double: two roundings would make another of them
        *("429949516.00747580", "1373813179994.67096", "10050006534454968.9"),
        *("7143772583.1358457", "190405.822404595079", "213994271.507156814"),
        *("8711855555645949e26", "6698930253608164e-29", "7950944599675728e-28"),
        *("4410765500650201e28", "391698738142569e-25", "1534371256075993e24"),
    ],
)
@pytest.mark.parametrize("order", [">=", "<="])
def test_kernels_round_a_number_once(value, order):
    check(f"a {order} {float(value)!r}", [f"a\x01{value}".encode()])
    assert by_nodes(
        Sql92Expression.compile(f"a {order} {float(value)!r}"), [f"a\x01{value}".encode()]
    ) == [True]


def test_nearly_all_messages_are_decided_without_their_nodes():
    cases = [case for case in golden_cases() if case["result"] != "parse"]
    translated = asked = 0
    for case in cases:
        program = Sql92Expression.compile(case["expression"]).program
        if program is not None:
            translated += 1
            asked += int((COMPILED.run(*joined([golden_properties(case)]), program) == ASK).sum())

    assert translated > 0.95 * len(cases)
    assert asked < 0.1 * translated


@pytest.mark.parametrize(
    "text",
    [
        "a = '\ufffd'",
        " OR ".join(f"a{number} = '1'" for number in range(65)),
        "-(a = 1) IS NULL",
    ],
)
def test_what_has_no_program_is_asked_by_its_nodes(text):
    assert Sql92Expression.compile(text).program is None
    check(text, [b"a\x01\xff\x02", b"a64\x011", b"a\x011", b"a\x01x"])


@pytest.mark.parametrize("value", ["1.5", "-7.25", "1e3", "20", "0.1", "n/a"])
def test_ordinary_numbers_are_decided_by_the_kernels(value):
    program = Sql92Expression.compile("a > 1.5").program
    assert program is not None

    answers = COMPILED.run(*joined([f"a\x01{value}".encode()]), program)

    assert answers.tolist() == PLAIN.run(*joined([f"a\x01{value}".encode()]), program).tolist()


def test_a_long_search_looks_at_each_byte_once():
    text = "a" * 8_000 + "b"
    program = Sql92Expression.compile(f"a CONTAINS '{text}'").program
    assert program is not None
    strings = [b"a\x01" + b"a" * 30_000, b"a\x01" + b"a" * 20_000 + b"b"] * 50

    assert COMPILED.run(*joined(strings), program).tolist() == [0, 1] * 50


@pytest.mark.parametrize("kernels", twins(), ids=lambda kernels: kernels.name)
def test_a_damaged_record_is_not_wanted_and_a_place_outside_is_an_error(kernels):
    program = Sql92Expression.compile("TRUE").program
    assert program is not None
    buffer, at, lengths = joined([b"a\x011", b"a\x012"])

    lengths[0] = -1
    assert kernels.run(buffer, at, lengths, program).tolist() == [0, 1]
    for bad_at, bad_length in ((-1, 3), (len(buffer) - 2, 3), (2**62, 2**62)):
        at[1], lengths[1] = bad_at, bad_length
        with pytest.raises(FormatError):
            kernels.run(buffer, at, lengths, program)


def test_the_compiled_kernels_are_loaded_after_many_messages_and_by_one_thread():
    choice = KernelChoice(plain_messages=100)

    assert choice.for_messages(99).name == "plain"
    choice.for_messages(1)
    threads = [thread for thread in threading.enumerate() if thread.name == "orbitmq-filters"]
    assert len(threads) <= 1
    choice.wait()
    assert choice.for_messages(1).name == "compiled"


def test_closing_one_set_of_kernels_leaves_those_that_another_thread_loads(monkeypatch):
    late = types.SimpleNamespace(
        py_func=types.SimpleNamespace(__module__="orbitmq.wire.fast.compiled.frames"), signatures=[]
    )
    monkeypatch.setattr(jit, "_KERNELS", [*jit.kernels(), late])

    jit.close("orbitmq.sql92.fast.compiled")
    late.py_func = types.SimpleNamespace(__module__="orbitmq.sql92.fast.compiled.late")
    with pytest.raises(AssertionError):
        jit.close("orbitmq.sql92.fast.compiled")


def test_no_messages_have_no_answers():
    program = Sql92Expression.compile("a = 1").program
    assert program is not None
    none = np.empty(0, dtype=np.int64)

    for kernels in twins():
        assert len(kernels.run(np.empty(0, dtype=np.uint8), none, none, program)) == 0
