"""How full a disk is, beside its three limits and its growth: what is said of it."""

import pytest

from orbitmq.doctor.disk import DiskAdvice, DiskFacts, DiskUse, Limits, examine, next_delete_hour
from orbitmq.doctor.report import Severity
from orbitmq.store.config import StoreConfig
from orbitmq.units import HOUR_MS

NOW_MS = 1_794_768_800_000


def facts(used: float, *, growth: int = 0, hours: int = 10) -> DiskFacts:
    use = DiskUse(path="d", used_per_cent=used, total_bytes=1_000, used_bytes=round(10 * used))
    return DiskFacts(
        disks=[use],
        limits=Limits(),
        now_ms=NOW_MS,
        log_bytes=growth * hours,
        first_ms=NOW_MS - hours * HOUR_MS,
        last_ms=NOW_MS,
    )


@pytest.mark.feature("F108")
@pytest.mark.parametrize(
    ("used", "expected"),
    [
        (75, []),
        (76, [(Severity.WARNING, "the disk is fuller than it should be")]),
        (85, [(Severity.WARNING, "the disk is fuller than it should be")]),
        (86, [(Severity.CRITICAL, "the disk is so full that messages go before their time")]),
        (91, [(Severity.CRITICAL, "the disk is so full that sends are refused")]),
    ],
)
def test_each_limit_has_its_finding(used, expected):
    found = examine(facts(used), DiskAdvice("orbitmq broker config"))

    assert [(finding.severity, finding.what) for finding in found] == expected


@pytest.mark.feature("F108")
def test_growth_tells_the_hours_that_are_left_to_each_limit():
    (found,) = examine(facts(60, growth=20), DiskAdvice(""))

    assert found.what == "the disk is full within a day"
    assert found.numbers["growth_bytes_per_hour"] == 20
    assert found.numbers["hours_left"] == "7.5 12.5 15.0"


def test_slow_growth_and_a_young_log_are_no_finding():
    assert list(examine(facts(60, growth=1), DiskAdvice(""))) == []
    assert list(examine(facts(60, growth=1_000_000, hours=0), DiskAdvice(""))) == []


def test_limits_are_bounded_as_the_store_bounds_them(tmp_path):
    config = StoreConfig(root=tmp_path, disk_used_max=60, disk_forced=99, disk_warning=10)

    assert Limits.of(config) == Limits(clean=60, forced=85, refuse=35)


def test_the_next_delete_hour_is_now_or_the_next_full_hour_that_fits():
    every = list(range(24))

    assert next_delete_hour(every, NOW_MS) == NOW_MS
    for hour in every:
        found = next_delete_hour([hour], NOW_MS)
        assert NOW_MS <= found <= NOW_MS + 24 * HOUR_MS
