"""BrokerStatistics: counts per topic and group, and the rates that tools show of them."""

import time

import pytest

from orbitmq.broker.statistics import MINUTE, BrokerStatistics, Counter, Rate, Totals
from orbitmq.store.statistics import Counters, StoreStatistics, snapshot
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.units import HOUR_MS, MINUTE_MS


def make(clock: FakeClock | None = None) -> tuple[BrokerStatistics, FakeClock]:
    clock = clock or FakeClock()
    return BrokerStatistics(clock, "DefaultCluster", lambda topic: topic.startswith("sys")), clock


def tick_for(statistics: BrokerStatistics, clock: FakeClock, seconds: int) -> None:
    for _ in range(seconds):
        clock.advance(1_000)
        statistics.tick()


def store_figures(appended: int, got: int) -> StoreStatistics:
    counters = Counters(appended_messages=appended, get_found=got, get_missed=1, got_messages=got)
    offsets = dict.fromkeys(
        (
            "uptime_ms",
            "opened_offset",
            "min_log_offset",
            "max_log_offset",
            "flushed_offset",
            "dispatched_offset",
            "visible_offset",
            "queue_count",
        ),
        0,
    )
    return snapshot(counters, refusal="", **offsets)


def test_rate_is_what_came_in_since_the_oldest_sample() -> None:
    statistics, clock = make()

    statistics.on_put("T", 3, 300)
    statistics.on_put("T", 1, 100)
    statistics.tick()
    clock.advance(10_000)
    statistics.on_put("T", 2, 200)
    statistics.tick()

    rates = statistics.rates("TOPIC_PUT_NUMS", "T")
    assert rates is not None
    minute, hour, day = rates
    assert minute == Rate(sum=6, tps=6 / 20, average=2.0)
    assert hour.sum == day.sum == 4  # sampled once so far
    sizes = statistics.rates("TOPIC_PUT_SIZE", "T")
    assert sizes is not None
    assert sizes[0].sum == 600


def test_minute_forgets_what_is_older_than_a_minute() -> None:
    statistics, clock = make()
    statistics.on_put("T", 100, 1)
    tick_for(statistics, clock, 120)

    assert statistics.put_tps("T") == 0.0


def test_rate_of_a_steady_stream_is_its_speed() -> None:
    statistics, clock = make()

    for _ in range(90):
        statistics.on_get("T", "G", 5, 50)
        tick_for(statistics, clock, 1)

    assert statistics.get_tps("T", "G") == pytest.approx(5.0, rel=0.05)


def test_item_nobody_counted_does_not_exist() -> None:
    statistics, _ = make()
    statistics.on_get("T", "G", 1, 1)
    statistics.on_send_back("G", "T")

    assert statistics.rates("TOPIC_PUT_NUMS", "T") is None
    assert statistics.rates("GROUP_GET_NUMS", "T@Other") is None
    assert statistics.rates("NO_SUCH_NAME", "T") is None
    assert statistics.rates("BROKER_PUT_NUMS", "OtherCluster") is None
    assert statistics.rates("SNDBCK_PUT_NUMS", "T@G") is not None
    assert statistics.rates("BROKER_PUT_NUMS", "DefaultCluster") is not None


def test_broker_counts_all_topics_together() -> None:
    statistics, clock = make()
    for topic in ("A", "B"):
        statistics.on_put(topic, 10, 1)
        statistics.on_get(topic, "G", 4, 1)
    tick_for(statistics, clock, 1)

    put, get = (
        statistics.rates(name, "DefaultCluster") for name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS")
    )
    assert put is not None
    assert get is not None
    assert (put[0].sum, get[0].sum) == (20, 8)


def test_totals_leave_out_system_topics_and_remember_mornings() -> None:
    statistics, clock = make(FakeClock(1_700_000_000_000))
    statistics.on_put("T", 5, 1)
    statistics.on_put("sys_topic", 50, 1)
    assert statistics.put_totals() == Totals(0, 0, 5)

    clock.advance(24 * HOUR_MS)
    statistics.tick()
    statistics.on_put("T", 2, 1)
    assert statistics.put_totals() == Totals(0, 5, 7)

    clock.advance(24 * HOUR_MS)
    statistics.tick()
    assert statistics.put_totals() == Totals(5, 7, 7)
    assert statistics.get_totals() == Totals(0, 0, 0)


def test_deleted_topic_is_forgotten_but_stays_in_the_totals() -> None:
    statistics, _ = make()
    statistics.on_put("T", 5, 1)
    statistics.on_get("T", "G", 3, 1)
    statistics.on_get("U", "G", 1, 1)

    statistics.forget_topic("T")

    assert statistics.rates("TOPIC_PUT_NUMS", "T") is None
    assert statistics.rates("GROUP_GET_NUMS", "T@G") is None
    assert statistics.put_totals().now == 5
    assert statistics.get_totals().now == 4
    statistics.forget_group("G")
    assert statistics.rates("GROUP_GET_NUMS", "U@G") is None
    assert statistics.get_totals().now == 4


def test_store_samples_reach_back_ten_minutes() -> None:
    statistics, clock = make()
    for second in range(700):
        clock.advance(1_000)
        statistics.tick(store_figures(second * 10, second))

    span = statistics.store_samples(600)
    assert span is not None
    before, now = span
    assert now.put - before.put == 6_000
    assert now.at_ms - before.at_ms == 10 * MINUTE_MS
    assert make()[0].store_samples(10) is None


def test_first_sample_of_a_counter_takes_it_for_new() -> None:
    counter = Counter()
    counter.count = counter.calls = 4

    counter.sample(MINUTE, 10_000.0)

    assert counter.rate(MINUTE) == Rate(4, 0.4, 1.0)


def test_counting_is_cheap_enough_for_every_send() -> None:
    statistics, _ = make()
    best = 1.0
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(10_000):
            statistics.on_put("Topic", 1, 1024)
        best = min(best, (time.perf_counter() - started) / 10_000)

    assert best < 2e-6
