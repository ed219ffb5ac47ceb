"""Tag subscriptions."""

import pytest

from orbitmq.format.java_hash import java_hash
from orbitmq.store.reads.tag_filter import TagFilter


@pytest.mark.parametrize("subscription", [None, "", "*", " * ", "  ", "||", " || "])
def test_all_means_all(subscription: str | None) -> None:
    wanted = TagFilter.parse(subscription)

    assert wanted.matches_all
    assert wanted.by_unit(0, None)
    assert wanted.by_unit(java_hash("any"), None)


@pytest.mark.feature("F26")
def test_tags_are_split_trimmed_and_compared_by_hash() -> None:
    wanted = TagFilter.parse(" TagA||  Aa || || 订单")

    assert wanted.tags == {"TagA", "Aa", "订单"}
    assert wanted.matches_hash(java_hash("TagA"))
    assert wanted.matches_hash(java_hash("BB"))  # the same hash as Aa
    assert wanted.matches_hash(java_hash("订单"))
    assert not wanted.matches_hash(java_hash("TagB"))
    assert not wanted.matches_hash(0)
    assert wanted.by_record(memoryview(b""))


def test_an_unknown_tag_passes_and_only_the_low_32_bits_count() -> None:
    wanted = TagFilter.parse("polygenelubricants")

    assert wanted.matches_hash(None)
    assert wanted.matches_hash(-(2**31))
    assert wanted.matches_hash(2**31)
    assert wanted.matches_hash(2**40 + 2**31)
    assert not wanted.matches_hash(5)
