"""Which stretch of a log can hold a time range: clocks that stand still, jump ahead and go back."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_builder import LogBuilder
from orbitmq.format.kernels import compiled
from orbitmq.log_read import LogPlan, plan_log
from orbitmq.spark.source.lookup import times
from orbitmq.spark.source.lookup.lookup import join, outside, uncovered

FIRST_MS = 1_700_000_000_000
SECOND = 1000


def written(builder: LogBuilder, root: Path) -> LogPlan:
    """Write a built log as a store directory and look at it."""
    directory = root / "commitlog"
    directory.mkdir(parents=True)
    for number, segment in enumerate(builder.segments):
        (directory / f"{number * builder.segment_bytes:020d}").write_bytes(segment)
    return plan_log(root, {"mappedFileSizeCommitLog": str(builder.segment_bytes)})


def log_of(times: list[int], root: Path) -> tuple[LogPlan, list[tuple[int, int]]]:
    """Return a log with records of these times, and where each of them starts."""
    builder = LogBuilder(segment_bytes=4096)
    starts = []
    for time_ms in times:
        builder.store_ms = FIRST_MS + time_ms
        starts.append((builder.append().start, time_ms))
    return written(builder, root), starts


def stretch(
    plan: LogPlan, start: int | None, end: int | None, margin_ms: int = 0
) -> tuple[int, int]:
    start_ms = None if start is None else FIRST_MS + start
    end_ms = None if end is None else FIRST_MS + end
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(times, "CLOCK_MARGIN_MS", margin_ms)
        patch.setattr(times, "STEP_BYTES", 256)
        return times.time_stretch(plan, start_ms, end_ms, compiled(), lambda count: None)


@pytest.mark.feature("P3.options")
@pytest.mark.parametrize("span", [(0, 100), (400, 900), (999, 1000), (300, 300), (5000, 6000)])
def test_a_stretch_holds_all_records_of_its_times_and_few_others(
    span: tuple[int, int], tmp_path: Path
) -> None:
    plan, starts = log_of([number // 3 for number in range(3000)], tmp_path)

    low, high = stretch(plan, *span)

    wanted = [start for start, time_ms in starts if span[0] <= time_ms < span[1]]
    assert all(low <= start < high for start in wanted)
    inside = sum(low <= start < high for start, _ in starts)
    assert inside <= len(wanted) + 12


@pytest.mark.feature("P3.options")
@pytest.mark.parametrize("margin_ms", [50, 500])
def test_a_clock_that_was_set_back_by_less_than_the_margin_loses_nothing(
    margin_ms: int, tmp_path: Path
) -> None:
    # Every now and then the clock is wrong by nearly the margin, for a while.
    times = [
        10_000 + 3 * number - (margin_ms - 1 if number // 97 % 2 else 0) for number in range(3000)
    ]
    plan, starts = log_of(times, tmp_path)

    for begin in range(min(times), max(times), 211):
        low, high = stretch(plan, begin, begin + 40, margin_ms)
        wanted = [start for start, time_ms in starts if begin <= time_ms < begin + 40]
        assert all(low <= start < high for start in wanted)


@pytest.mark.feature("P3.options")
def test_a_clock_that_went_back_further_than_the_margin_is_not_used(tmp_path: Path) -> None:
    plan, _ = log_of([*range(10_000, 11_000), *range(1000)], tmp_path)

    assert stretch(plan, 10_500, 10_600, margin_ms=100) == (plan.start, plan.end)


def test_a_stretch_without_bounds_is_the_whole_log(tmp_path: Path) -> None:
    plan, _ = log_of(list(range(500)), tmp_path)

    assert stretch(plan, None, None) == (plan.start, plan.end)


def test_what_is_not_covered_and_what_is_together_are_everything() -> None:
    covered = [(10, 20), (15, 30), (30, 31), (50, 60)]

    rest = uncovered(covered, 5, 55)

    assert rest == [(5, 10), (31, 50)]
    assert uncovered(covered, 5, 70) == [(5, 10), (31, 50), (60, 70)]
    assert uncovered([], 5, 55) == [(5, 55)]
    assert join([*rest, *covered]) == [(5, 60)]
    assert all(before[1] < after[0] for before, after in pairwise(join([(7, 9), (1, 3), (2, 5)])))


@given(
    st.lists(st.integers(0, 60), max_size=20),
    st.lists(st.integers(0, 60), max_size=10, unique=True).map(sorted),
)
def test_offsets_inside_a_range_are_read_with_it(offsets: list[int], bounds: list[int]) -> None:
    ranges = list(zip(bounds[::2], bounds[1::2], strict=False))
    covered = {offset for start, end in ranges for offset in range(start, end)}
    assert outside(offsets, ranges) == sorted(set(offsets) - covered)
