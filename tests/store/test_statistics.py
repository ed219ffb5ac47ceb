"""Counters and times."""

import pytest

from orbitmq.store.statistics import Counters, Timing, snapshot


@pytest.mark.feature("F88")
def test_a_timing_keeps_count_average_and_maximum():
    timing = Timing()
    assert timing.average_us == 0

    for elapsed in (1_000, 3_000, 2_000):
        timing.add(elapsed)

    assert (timing.count, timing.average_us, timing.max_us) == (3, 2.0, 3.0)


@pytest.mark.feature("F88")
def test_a_snapshot_tells_lags_and_growth():
    counters = Counters(appended_messages=3)

    taken = snapshot(
        counters,
        uptime_ms=5,
        opened_offset=100,
        min_log_offset=0,
        max_log_offset=400,
        flushed_offset=300,
        dispatched_offset=350,
        visible_offset=400,
        queue_count=2,
        refusal="no",
    )
    counters.appended_messages = 9

    assert (taken.appended_messages, taken.appended_bytes) == (3, 300)
    assert (taken.unflushed_bytes, taken.dispatch_behind_bytes) == (100, 50)
    assert not taken.writable
