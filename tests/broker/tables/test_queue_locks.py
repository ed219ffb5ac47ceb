"""Locks of queues for orderly consumers."""

from orbitmq.broker.tables.queue_locks import QueueLocks
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.bodies.message_queue import MessageQueue

Q0, Q1 = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)


def test_a_queue_belongs_to_the_first_who_locks_it() -> None:
    locks = QueueLocks(FakeClock(), 60_000)

    assert locks.lock("G", "c1", [Q0]) == [Q0]
    assert locks.lock("G", "c2", [Q0, Q1]) == [Q1]
    assert locks.lock("G", "c1", [Q0, Q1]) == [Q0]
    assert locks.lock("H", "c2", [Q0]) == [Q0]  # another group


def test_only_the_owner_unlocks() -> None:
    locks = QueueLocks(FakeClock(), 60_000)
    locks.lock("G", "c1", [Q0])

    locks.unlock("G", "c2", [Q0])
    assert locks.lock("G", "c2", [Q0]) == []
    locks.unlock("G", "c1", [Q0, Q1])
    assert locks.lock("G", "c2", [Q0]) == [Q0]


def test_a_lock_that_is_not_renewed_expires_after_a_minute() -> None:
    clock = FakeClock()
    locks = QueueLocks(clock, 60_000)
    locks.lock("G", "c1", [Q0, Q1])
    clock.advance(50_000)
    locks.lock("G", "c1", [Q0])  # renewed
    clock.advance(10_001)

    assert locks.lock("G", "c2", [Q0, Q1]) == [Q1]
    assert locks.is_any_locked("G")
    clock.advance(60_001)
    assert not locks.is_any_locked("G")
    locks.expire()
    assert not locks.is_any_locked("G")
