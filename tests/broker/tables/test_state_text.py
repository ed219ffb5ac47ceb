"""The text of state files."""

from pathlib import Path
from typing import Any

import pytest

from golden_stores import unpack
from orbitmq.broker.tables.state_files import StateText, plain
from orbitmq.files.state_file import format_state, read_state
from orbitmq.wire.bodies.group_config import GroupConfig
from orbitmq.wire.bodies.topic_config import DataVersion, TopicConfig

SNAPSHOTS: list[dict[str, Any]] = [
    {},
    {"dataVersion": DataVersion(counter=3), "topicConfigTable": {}},
    {"topicConfigTable": {"A": TopicConfig(topic_name="A", attributes={"x": "1"})}},
    {
        "subscriptionGroupTable": {'\u00e9\n"': GroupConfig(group_name="G")},
        "forbiddenTable": {"G": {"T": 2}},
    },
    {"groupTopicMap": {"G": ["T", "U"]}, "offsetTable": {"T@G": {0: 5, 11: 6}, "U@G": {}}},
    {"offsetTable": {1: 9, 18: 0}},
    {"offsetTable": {"1": 9, "-2": 0}, "plain": 5, "none": [1, "a"]},
]


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_the_text_is_that_of_a_state_file(snapshot: dict[str, Any]) -> None:
    assert StateText().text(snapshot) == format_state(plain(snapshot))


@pytest.mark.parametrize(
    "name", ["topics", "subscriptionGroup", "consumerOffset", "delayOffset", "consumerFilter"]
)
def test_a_java_brokers_files_keep_their_form(name: str, tmp_path: Path) -> None:
    state = read_state(unpack("mixed", tmp_path) / "config" / f"{name}.json")

    assert StateText().text(state) == format_state(state)


def test_rows_that_changed_have_another_text_the_next_time() -> None:
    text, a = StateText(), TopicConfig(topic_name="A")
    first = {"topicConfigTable": {"A": a, "B": TopicConfig(topic_name="B")}}
    second = {"topicConfigTable": {"A": a, "B": TopicConfig(topic_name="B", perm=4)}}
    third = {"topicConfigTable": {"A": a}}

    for snapshot in (first, second, third, first):
        assert text.text(snapshot) == format_state(plain(snapshot))


def test_typed_bodies_become_tables_in_alphabetical_order() -> None:
    value = plain({"b": GroupConfig(group_name="G"), "a": [GroupConfig(group_name="H")]})

    assert list(value) == ["b", "a"]
    assert list(value["b"]) == sorted(value["b"])
    assert "subscriptionDataSet" not in value["b"]
    assert value["a"][0]["groupName"] == "H"
