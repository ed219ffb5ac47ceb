"""Topic attributes: the text in which tools change them, and RocketMQ's rules for it."""

import pytest

from orbitmq.broker.tables.topic_attributes import (
    AttributeChangeError,
    changed_attributes,
    parse_changes,
)


def test_text_of_several_changes_is_read() -> None:
    text = "+queue.type=BatchCQ,+message.type=FIFO,-reserve.time"

    assert parse_changes(text) == {
        "+queue.type": "BatchCQ",
        "+message.type": "FIFO",
        "-reserve.time": "",
    }
    assert parse_changes("") == parse_changes(None) == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("queue.type=BatchCQ", "add/alter attribute format is wrong: queue.type"),
        ("+queue.type=", "add/alter attribute format is wrong: +queue.type"),
        ("queue", "delete attribute format is wrong: queue"),
        ("+a=1,+a=2", "key duplication: +a"),
    ],
)
def test_text_that_says_nothing_sensible_is_refused(text: str, problem: str) -> None:
    with pytest.raises(AttributeChangeError) as caught:
        parse_changes(text)

    assert str(caught.value) == problem


def test_new_topic_takes_every_attribute() -> None:
    changes = {"+queue.type": "BatchCQ", "+reserve.time": "3600000"}

    assert changed_attributes(None, changes) == {"queue.type": "BatchCQ", "reserve.time": "3600000"}


def test_topic_keeps_what_is_not_changed_and_drops_what_is_removed() -> None:
    current = {"queue.type": "BatchCQ", "message.type": "NORMAL", "reserve.time": "1"}

    changed = changed_attributes(current, {"+message.type": "FIFO", "-reserve.time": ""})

    assert changed == {"queue.type": "BatchCQ", "message.type": "FIFO"}


@pytest.mark.parametrize(
    ("current", "changes", "problem"),
    [
        (None, {"+nope": "1"}, "unsupported key: nope"),
        (
            None,
            {"-reserve.time": ""},
            "only add attribute is supported while creating topic. key: reserve.time",
        ),
        ({}, {"-reserve.time": ""}, "attempt to delete a nonexistent key: reserve.time"),
        (
            {},
            {"+queue.type": "BatchCQ"},
            "attempt to update an unchangeable attribute. key: queue.type",
        ),
        (None, {"+queue.type": "X"}, "value is not in set: [BatchCQ, SimpleCQ]"),
        (None, {"+reserve.time": "-2"}, "value is not in range(-1, 9223372036854775807)"),
        (None, {"+reserve.time": "soon"}, 'For input string: "soon"'),
        (None, {"+": "1"}, "kv string format wrong."),
        (
            {"reserve.time": "1"},
            {"+reserve.time": "2", "-reserve.time": ""},
            "alter duplication key. key: reserve.time",
        ),
        ({}, {"*reserve.time": "2"}, "wrong format key: reserve.time"),
    ],
)
def test_change_that_cannot_be_made_is_refused_in_rocketmqs_words(
    current: dict[str, str] | None, changes: dict[str, str], problem: str
) -> None:
    with pytest.raises(AttributeChangeError) as caught:
        changed_attributes(current, changes)

    assert str(caught.value) == problem
