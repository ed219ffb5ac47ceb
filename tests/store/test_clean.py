"""Cleaning by a fake clock and fake disks: when, what, how many, and what stays."""

import os
from datetime import datetime
from pathlib import Path

import pytest

from orbitmq.message import AppendStatus
from orbitmq.store.clean import (
    MANUAL_ROUNDS,
    Cleaner,
    decide_share,
    decide_space,
    disk_ratio,
    is_delete_hour,
)
from orbitmq.store.config import StoreConfig
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.units import HOUR_MS
from store_parts import SMALL_SEGMENT, LogParts, small_config

CONFIG = StoreConfig(root=Path("unused"))


def local_ms(hour: int) -> int:
    return round(datetime(2024, 5, 17, hour, 30).astimezone().timestamp() * 1000)


class Disks:
    """How full the disks are."""

    def __init__(self) -> None:
        self.log, self.queues = 0.5, 0.5

    def __call__(self, path: Path) -> float:
        return self.log if path.name == "commitlog" else self.queues


class Case:
    """A log of full segments, each last written at a given age."""

    def __init__(
        self,
        root: Path,
        ages_hours: list[float],
        *,
        hour: int = 4,
        dispatched_segments: int | None = None,
    ) -> None:
        self.clock = FakeClock(local_ms(hour))
        self.disks = Disks()
        self.parts = LogParts(small_config(root), clock=self.clock)
        while len(self.parts.segments) < len(ages_hours):
            self.parts.log.append_one(make_request(0, body_bytes=1500))
        self.parts.flusher.flush(0)
        for segment, age in zip(self.parts.segments, ages_hours, strict=True):
            modified = self.clock.now_ms() / 1000 - age * 3600
            os.utime(segment.path, (modified, modified))
        self.followed: list[int] = []
        self.cleaner = Cleaner(
            self.parts.config,
            self.parts.segments,
            flags=self.parts.flags,
            counters=self.parts.counters,
            clock=self.clock,
            ratio=self.disks,
            followers=[self.followed.append],
            dispatched_offset=(
                (lambda: dispatched_segments * SMALL_SEGMENT)
                if dispatched_segments is not None
                else None
            ),
        )

    def run_for(self, seconds: int) -> list[int]:
        """Let time pass second by second; return when rounds were run."""
        begin = self.clock.monotonic_ms()
        rounds = []
        for second in range(1, seconds + 1):
            self.clock.advance(max(0, begin + second * 1000 - self.clock.monotonic_ms()))
            if self.cleaner.tick():
                rounds.append(second)
        return rounds

    @property
    def left(self) -> list[int]:
        return [segment.base_offset // SMALL_SEGMENT for segment in self.parts.segments]


@pytest.fixture
def make_case(tmp_path):
    cases = []

    def make(ages_hours: list[float], **options: int) -> Case:
        cases.append(Case(tmp_path, ages_hours, **options))
        return cases[-1]

    yield make
    for case in cases:
        case.parts.close()


@pytest.mark.feature("F71")
def test_rounds_start_after_a_minute_and_come_every_ten_seconds(make_case):
    case = make_case([1, 1])

    assert case.run_for(95) == [60, 70, 80, 90]


@pytest.mark.feature("F72")
def test_only_segments_older_than_the_retention_go_and_the_oldest_first(make_case):
    case = make_case([100, 73, 72, 71.9, 10])

    assert case.cleaner.run_round() == 3
    assert case.left == [3, 4]
    assert len(list((case.parts.config.root / "commitlog").iterdir())) == 2
    assert case.followed == [3 * SMALL_SEGMENT]
    case.clock.advance(HOUR_MS // 10)
    assert case.cleaner.run_round() == 1


@pytest.mark.feature("F73")
def test_outside_the_delete_hour_nothing_goes(make_case):
    case = make_case([100, 100, 1], hour=3)

    assert case.cleaner.run_round() == 0
    case.clock.advance(HOUR_MS)  # 04:30
    assert case.cleaner.run_round() == 2


@pytest.mark.feature("F73")
def test_inside_the_delete_hour_every_round_deletes(make_case):
    case = make_case([100] * 25 + [1])

    case.run_for(59)
    assert len(case.left) == 26
    case.run_for(30)
    assert case.left == [25]


@pytest.mark.feature("F73")
def test_several_hours_can_be_named():
    assert [hour for hour in range(24) if is_delete_hour((4, 16), local_ms(hour))] == [4, 16]


@pytest.mark.feature("F75")
def test_at_most_ten_go_in_a_round_a_tenth_of_a_second_apart(make_case):
    case = make_case([100] * 25 + [1])

    counts, pauses = [], []
    for _ in range(4):
        begin = case.clock.monotonic_ms()
        counts.append(case.cleaner.run_round())
        pauses.append(case.clock.monotonic_ms() - begin)

    assert counts == [10, 10, 5, 0]
    assert pauses == [900, 900, 400, 0]
    assert case.parts.counters.deleted_segments == 25


@pytest.mark.feature("F76")
def test_an_unexpired_segment_protects_all_behind_it(make_case):
    case = make_case([100, 1, 100, 100, 1])

    assert case.cleaner.run_round() == 1
    assert case.left == [1, 2, 3, 4]


@pytest.mark.feature("F76")
def test_a_segment_that_is_not_dispatched_yet_stays_unless_the_disk_is_full(make_case):
    case = make_case([100, 100, 100, 100], dispatched_segments=2)

    assert case.cleaner.run_round() == 2
    assert case.left == [2, 3]
    case.disks.log = 0.99
    assert case.cleaner.run_round() == 1


def test_a_segment_that_is_not_flushed_yet_stays(make_case):
    case = make_case([100, 100, 100, 100])
    second = list(case.parts.segments)[1]
    second.flushed -= 1

    assert case.cleaner.run_round() == 1

    case.disks.log = 0.99
    assert case.cleaner.run_round() == 0
    second.flush()
    assert case.cleaner.run_round() == 2


def test_the_last_segment_stays_whatever_its_age(make_case):
    case = make_case([100, 100, 100])

    case.cleaner.run_round()

    assert case.left == [2]


@pytest.mark.feature("F77")
def test_a_held_segment_survives_119_seconds_and_goes_after_120(make_case):
    case = make_case([100, 100, 1])
    case.parts.segments.first.hold()

    assert case.cleaner.run_round() == 0
    case.clock.advance(119_000)
    assert case.cleaner.run_round() == 0
    assert case.left == [0, 1, 2]
    case.clock.advance(1_000)
    assert case.cleaner.run_round() == 2
    assert case.left == [2]


@pytest.mark.feature("F77")
def test_a_hanged_segment_is_tried_again_even_without_a_trigger(make_case):
    case = make_case([100, 1])
    case.parts.segments.first.hold()
    assert case.cleaner.run_round() == 0
    case.clock.advance(HOUR_MS)  # 05:30, no trigger any more

    assert case.cleaner.run_round() == 0

    assert case.left == [1]
    assert case.followed[-1] == SMALL_SEGMENT


def test_a_manual_delete_is_good_for_twenty_rounds(make_case):
    case = make_case([100] * 3 + [1], hour=12)
    assert case.cleaner.run_round() == 0

    case.cleaner.request_rounds()

    assert case.cleaner.run_round() == 3
    for _ in range(MANUAL_ROUNDS - 1):
        assert case.cleaner.run_round() == 0
    assert case.cleaner._manual_rounds == 0


@pytest.mark.feature("F74")
@pytest.mark.parametrize(
    ("log", "queues", "left"),
    [
        (0.75, 0.75, [0, 1, 2, 3]),
        (0.76, 0.50, [1, 2, 3]),
        (0.50, 0.76, [1, 2, 3]),
        (0.85, 0.50, [1, 2, 3]),
        (0.86, 0.50, [3]),
        (0.50, 0.86, [3]),
        (-1, 0.50, [1, 2, 3]),
    ],
    ids=["75 %", "76 %", "queues 76 %", "85 %", "86 %", "queues 86 %", "unknown"],
)
def test_a_full_disk_deletes_at_any_hour_and_a_fuller_one_what_has_not_expired(
    make_case, log, queues, left
):
    case = make_case([100, 1, 1, 1], hour=12)
    case.disks.log, case.disks.queues = log, queues

    case.cleaner.run_round()

    assert case.left == left


@pytest.mark.feature("F74")
def test_writes_are_refused_above_90_and_resume_at_85(make_case):
    case = make_case([1, 1])

    def status_at(ratio: float) -> AppendStatus:
        case.disks.log = ratio
        case.cleaner.run_round()
        return case.parts.log.append_one(make_request(0)).status

    assert status_at(0.90) is AppendStatus.PUT_OK
    assert status_at(0.91) is AppendStatus.SERVICE_NOT_AVAILABLE
    assert "diskSpaceWarningLevelRatio" in case.parts.flags.refusal()
    assert status_at(0.86) is AppendStatus.SERVICE_NOT_AVAILABLE
    assert status_at(0.85) is AppendStatus.PUT_OK
    assert status_at(0.86) is AppendStatus.PUT_OK


def test_configured_ratios_above_the_bounds_have_no_effect():
    config = StoreConfig(root=Path("unused"), disk_warning=99, disk_forced=99)

    assert decide_space(config, {Path("a"): 0.91}, 0.1).disk_full is True
    assert decide_space(config, {Path("a"): 0.86}, 0.1).immediate


def test_several_disks_count_by_the_emptiest_and_full_ones_get_no_segments():
    space = decide_space(CONFIG, {Path("a"): 0.95, Path("b"): 0.20}, 0.1)

    assert not space.clean
    assert space.disk_full is False
    assert space.full_paths == {Path("a")}


def test_a_shared_disk_is_judged_by_the_share_of_this_store():
    config = StoreConfig(root=Path("unused"), replicas_per_disk=2)

    assert decide_share(config, 370, 1000) == (False, False)
    assert decide_share(config, 380, 1000) == (True, False)
    assert decide_share(config, 401, 1000) == (True, True)
    assert decide_share(config, 401, 0) == (False, False)


def test_forced_cleaning_can_be_switched_off(tmp_path):
    case = Case(tmp_path, [1, 1, 1], hour=12)
    object.__setattr__(case.parts.config, "clean_forced", False)
    case.disks.log = 0.95

    assert case.cleaner.run_round() == 0
    case.parts.close()


def test_the_ratio_of_a_real_disk_is_between_nothing_and_all(tmp_path):
    assert 0 < disk_ratio(tmp_path) <= 1
    assert disk_ratio(tmp_path / "missing") == -1
