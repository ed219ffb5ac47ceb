"""What answers wait for while the coordinator is told who is in sync, also when its answers do not come."""

from pathlib import Path

import pytest

from async_run import run_async
from failover_world import FakeCoordinator, FakeEtcd
from live_broker import live_config
from orbitmq.broker.failover.own_lease import OwnLease
from orbitmq.broker.failover.sync_set import SyncSet
from orbitmq.testing import FakeClock
from orbitmq.wire.bodies.failover import FailoverState, Member, Seen

A, B, C = (Member(id=name, address=f"{name}:1") for name in "ABC")


class World:
    """A primary A whose log ends at `end`."""

    def __init__(self, root: Path, *published: Member, **given: object) -> None:
        self.clock, self.end = FakeClock(), 100
        self.config = live_config(root, **{"sync_lag_ms": 1000, **given})
        self.set = SyncSet(A, self.config, self.clock, lambda: self.end)
        self.set.settled(published)

    def look(self, pass_ms: int = 50) -> tuple[str, ...] | None:
        self.clock.advance(pass_ms)
        wanted = self.set.look()
        return None if wanted is None else tuple(member.id for member in wanted)


def test_one_that_left_is_waited_for_until_the_smaller_set_is_published(tmp_path: Path) -> None:
    world = World(tmp_path, A, B)
    world.set.put(B, "link", 100)
    assert world.look() is None
    world.set.remove("B", "link")
    assert world.look(900) is None  # not yet late
    assert world.look(1000) == ("A",)
    assert not world.set.reached(100)
    world.set.asked((A,))
    assert not world.set.reached(100)
    world.set.settled((A,))
    assert world.set.reached(100)


def test_one_that_is_connected_and_falls_back_is_late_too(tmp_path: Path) -> None:
    world = World(tmp_path, A, B)
    world.set.put(B, "link", 100)
    assert world.look() is None
    for _ in range(30):
        world.end += 100
        wanted = world.look()
    assert wanted == ("A",)


def test_who_comes_is_waited_for_before_it_is_published(tmp_path: Path) -> None:
    world = World(tmp_path, A)
    assert world.set.reached(100)
    world.set.put(B, "link", 40)
    assert world.look() is None
    assert world.look() is None
    assert world.set.reached(100), "one that is far behind holds up nobody"
    world.set.put(B, "link", 100)
    world.end = 150
    assert world.look() is None  # it has what there was before: answers wait for it from now on
    assert not world.set.reached(150)
    assert world.look() is None
    world.set.put(B, "link", 150)
    assert world.look() == ("A", "B")
    assert world.set.reached(150)
    world.set.settled((A, B))
    assert not world.set.reached(151)


def test_one_that_came_near_and_went_is_waited_for_no_longer(tmp_path: Path) -> None:
    world = World(tmp_path, A)
    world.set.put(B, "link", 100)
    world.look()
    world.end = 150
    world.look()
    assert not world.set.reached(150)
    world.set.remove("B", "link")
    assert world.look() is None
    assert world.set.reached(150)


def test_who_may_have_been_published_is_waited_for_until_another_change_was_answered(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, A)
    world.set.put(B, "link", 100)
    assert world.look() is None
    assert world.look() == ("A", "B")
    world.set.asked((A, B))  # and no answer comes: it may be made at any time
    world.set.remove("B", "link")
    world.end = 200
    assert world.look(5000) == ("A",), (
        "the same as before once more, so that the other cannot be made"
    )
    assert not world.set.reached(200)
    world.set.asked((A,))
    world.set.settled((A,))
    assert world.set.reached(200)
    assert world.look() is None


def test_a_set_that_is_too_small_acknowledges_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, A, in_sync_replicas=2)
    assert not world.set.reached(1)
    world.config.auto_in_sync = True
    assert world.set.reached(1)
    world.config.min_in_sync_replicas = 2
    assert not world.set.reached(1)


def test_a_log_with_another_id_takes_the_place_of_the_one_at_its_address(tmp_path: Path) -> None:
    world = World(tmp_path, A, B, in_sync_replicas=2)
    world.set.put(Member(id="New", address=B.address), "link", 100)
    assert world.look() is None
    assert world.look() == ("A", "New")


def test_an_old_connection_that_ends_takes_nothing_from_a_new_one(tmp_path: Path) -> None:
    world = World(tmp_path, A, B)
    world.set.put(B, "old", 50)
    world.set.put(B, "new", 60)
    world.set.remove("B", "old")
    assert world.set.reached(60)
    world.set.remove("B", "new")
    assert not world.set.reached(1)


@pytest.mark.parametrize("ms", [2_000, 10_000])
def test_a_lease_counts_from_before_it_was_asked_for_less_a_tenth(ms: int) -> None:
    clock = FakeClock()
    etcd = FakeEtcd(clock)

    class Slow(FakeCoordinator):
        async def _way(self) -> None:
            clock.advance(100)  # the way there

    lease = OwnLease(Slow(etcd), clock, ms)
    state = FailoverState(epoch=1, primary=A, in_sync=(A,))

    async def main() -> None:
        assert not lease.is_valid
        assert await lease.take(Seen(), state)  # asked at 0, granted at 100, taken at 200
        assert lease.left_ms == ms * 0.9 - 200
        clock.advance(ms * 0.9 - 201)
        assert lease.is_valid
        assert not await lease.keep()  # asked a millisecond before its end
        assert lease.left_ms == ms * 0.9 - 100
        clock.advance(ms * 0.9 - 100)
        assert not lease.is_valid, "at the moment, without a timer"
        assert etcd.holder == "A", "before the coordinator thinks so"
        clock.advance(ms)
        assert await lease.keep(), "it has ended"
        assert lease.left_ms == 0

    run_async(main)
