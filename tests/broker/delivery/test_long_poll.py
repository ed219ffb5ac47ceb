"""Long polls: parking, waking and forgetting, whatever the pulls themselves do."""

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from broker_world import BrokerWorld, FakeConnection
from orbitmq.broker.delivery.long_poll import Parked


class Attempts:
    """Remembers its attempts and answers as told."""

    def __init__(self, *, answer: bool = True) -> None:
        self.answer = answer
        self.calls: list[bool] = []

    def __call__(self, parked: Parked, last: bool) -> bool:
        self.calls.append(last)
        return self.answer


def park(
    world: BrokerWorld, client: FakeConnection, attempts: Attempts, *, wait_ms: float = 1_000
) -> Parked:
    parked = Parked(client, "T", 0, 0, world.clock.monotonic_ms() + wait_ms, attempts)
    world.context.long_poll.park(parked)
    return parked


def test_what_came_between_the_look_and_the_parking_is_not_missed(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        world.append("T", b"x")
        attempts = Attempts()
        park(world, world.connect(), attempts)
        assert attempts.calls == [False]
        assert world.context.long_poll.count == 0


class Late(deque[Iterable[int]]):
    """What the dispatching thread tells of; it tells once more just when all seems to be looked at."""

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self._tell: Callable[[], None] | None = tell

    def __bool__(self) -> bool:
        if len(self):
            return True
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()
        return False


def test_what_grows_while_growth_is_looked_at_is_told_again(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        attempts, poll = Attempts(answer=False), world.context.long_poll
        park(world, world.connect(), attempts)
        world.append("T", b"x")
        assert attempts.calls == [False]
        number = world.store.queue_number("T", 0)
        poll._grown = Late(lambda: poll._on_dispatched([number]))

        poll._on_dispatched([number])
        world.turn()

        assert attempts.calls == [False] * 3  # for the first, and for the one that came late


def test_a_closed_connection_takes_its_pulls_along(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        client, other = world.connect(), world.connect()
        gone, stays = Attempts(), Attempts()
        park(world, client, gone)
        park(world, client, gone)
        park(world, other, stays)
        world.disconnect(client)
        assert world.context.long_poll.count == 1
        world.append("T", b"x")
        assert (gone.calls, stays.calls) == ([], [False])
        park(world, client, gone)
        assert world.context.long_poll.count == 0


def test_an_attempt_that_fails_is_not_tried_again(tmp_path: Path) -> None:
    def broken(parked: Parked, last: bool) -> bool:
        raise RuntimeError("bug")

    with BrokerWorld(tmp_path) as world:
        world.context.long_poll.park(Parked(world.connect(), "T", 0, 0, 10, broken))
        world.append("T", b"x")
        assert world.context.long_poll.count == 0


def test_deadlines_come_in_order_and_answered_ones_are_forgotten(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        client, poll = world.connect(), world.context.long_poll
        early, late = Attempts(), Attempts()
        park(world, client, late, wait_ms=2_000)
        park(world, client, early, wait_ms=1_000)
        world.clock.advance(1_000)
        poll.expire()
        assert (early.calls, late.calls, poll.count) == ([True], [], 1)
        for _ in range(5_000):
            park(world, client, Attempts())
            poll.wake("T", 0)
        assert poll.count == 0
        assert len(poll._deadlines) < 2_000


def test_the_loops_own_timer_ends_a_wait(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        attempts = Attempts()
        park(world, world.connect(), attempts, wait_ms=0)
        world.loop.call_later(0.05, world.loop.stop)
        world.loop.run_forever()
        assert attempts.calls == [True]
