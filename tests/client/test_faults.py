"""Which broker gets the next message."""

from collections import Counter

import pytest

from orbitmq.client.core.route_cache import PublishRoute
from orbitmq.client.producer.faults import BrokerFaults, QueueChooser, avoid_ms, queue_by_key
from orbitmq.format.java_hash import java_hash
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.bodies.message_queue import MessageQueue


def route(**queues: int) -> PublishRoute:
    found = [MessageQueue("T", name, i) for name, count in queues.items() for i in range(count)]
    return PublishRoute("T", tuple(found))


@pytest.mark.parametrize(
    ("latency", "avoided"),
    [
        (0, 0),
        (49, 0),
        (50, 0),
        (549, 0),
        (550, 2000),
        (1799, 2000),
        (1800, 5000),
        (3000, 6000),
        (5000, 10000),
        (14999, 10000),
        (15000, 30000),
        (10**9, 30000),
    ],
)
def test_the_slower_a_broker_the_longer_it_is_avoided(latency, avoided):
    assert avoid_ms(latency) == avoided


def test_round_robin_uses_all_queues_alike():
    chooser = QueueChooser()
    whole = route(a=2, b=3)

    used = Counter(chooser.choose(whole) for _ in range(50))

    assert set(used.values()) == {10}


def test_after_a_failure_another_broker_is_chosen():
    chooser = QueueChooser()

    chosen = {chooser.choose(route(a=4, b=1), "a").broker_name for _ in range(20)}

    assert chosen == {"b"}


def test_with_one_broker_the_same_is_chosen_again():
    assert QueueChooser().choose(route(a=2), "a").broker_name == "a"


def test_the_start_is_anywhere():
    starts = {QueueChooser().choose(route(a=16)).queue_id for _ in range(100)}

    assert len(starts) > 5


def test_a_slow_broker_is_left_alone_for_a_while():
    clock = FakeClock()
    faults = BrokerFaults(clock)
    chooser = QueueChooser(faults)
    whole = route(a=2, b=2)

    faults.record("a", 600)

    assert {chooser.choose(whole).broker_name for _ in range(10)} == {"b"}
    clock.advance(1999)
    assert {chooser.choose(whole).broker_name for _ in range(10)} == {"b"}
    clock.advance(1)
    assert {chooser.choose(whole).broker_name for _ in range(10)} == {"a", "b"}


def test_a_failed_send_counts_as_ten_seconds():
    clock = FakeClock()
    faults = BrokerFaults(clock)

    faults.record("a", 3, failed=True)

    clock.advance(9_999)
    assert not faults.is_available("a")
    clock.advance(1)
    assert faults.is_available("a")


def test_a_fast_answer_does_not_end_a_wait():
    clock = FakeClock()
    faults = BrokerFaults(clock)
    faults.record("a", 20_000)

    faults.record("a", 1)
    faults.record("a", 600)

    clock.advance(29_999)
    assert not faults.is_available("a")


def test_when_all_are_slow_another_one_is_taken_then_any():
    faults = BrokerFaults(FakeClock())
    chooser = QueueChooser(faults)
    for name in "abc":
        faults.record(name, 20_000)

    assert {chooser.choose(route(a=1, b=1, c=1), "a").broker_name for _ in range(10)} == {"b", "c"}
    assert {chooser.choose(route(a=2), "a").broker_name for _ in range(4)} == {"a"}


def test_a_key_always_has_the_same_queue_as_in_java():
    queues = [MessageQueue("T", "a", index) for index in range(7)]

    for key in ("order-17", "", "Aa", "ключ", "polygenelubricants"):
        java = java_hash(key)
        remainder = java - int(java / 7) * 7  # Java's % has the sign of its left side
        assert queue_by_key(queues, key).queue_id == abs(remainder)


@pytest.mark.parametrize(
    ("key", "java_hash_code"),
    [(5, 5), (-5, -5), (2**31 - 1, 2**31 - 1), (2**31, -(2**31)), (2**40, 256), (-(2**40), -256)],
)
def test_numbers_hash_as_integer_and_long_do(key, java_hash_code):
    queues = [MessageQueue("T", "a", index) for index in range(1009)]

    assert queue_by_key(queues, key).queue_id == abs(java_hash_code) % 1009
