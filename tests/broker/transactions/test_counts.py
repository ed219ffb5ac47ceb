"""How many transactions of each topic are open, and the version of that table."""

from pathlib import Path

from orbitmq.broker.transactions.counts import HalfCounts
from orbitmq.testing.fake_clock import FakeClock


def test_every_change_makes_the_next_version() -> None:
    clock = FakeClock()
    counts = HalfCounts(clock)
    first = counts.version
    counts.add("Orders", 1)
    counts.add("Orders", 1)
    clock.advance(1_000)
    counts.remove("Orders")
    assert counts.version.counter == first.counter + 3
    assert counts.version.timestamp == clock.now_ms()
    assert counts.version == counts.snapshot()["dataVersion"]


def test_versions_go_on_from_what_was_saved() -> None:
    clock = FakeClock()
    saved = {"dataVersion": {"counter": 41, "timestamp": 5}, "transactionCount": {}}
    counts = HalfCounts(clock)
    counts.add("Orders", 1)
    counts.load(saved, Path("transactionMetrics"))
    assert counts.version.counter == 41
    counts.add("Orders", 1)
    assert counts.version.counter == 42
