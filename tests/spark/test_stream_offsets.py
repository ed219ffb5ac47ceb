"""Offsets of a stream over topics: JSON, new queues, ranges, tasks, and how limits are shared."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import PipelineError
from orbitmq.spark.streams.offsets import (
    INITIAL,
    ROWS_PER_TASK_MAX,
    QueueRange,
    StreamOffset,
    flat,
    moved,
    ranges,
    shares,
    take_bytes,
    take_rows,
    tasks,
)
from orbitmq.wire.bodies.message_queue import MessageQueue

Q0, Q1, Q2 = (MessageQueue("Orders", "broker-a", number) for number in range(3))

queues = st.builds(
    MessageQueue,
    st.sampled_from(["Orders", "Stock", "%RETRY%g"]),
    st.sampled_from(["broker-a", "broker-b"]),
    st.integers(0, 20),
)
offsets = st.dictionaries(queues, st.integers(0, 2**63 - 1), max_size=12)
counts = st.lists(st.integers(0, 50), min_size=1, max_size=12)


# --- JSON ---


def test_offset_in_the_checkpoint_names_topic_broker_and_queue() -> None:
    offset = StreamOffset({Q1: 80, Q0: 120}, {Q1: 75})

    assert offset.to_json() == {
        "queues": {"Orders": {"broker-a": {"0": 120, "1": 80}}},
        "from": {"Orders": {"broker-a": {"1": 75}}},
    }


@given(ends=offsets, begins=offsets)
def test_offset_comes_back_from_its_json_text_and_gives_the_same_text(ends, begins) -> None:
    offset = StreamOffset(ends, begins)
    text = json.dumps(offset.to_json())

    read = StreamOffset.from_json(json.loads(text))

    assert read == offset
    assert json.dumps(read.to_json()) == text


def test_initial_offset_is_empty_and_not_the_offset_of_a_started_stream_without_queues() -> None:
    assert INITIAL.to_json() == {}
    assert StreamOffset.from_json({}) is INITIAL
    assert StreamOffset().to_json() != INITIAL.to_json()


@pytest.mark.parametrize(
    "value",
    [
        {"log": 7},
        {"queues": 3, "from": {}},
        {"queues": {"T": {"b": {"0": -1}}}, "from": {}},
        {"queues": {"T": {"b": {"0": 2**63}}}, "from": {}},
        {"queues": {"T": {"b": {"x": 1}}}, "from": {}},
        {"queues": {"T": {"b": {"-1": 1}}}, "from": {}},
        {"queues": {"T": {"b": {"0": True}}}, "from": {}},
        {"queues": {"T": {"b": {"0": 1.5}}}, "from": {}},
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_offset_of_another_kind_of_stream_is_refused_with_what_to_do(value) -> None:
    with pytest.raises(PipelineError, match="checkpointLocation"):
        StreamOffset.from_json(value)


# --- batches ---


def test_queue_that_is_new_begins_where_it_is_said_and_others_where_they_were() -> None:
    start = StreamOffset({Q0: 10})

    end = moved(start, {Q1: 5}, {Q0: 2, Q1: 3})

    assert end == StreamOffset({Q0: 12, Q1: 8}, {Q1: 5})
    assert ranges(start, end) == [
        QueueRange("Orders", "broker-a", 0, 10, 12),
        QueueRange("Orders", "broker-a", 1, 5, 8),
    ]


def test_nothing_new_gives_the_very_same_offset_so_that_spark_makes_no_batch() -> None:
    start = StreamOffset({Q0: 10}, {Q0: 3})

    assert moved(start, {}, {Q0: 0}) is start


def test_first_batch_is_made_even_if_it_is_empty_so_that_the_start_is_remembered() -> None:
    end = moved(INITIAL, {Q0: 7}, {})

    assert end == StreamOffset({Q0: 7}, {Q0: 7})
    assert ranges(INITIAL, end) == []
    assert moved(INITIAL, {}, {}) == StreamOffset()


def test_queue_whose_oldest_messages_were_deleted_goes_on_at_the_first_that_is_kept() -> None:
    start = StreamOffset({Q0: 10})

    end = moved(start, {Q0: 25}, {Q0: 5})

    assert ranges(start, end) == [QueueRange("Orders", "broker-a", 0, 25, 30)]


def test_batch_between_an_offset_and_itself_is_empty() -> None:
    offset = StreamOffset({Q0: 10}, {Q0: 3})

    assert ranges(offset, offset) == []


def test_end_with_a_queue_of_which_no_begin_is_known_is_refused() -> None:
    with pytest.raises(PipelineError):
        ranges(StreamOffset(), StreamOffset({Q0: 3}))


@given(data=st.data())
def test_batches_one_after_another_hold_each_message_once(data) -> None:
    """The stream over queues that grow and turn up, with any limits, is compared with what was sent."""
    sent: dict[MessageQueue, int] = {}
    at, read = INITIAL, dict.fromkeys((Q0, Q1, Q2), 0)
    for _ in range(data.draw(st.integers(1, 12), label="batches")):
        for queue in data.draw(st.lists(st.sampled_from([Q0, Q1, Q2])), label="sent"):
            sent[queue] = sent.get(queue, 0) + 1
        limit = data.draw(st.integers(1, 8), label="limit")
        begins = {queue: 0 for queue in sent if queue not in at.ends}
        places = {**at.ends, **begins}
        available = {queue: sent[queue] - places[queue] for queue in sent}
        end = moved(at, begins, take_rows(available, limit, sum(places.values())))
        again = StreamOffset.from_json(json.loads(json.dumps(end.to_json())))
        found = ranges(at, again)
        assert sum(one.end - one.start for one in found) <= limit
        for one in found:
            queue = MessageQueue(one.topic, one.broker_name, one.queue_id)
            assert one.start == read[queue]
            read[queue] = one.end
        at = again
    assert all(read[queue] <= count for queue, count in sent.items())
    rest = moved(at, {}, {queue: sent[queue] - at.ends[queue] for queue in at.ends})
    assert all(rest.ends[queue] == sent[queue] for queue in at.ends)


# --- tasks ---


@given(lengths=st.lists(st.integers(1, 200_000), max_size=30))
def test_tasks_hold_each_message_once_and_none_is_too_long(lengths) -> None:
    found = [
        QueueRange("T", f"broker-{number % 3}", number, 5, 5 + length)
        for number, length in enumerate(lengths)
    ]

    planned = tasks(found)

    by_queue = itertools.groupby(
        sorted((piece for task in planned for piece in task), key=lambda piece: piece.queue_id),
        key=lambda piece: piece.queue_id,
    )
    for (queue_id, pieces), whole in zip(
        by_queue, sorted(found, key=lambda one: one.queue_id), strict=True
    ):
        chain = sorted(pieces, key=lambda piece: piece.start)
        assert queue_id == whole.queue_id
        assert (chain[0].start, chain[-1].end) == (whole.start, whole.end)
        assert all(one.end == two.start for one, two in itertools.pairwise(chain))
    for task in planned:
        assert sum(piece.end - piece.start for piece in task) <= ROWS_PER_TASK_MAX
        assert len({piece.broker_name for piece in task}) == 1


def test_many_short_ranges_of_a_broker_are_one_task() -> None:
    found = [QueueRange("T", "broker-a", number, 0, 3) for number in range(64)]

    assert tasks(found) == [tuple(found)]


# --- limits ---


@given(available=counts, limit=st.integers(1, 400), turn=st.integers(0, 10_000))
def test_shares_use_the_whole_limit_and_take_from_nobody_who_has_less(
    available, limit, turn
) -> None:
    taken = shares(available, limit, turn)

    assert sum(taken) == min(limit, sum(available))
    assert all(0 <= got <= wanted for got, wanted in zip(taken, available, strict=True))
    hungry = [got for got, wanted in zip(taken, available, strict=True) if got < wanted]
    if hungry:
        assert max(taken) <= min(hungry) + 1


def test_queue_that_wants_little_gets_it_all_and_the_others_share_the_rest() -> None:
    assert shares([2, 100, 100], 52, 0) == [2, 25, 25]


@given(count=st.integers(1, 9), limit=st.integers(1, 20))
def test_every_queue_has_its_turn_also_when_the_limit_is_smaller_than_their_number(
    count, limit
) -> None:
    places = [0] * count
    for _ in range(count):
        taken = shares([1_000] * count, limit, sum(places))
        places = [place + got for place, got in zip(places, taken, strict=True)]

    assert max(places) - min(places) <= 1
    assert sum(places) == count * limit


def test_bytes_are_shared_by_the_sizes_of_the_next_messages() -> None:
    available = {Q0: 10, Q1: 10}
    sizes = {Q0: [100] * 10, Q1: [1_000] * 10}

    assert take_bytes(available, sizes, 4_000, 0) == {Q0: 10, Q1: 3}


def test_sizes_beyond_those_known_are_taken_for_the_mean_of_them() -> None:
    assert take_bytes({Q0: 1_000}, {Q0: [100] * 10}, 5_000, 0) == {Q0: 50}


def test_message_larger_than_the_limit_is_read_when_it_is_its_turn() -> None:
    available, sizes = {Q0: 5, Q1: 5}, {Q0: [10] * 5, Q1: [9_999] * 5}

    turns = [take_bytes(available, sizes, 100, turn) for turn in (0, 1)]

    assert turns == [{Q0: 5, Q1: 0}, {Q0: 5, Q1: 1}]


@given(data=st.data(), limit=st.integers(1, 5_000), turn=st.integers(0, 100))
def test_bytes_taken_stay_below_the_limit_but_for_one_message(data, limit, turn) -> None:
    sizes = data.draw(
        st.dictionaries(
            st.sampled_from([Q0, Q1, Q2]), st.lists(st.integers(1, 900), min_size=1), min_size=1
        )
    )
    available = {queue: len(known) for queue, known in sizes.items()}

    taken = take_bytes(available, sizes, limit, turn)

    total = sum(sum(sizes[queue][:count]) for queue, count in taken.items())
    assert sum(taken.values()) >= 1
    assert total <= limit + max(known[0] for known in sizes.values())
    assert all(count <= available[queue] for queue, count in taken.items())


def test_flat_refuses_what_is_no_tree_of_offsets() -> None:
    with pytest.raises(ValueError, match="no queue offset"):
        flat({"T": {"b": {"0": "1"}}})
