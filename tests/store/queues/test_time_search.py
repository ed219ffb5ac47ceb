"""Search by store time in a simple queue."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.message import Boundary
from orbitmq.store.queues.time_search import offset_by_time
from orbitmq.store.queues.trim import correct_min
from orbitmq.testing.builders import make_request
from queue_world import LogBuilder, World, make_world, small_layout

LOWER, UPPER = Boundary.LOWER, Boundary.UPPER


def _world(root: Path, times: list[int], segment_bytes: int = 4096) -> tuple[World, LogBuilder]:
    builder = LogBuilder(segment_bytes, step_ms=0)
    for number, time_ms in enumerate(times):
        builder.now_ms = time_ms
        builder.add(make_request(number, "T", 0, body_bytes=30))
    world = make_world(small_layout(root, segment_bytes=segment_bytes), builder.log())
    world.service.dispatch_now()
    return world, builder


def _find(world: World, time_ms: int, boundary: Boundary) -> int:
    return offset_by_time(world.queues, world.log, 0, time_ms, boundary)


@pytest.mark.feature("F30")
@pytest.mark.parametrize(
    ("time_ms", "lower", "upper"),
    [(50, 0, 0), (100, 0, 2), (150, 3, 2), (200, 3, 4), (300, 5, 5), (350, 6, 5), (10**6, 6, 5)],
    ids=["before", "equal first", "between", "equal", "equal last", "after", "long after"],
)
def test_times_before_inside_between_equal_and_after(
    tmp_path: Path, time_ms: int, lower: int, upper: int
) -> None:
    world, _ = _world(tmp_path, [100, 100, 100, 200, 200, 300])

    assert (_find(world, time_ms, LOWER), _find(world, time_ms, UPPER)) == (lower, upper)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.integers(0, 3), min_size=1, max_size=45),
    time_ms=st.integers(0, 150),
    dropped=st.integers(0, 2),
)
def test_the_answer_is_that_of_the_plain_definition(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], time_ms: int, dropped: int
) -> None:
    times = [10 + sum(steps[: n + 1]) for n in range(len(steps))]
    world, builder = _world(tmp_path_factory.mktemp("time"), times, segment_bytes=2048)
    for _ in range(min(dropped, len(world.log._segments) - 1)):
        world.log.drop_first()
    correct_min(world.queues, world.log.min_offset)
    low, high = world.queues.min_offset(0), len(times)
    live = [(n, time) for n, time in enumerate(times) if n >= low]
    assert live[0][0] == low
    assert builder.records[low][0] >= world.log.min_offset

    lower = next((n for n, time in live if time >= time_ms), high)
    upper = next((n for n, time in reversed(live) if time <= time_ms), low)

    assert _find(world, time_ms, LOWER) == lower
    assert _find(world, time_ms, UPPER) == upper


def test_a_queue_without_live_units_answers_with_its_next_offset(tmp_path: Path) -> None:
    world, builder = _world(tmp_path, [100, 200])
    correct_min(world.queues, builder.end + 10_000)

    assert _find(world, 150, LOWER) == _find(world, 150, UPPER) == 2


def test_padding_units_have_the_time_of_the_next_real_one(tmp_path: Path) -> None:
    builder = LogBuilder(4096, step_ms=100)
    for queue_offset in (0, 1, 5, 6, 14):
        builder.add(make_request(queue_offset, "T", 0), queue_offset=queue_offset)
    world = make_world(small_layout(tmp_path, segment_bytes=4096), builder.log())
    world.service.dispatch_now()
    first = 1_700_000_000_000

    assert _find(world, first + 100, LOWER) == 1
    assert _find(world, first + 300, LOWER) == 6
    assert _find(world, first + 400, UPPER) == 14
