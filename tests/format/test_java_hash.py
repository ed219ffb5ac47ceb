"""java_hash gives what Java's String.hashCode gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.format.java_hash import INT_MIN, java_hash


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("d", 100),
        ("订单", 1129459),
        ("\N{GRINNING FACE}", 1772899),
        ("polygenelubricants", INT_MIN),
        ("TopicTest#order_123", -1211765249),
    ],
)
def test_known_hashes(text, value):
    assert java_hash(text) == value


def test_equal_hashes_of_different_strings():
    assert java_hash("Aa") == java_hash("BB")
    assert java_hash("AaAa") == java_hash("BBBB") == java_hash("AaBB")


@given(st.text(st.characters(max_codepoint=0xFFFF)))
def test_hash_is_the_polynomial_over_code_units(text):
    expected = sum(ord(c) * 31 ** (len(text) - 1 - i) for i, c in enumerate(text)) % 2**32

    assert java_hash(text) % 2**32 == expected
    assert -(2**31) <= java_hash(text) < 2**31


@given(st.characters(min_codepoint=0x10000))
def test_a_character_outside_the_basic_plane_counts_as_two_surrogates(char):
    rest = ord(char) - 0x10000

    assert java_hash(char) == java_hash(chr(0xD800 + (rest >> 10)) + chr(0xDC00 + (rest & 0x3FF)))
