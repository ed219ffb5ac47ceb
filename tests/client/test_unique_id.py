"""Ids that producers give."""

import os
import threading

from orbitmq.client.producer.unique_id import unique_ids
from orbitmq.format.message_id import UniqueId, UniqueIds, decode_unique_id, month_range
from orbitmq.testing.fake_clock import FakeClock

ADDRESS = b"\x0a\x4d\x00\x05"


def test_ids_have_the_parts_of_an_id():
    clock = FakeClock()
    maker = UniqueIds(ADDRESS, 70_000, 0x12345678, clock)
    start, end = month_range(clock.now_ms())

    for counter, moment in enumerate((start, start + 1, start + 2**31 + 5, end - 1)):
        clock.set_now_ms(moment)
        month_ms = (moment - start + 2**31) % 2**32 - 2**31  # Java's int wraps
        parts = UniqueId(ADDRESS, 70_000 & 0xFFFF, 0x12345678, month_ms, counter)
        assert maker.next_id() == parts.encode()


def test_ids_tell_who_made_them():
    found = decode_unique_id(unique_ids("10.77.0.5").next_id())

    assert (found.address, found.pid) == (ADDRESS, os.getpid() & 0xFFFF)


def test_threads_never_get_the_same_id():
    ids: list[str] = []
    maker = unique_ids("10.77.0.5")

    def make() -> None:
        ids.extend([maker.next_id() for _ in range(2000)])

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(ids)) == 16_000


def test_addresses_of_all_kinds():
    assert len(unique_ids("::1").next_id()) == 56
    assert len(unique_ids("some-host").next_id()) == 32


def test_a_clock_that_is_set_back_does_not_repeat_ids():
    clock = FakeClock()
    maker = UniqueIds(ADDRESS, 1, 2, clock)
    before = {maker.next_id() for _ in range(10)}

    clock.set_now_ms(clock.now_ms() - 3_000_000_000)

    assert before.isdisjoint({maker.next_id() for _ in range(10)})
