"""When a store deletes what, as a broker.conf says, by a fake clock and fake disks."""

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from admin_world import AdminWorld
from conf_store import ConfStore, request_of, wires
from orbitmq.message import AppendStatus
from orbitmq.store import clean as clean_module
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.units import HOUR_MS
from orbitmq.wire.codes import RequestCode

SEGMENT = 64 * 1024


def clock_at(hour: int) -> FakeClock:
    moment = datetime(2024, 5, 17, hour, 30).astimezone()
    return FakeClock(round(moment.timestamp() * 1000))


class AgedStore(ConfStore):
    """A store of full segments, each last written at a given age in hours."""

    def __init__(
        self,
        folder: Path,
        given: dict[str, object],
        ages: Sequence[float],
        *,
        hour: int = 4,
        **options: Any,
    ) -> None:
        self.ratio = 0.5
        self.rounds: list[float] = []
        super().__init__(
            folder, given, clock=clock_at(hour), disk_ratio=self._look_at_disk, **options
        )
        for number, _ in enumerate(ages):
            self.append(request_of(40 * 1024, queue_id=number % 2))
        self.store.flush()
        for path, age in zip(self.segments(), ages, strict=True):
            modified = self.clock.now_ms() / 1000 - age * 3600
            os.utime(path, (modified, modified))

    def _look_at_disk(self, path: Path) -> float:
        if path.name == "commitlog":
            self.rounds.append(self.clock.monotonic_ms())
        return self.ratio

    def segments(self) -> list[Path]:
        """Return the files of the segments in use; preallocated ones do not count."""
        return [segment.path for segment in self.store._log.segments]

    @property
    def left(self) -> list[int]:
        return [int(path.name) // SEGMENT for path in self.segments()]

    def round(self) -> None:
        """Let the next round of cleaning come."""
        self.clock.advance(self.config.clean_start_ms)
        self.store.tick()


@wires("deleteWhen")
@pytest.mark.parametrize(("given", "hours"), [({}, [4]), ({"deleteWhen": "02;14"}, [2, 14])])
def test_expired_segments_go_at_the_hours_that_are_named(tmp_path, given, hours):
    deleted_at = []
    for hour in range(24):
        folder = tmp_path / str(hour)
        folder.mkdir()
        with AgedStore(folder, given, [100, 1], hour=hour) as case:
            case.round()
            if case.left == [1]:
                deleted_at.append(hour)

    assert deleted_at == hours


@wires("fileReservedTime")
@pytest.mark.parametrize(
    ("given", "left"),
    [({}, [2, 3, 4]), ({"fileReservedTime": 48}, [3, 4]), ({"fileReservedTime": 1}, [4])],
)
def test_segments_are_kept_for_the_time_of_retention(tmp_path, given, left):
    with AgedStore(tmp_path, given, [100, 72, 71, 47, 0]) as case:
        case.round()

        assert case.left == left


@wires("fileReservedTime")
@pytest.mark.parametrize(("missing_ms", "left"), [(0, [1]), (1, [0, 1])])
def test_a_segment_goes_at_the_very_end_of_its_time(tmp_path, missing_ms, left):
    with AgedStore(tmp_path, {}, [100, 1]) as case:
        modified_ms = case.clock.now_ms() + 60_000 - 72 * HOUR_MS + missing_ms
        os.utime(case.segments()[0], ns=(modified_ms * 1_000_000,) * 2)

        case.round()

        assert case.left == left


@wires("cleanResourceInterval")
@pytest.mark.parametrize(
    ("given", "rounds"),
    [({}, [60, 70, 80, 90]), ({"cleanResourceInterval": 15_000}, [60, 75, 90])],
)
def test_rounds_begin_after_a_minute_and_come_at_their_interval(tmp_path, given, rounds):
    with AgedStore(tmp_path, given, [1]) as case:
        for _ in range(95):
            case.clock.advance(1000)
            case.store.tick()

        assert [at_ms / 1000 for at_ms in case.rounds] == rounds


@wires("deleteFileBatchMax", "deleteCommitLogFilesInterval")
@pytest.mark.feature("F118")
@pytest.mark.parametrize(
    ("given", "deleted", "paused_ms"),
    [
        ({}, 10, 900),
        ({"deleteFileBatchMax": 3}, 3, 200),
        ({"deleteFileBatchMax": 3, "deleteCommitLogFilesInterval": 7}, 3, 14),
    ],
)
def test_a_round_deletes_so_many_segments_with_a_pause_between_them(
    tmp_path, given, deleted, paused_ms
):
    one_queue_file = {"mappedFileSizeConsumeQueue": 6_000_000}
    with AgedStore(tmp_path, {**one_queue_file, **given}, [100] * 14 + [1]) as case:
        case.round()

        assert case.left == list(range(deleted, 15))
        assert case.clock.monotonic_ms() - 60_000 == paused_ms


@wires("deleteConsumeQueueFilesInterval")
@pytest.mark.feature("F118")
@pytest.mark.parametrize(
    ("given", "pause_ms"), [({}, 100), ({"deleteConsumeQueueFilesInterval": 7}, 7)]
)
def test_there_is_a_pause_after_each_queue_that_loses_files(tmp_path, given, pause_ms):
    basis = {"deleteCommitLogFilesInterval": 0, "mappedFileSizeConsumeQueue": 20}
    with AgedStore(tmp_path, {**basis, **given}, [100] * 4 + [1]) as case:
        case.round()

        assert case.left == [4]
        assert case.clock.monotonic_ms() - 60_000 == 2 * pause_ms


@wires("destroyMapedFileIntervalForcibly")
@pytest.mark.parametrize(
    ("given", "after_ms"), [({}, 120_000), ({"destroyMapedFileIntervalForcibly": 30_000}, 30_000)]
)
def test_a_segment_in_use_goes_after_its_time_all_the_same(tmp_path, given, after_ms):
    with AgedStore(tmp_path, given, [100, 1]) as case:
        case.store._log.segments.first.hold()
        case.round()
        assert case.left == [0, 1]

        gone_ms = case.first_time(lambda: case.left == [1], step_ms=10_000, last_ms=200_000)

        assert gone_ms == after_ms


@wires("redeleteHangedFileInterval")
@pytest.mark.feature("F118")
@pytest.mark.parametrize(
    ("given", "failures", "after_ms"),
    [
        ({}, 1, 120_000),
        ({}, 2, 240_000),
        ({"redeleteHangedFileInterval": 90_000}, 1, 90_000),
        ({"redeleteHangedFileInterval": 90_000}, 2, 180_000),
    ],
)
def test_a_segment_that_could_not_be_deleted_is_tried_again_at_any_hour(
    tmp_path, given, failures, after_ms
):
    with AgedStore(tmp_path, given, [100, 1], hour=12) as case:
        case.disk.fail("remove", "*/commitlog/*", times=failures)
        case.store.delete_expired_now()
        assert case.left == [0, 1]
        case.store._parts.cleaner._manual_rounds = 0  # no other reason to look at it again

        gone_ms = case.first_time(lambda: case.left == [1], step_ms=10_000, last_ms=300_000)

        assert gone_ms == after_ms


@wires("destroyMapedFileIntervalForcibly")
@pytest.mark.parametrize(
    ("given", "after_ms"), [({}, 120_000), ({"destroyMapedFileIntervalForcibly": 200_000}, 240_000)]
)
def test_a_segment_in_use_goes_by_force_outside_the_hour_too(tmp_path, given, after_ms):
    with AgedStore(tmp_path, given, [100, 1], hour=12) as case:
        case.store._log.segments.first.hold()
        case.store.delete_expired_now()
        assert case.left == [0, 1]
        case.store._parts.cleaner._manual_rounds = 0

        gone_ms = case.first_time(lambda: case.left == [1], step_ms=10_000, last_ms=300_000)

        assert gone_ms == after_ms


@wires("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "cleanFileForciblyEnable")
@pytest.mark.feature("F118")
@pytest.mark.parametrize(
    ("given", "ratio", "left"),
    [
        ({}, 0.75, [0, 1, 2]),
        ({}, 0.76, [1, 2]),
        ({"diskMaxUsedSpaceRatio": 60}, 0.61, [1, 2]),
        ({"diskMaxUsedSpaceRatio": 80}, 0.80, [0, 1, 2]),
        ({"diskMaxUsedSpaceRatio": 1}, 0.10, [0, 1, 2]),  # 10 is the least that counts
        ({}, 0.85, [1, 2]),
        ({}, 0.86, [2]),
        ({"diskSpaceCleanForciblyRatio": 50}, 0.51, [2]),
        ({"cleanFileForciblyEnable": False}, 0.86, [1, 2]),
    ],
)
def test_a_full_disk_deletes_at_any_hour_and_a_fuller_one_what_has_not_expired(
    tmp_path, given, ratio, left
):
    with AgedStore(tmp_path, given, [100, 1, 1], hour=12) as case:
        case.ratio = ratio
        case.round()

        assert case.left == left


@wires("diskSpaceWarningLevelRatio")
@pytest.mark.parametrize(
    ("given", "ratio", "status"),
    [
        ({}, 0.90, AppendStatus.PUT_OK),
        ({}, 0.91, AppendStatus.SERVICE_NOT_AVAILABLE),
        ({"diskSpaceWarningLevelRatio": 60}, 0.60, AppendStatus.PUT_OK),
        ({"diskSpaceWarningLevelRatio": 60}, 0.61, AppendStatus.SERVICE_NOT_AVAILABLE),
    ],
)
def test_a_disk_above_the_warning_ratio_takes_no_messages(tmp_path, given, ratio, status):
    with AgedStore(tmp_path, given, [1, 1], hour=12) as case:
        case.ratio = ratio
        case.round()

        assert case.store.append(make_request(0)).status is status


@wires("replicasPerDiskPartition", "logicalDiskSpaceCleanForciblyThreshold")
@pytest.mark.parametrize(
    ("given", "partition", "left"),
    [
        ({}, 4, [0, 1, 2]),
        ({"replicasPerDiskPartition": 2}, 8, [0, 1, 2]),  # 3 of 4 segments: 75 %
        ({"replicasPerDiskPartition": 2}, 7.9, [1, 2]),
        ({"replicasPerDiskPartition": 2}, 7.5, [1, 2]),  # 80 %
        ({"replicasPerDiskPartition": 2}, 7.4, [2]),
        (
            {"replicasPerDiskPartition": 2, "logicalDiskSpaceCleanForciblyThreshold": 0.5},
            8,
            [2],
        ),
        ({"replicasPerDiskPartition": 4}, 8, [2]),
        ({"replicasPerDiskPartition": 2, "diskMaxUsedSpaceRatio": 60}, 8, [1, 2]),
    ],
)
def test_stores_that_share_a_disk_have_an_equal_part_of_it(
    tmp_path, monkeypatch, given, partition, left
):
    with AgedStore(tmp_path, given, [100, 1, 1], hour=12) as case:
        usage = SimpleNamespace(f_blocks=round(partition * SEGMENT), f_frsize=1)
        monkeypatch.setattr(clean_module.os, "statvfs", lambda _: usage)
        case.round()

        assert case.left == left


@pytest.mark.feature("F78")
def test_deletion_by_hand_lets_twenty_rounds_delete_at_any_hour(tmp_path):
    with AgedStore(tmp_path, {"deleteFileBatchMax": 1}, [100] * 23 + [1], hour=12) as case:
        case.round()
        assert len(case.left) == 24

        case.store.delete_expired_now()
        assert len(case.left) == 23  # a round came at once, outside its interval
        for _ in range(25):
            case.clock.advance(10_000)
            case.store.tick()

        assert len(case.left) == 24 - 20
        assert case.store.min_log_offset == 20 * SEGMENT


@pytest.mark.feature("F78")
def test_the_admin_command_deletes_by_hand(tmp_path):
    with AdminWorld(tmp_path, clock=clock_at(12)) as world:
        segments = world.store._log.segments
        world.append("T", *[bytes(50_000)] * 15)
        assert len(segments) > 2
        world.store.flush()
        old = world.clock.now_ms() / 1000 - 73 * 3600
        os.utime(segments.first.path, (old, old))
        kept = list(segments)[1:]

        answer = world.request(RequestCode.DELETE_EXPIRED_COMMITLOG)

        assert answer.code == 0
        assert list(segments) == kept
