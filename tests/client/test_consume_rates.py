"""Rates of a consumer by topic."""

from orbitmq.client.consumer.consume_rates import ConsumeRates


def test_rates_are_those_of_the_last_samples():
    rates = ConsumeRates()
    rates.pulled("Orders", 100, 50.0)
    rates.handled("Orders", 100, 10, 200.0)
    rates.sample(0)
    rates.pulled("Orders", 20, 10.0)
    rates.pulled("Orders", 20, 30.0)
    rates.handled("Orders", 40, 4, 80.0)

    status = rates.status(10_000)["Orders"]

    assert (status.pull_tps, status.pull_rt) == (4.0, 20.0)
    assert (status.consume_ok_tps, status.consume_failed_tps) == (3.6, 0.4)
    assert status.consume_rt == 2.0
    assert status.consume_failed_messages == 14


def test_old_samples_are_forgotten():
    rates = ConsumeRates()
    for second in range(0, 100, 5):
        rates.handled("Orders", 5, 0, 5.0)
        rates.sample(second * 1000)

    assert rates.status(100_000)["Orders"].consume_ok_tps == 25 / 30


def test_nothing_happened_yet():
    assert ConsumeRates().status(0) == {}
