"""The table of consumer groups."""

from pathlib import Path

import pytest

from golden_stores import unpack
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.tables.groups import GroupTable, group_name_problem
from orbitmq.broker.tables.state_files import StateText, plain
from orbitmq.errors import StateFileError
from orbitmq.files.state_file import parse_state, read_state
from orbitmq.store.config import StoreConfig
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.bodies.group_config import GroupConfig

FILE = Path("subscriptionGroup.json")


def table(**config: object) -> GroupTable:
    broker = BrokerConfig(store=StoreConfig(root=Path("nowhere")), host="127.0.0.1", **config)  # type: ignore[arg-type]
    return GroupTable(broker, FakeClock(7))


@pytest.mark.parametrize("store", ["mixed", "timer", "crashed"])
def test_a_java_brokers_file_is_taken_over_and_written_back_the_same(
    store: str, tmp_path: Path
) -> None:
    path = unpack(store, tmp_path) / "config" / FILE
    before = path.read_text("utf-8")
    groups = table()
    start = plain(groups.snapshot())["subscriptionGroupTable"]

    groups.load(read_state(path), path)
    after = StateText().text(groups.snapshot())

    assert parse_state(after) == parse_state(before)
    lines = [{line.strip(",") for line in text.splitlines()} for text in (after, before)]
    assert lines[0] == lines[1]
    assert start.items() <= parse_state(before)["subscriptionGroupTable"].items()


def test_a_group_is_made_when_it_is_first_used() -> None:
    groups = table()

    assert groups.get("G") is None
    assert groups.get_or_create("G") == GroupConfig(group_name="G")
    assert "G" in groups
    assert groups.changes == groups.version.counter == 1


@pytest.mark.parametrize("name", ["", " ", "a b", "é", "x" * 121, "a@b"])
def test_a_name_that_no_group_may_have_makes_none(name: str) -> None:
    groups = table()

    assert groups.get_or_create(name) is None
    assert group_name_problem(name) is not None
    assert groups.changes == 0


def test_no_group_is_made_where_that_is_switched_off() -> None:
    assert table(auto_create_group=False).get_or_create("G") is None


def test_changes_are_told_and_counted() -> None:
    groups = table()
    told: list[int] = []
    groups.on_change.append(lambda group, config: told.append(groups.changes))

    groups.put(GroupConfig(group_name="G", retry_max_times=3))
    groups.set_forbidden("G", "T", 2)
    assert groups.forbidden("G", "T") == 2
    assert groups.snapshot()["forbiddenTable"] == {"G": {"T": 2}}
    groups.set_forbidden("G", "T", 0)
    assert groups.forbidden("G", "T") == 0
    assert groups.delete("G")
    assert not groups.delete("G")

    assert told == [1, 2, 3, 4]
    assert groups.snapshot()["forbiddenTable"] == {}


def test_a_file_that_is_no_table_of_groups_says_so() -> None:
    with pytest.raises(StateFileError, match="is no table of groups"):
        table().load({"subscriptionGroupTable": [1]}, FILE)
