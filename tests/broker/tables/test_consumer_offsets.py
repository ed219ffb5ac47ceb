"""Consumer offsets: reported, reset, saved."""

from pathlib import Path

import pytest

from golden_stores import unpack
from orbitmq.broker.tables.consumer_offsets import ConsumerOffsets
from orbitmq.broker.tables.state_files import StateText
from orbitmq.errors import StateFileError
from orbitmq.files.state_file import parse_state, read_state
from orbitmq.testing.fake_clock import FakeClock

FILE = Path("consumerOffset.json")


@pytest.fixture
def offsets() -> ConsumerOffsets:
    return ConsumerOffsets(FakeClock(9))


@pytest.mark.parametrize("store", ["mixed", "timer", "crashed"])
def test_a_java_brokers_file_is_taken_over_and_written_back_the_same(
    offsets: ConsumerOffsets, store: str, tmp_path: Path
) -> None:
    path = unpack(store, tmp_path) / "config" / FILE
    before = parse_state(path.read_text("utf-8"))

    offsets.load(read_state(path), path)
    after = parse_state(StateText().text(offsets.snapshot()))

    for state in (before, after):
        state["groupTopicMap"] = {g: set(topics) for g, topics in state["groupTopicMap"].items()}
    assert list(after) == list(before)
    assert after == before


def test_what_a_consumer_reports_is_kept_smaller_offsets_too(offsets: ConsumerOffsets) -> None:
    assert offsets.get("G", "T", 0) == -1

    assert offsets.commit("G", "T", 0, 10)
    assert offsets.commit("G", "T", 0, 4)
    offsets.commit("G", "T", 1, 7)
    offsets.commit("H", "T", 0, 1)

    assert offsets.get("G", "T", 0) == 4
    assert offsets.get("G", "T", 2) == -1
    assert offsets.queues("G", "T") == {0: 4, 1: 7}
    assert offsets.groups_of("T") == {"G", "H"}
    assert offsets.topics_of("G") == {"T"}


def test_reports_are_passed_over_until_a_pull_has_taken_the_reset(offsets: ConsumerOffsets) -> None:
    offsets.commit("G", "T", 0, 100)

    offsets.reset("G", "T", 0, 5)

    assert offsets.get("G", "T", 0) == 5
    assert not offsets.commit("G", "T", 0, 101)
    assert offsets.commit("G", "T", 1, 3)  # another queue
    assert offsets.take_reset("G", "T", 1) is None
    assert offsets.take_reset("G", "T", 0) == 5
    assert offsets.take_reset("G", "T", 0) is None
    assert offsets.get("G", "T", 0) == 5
    assert offsets.commit("G", "T", 0, 6)


def test_a_reset_is_saved_at_once_as_the_groups_offset(offsets: ConsumerOffsets) -> None:
    offsets.commit("G", "T", 0, 100)
    offsets.reset("G", "T", 0, 5)

    assert offsets.snapshot()["offsetTable"] == {"T@G": {0: 5}}


def test_a_snapshot_does_not_follow_later_reports(offsets: ConsumerOffsets) -> None:
    offsets.commit("G", "T", 0, 1)
    snapshot = offsets.snapshot()

    offsets.commit("G", "T", 0, 2)

    assert snapshot["offsetTable"] == {"T@G": {0: 1}}


def test_pulls_are_remembered_beside_reports(offsets: ConsumerOffsets) -> None:
    offsets.commit("G", "T", 0, 10)
    assert offsets.pull_offset("G", "T", 0) == 10

    offsets.remember_pull("G", "T", 0, 42)

    assert offsets.pull_offset("G", "T", 0) == 42
    assert offsets.get("G", "T", 0) == 10


def test_groups_and_topics_are_cloned_and_forgotten(offsets: ConsumerOffsets) -> None:
    for topic in ("A", "B"):
        offsets.commit("G", topic, 0, 3)
        offsets.reset("G", topic, 1, 4)
        offsets.remember_pull("G", topic, 0, 5)
    offsets.clone("G", "H", "A")
    offsets.clone("G", "H", "Unknown")
    offsets.commit("G", "A", 0, 9)
    assert offsets.queues("H", "A") == {0: 3, 1: 4}

    offsets.remove_topic("A")
    assert offsets.groups_of("A") == set()
    assert offsets.take_reset("G", "A", 1) is None
    offsets.remove_group("G")

    assert offsets.all() == {}
    assert offsets.pull_offset("G", "B", 0) == -1


def test_many_reports_make_a_new_version(offsets: ConsumerOffsets) -> None:
    for offset in range(1_000):
        offsets.commit("G", "T", 0, offset)

    assert offsets.version.counter == 2


@pytest.mark.parametrize(
    "state",
    [
        {"offsetTable": {"no separator": {}}},
        {"offsetTable": {"T@G": [1]}},
        {"offsetTable": {"T@G": {"x": 1}}},
        {"offsetTable": {"T@G": {"0": None}}},
        {"offsetTable": 5},
        {"offsetTable": {}, "dataVersion": {"counter": []}},
    ],
)
def test_a_file_that_is_no_table_of_offsets_says_so(
    offsets: ConsumerOffsets, state: dict[str, object]
) -> None:
    with pytest.raises(StateFileError, match="is no table of offsets"):
        offsets.load(state, FILE)
