"""Long polls: parking, waking and forgetting, whatever the pulls themselves do."""

from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from async_run import until
from broker_world import BrokerWorld, FakeConnection
from orbitmq.broker.delivery.long_poll import CATCH_UP_BYTES, CONVERSATION_MS, Parked
from orbitmq.message import AppendRequest


class Attempts:
    """Remembers its attempts and answers as told."""

    def __init__(self, *, answer: bool = True) -> None:
        self.answer = answer
        self.calls: list[bool] = []

    def __call__(self, parked: Parked, last: bool) -> bool:
        self.calls.append(last)
        return self.answer


def park(
    world: BrokerWorld,
    client: FakeConnection,
    attempts: Attempts,
    *,
    wait_ms: float = 1_000,
    queue_id: int = 0,
) -> Parked:
    parked = Parked(client, "T", queue_id, 0, world.clock.monotonic_ms() + wait_ms, attempts)
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


def test_in_a_conversation_the_loop_dispatches_itself_unless_it_is_much(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        attempts, thread = Attempts(answer=False), world.store._dispatch._wake
        park(world, world.connect(), attempts)

        def append(count: int) -> tuple[int, bool]:
            """Return how often the pull was tried for so many messages, and whether the thread was woken."""
            attempts.calls.clear()
            thread.clear()
            for _ in range(count):
                world.store.append(AppendRequest("T", 0, bytes(4_000)))
            world.turn()
            return len(attempts.calls), thread.is_set()

        assert append(1) == (0, True)  # so far nobody got what was awaited
        world.settle()
        assert append(3) == (1, False)
        assert append(CATCH_UP_BYTES // 4_000 + 1) == (0, True)
        world.settle()
        world.clock.advance(CONVERSATION_MS + 1)
        assert append(1) == (0, True)


def test_in_a_conversation_what_nobody_waits_for_is_left_for_the_next_round(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        attempts, dispatch = Attempts(answer=False), world.store._dispatch
        parked = park(world, world.connect(), attempts)
        world.append("T", b"begins")
        parked.offset = 1
        attempts.calls.clear()
        dispatch._wake.clear()

        world.store.append(AppendRequest("Other", 0, b"a reply"))
        world.turn()
        assert (dispatch.behind_bytes > 0, dispatch._wake.is_set()) == (True, False)
        world.store.append(AppendRequest("T", 0, b"awaited"))
        world.turn()
        assert (dispatch.behind_bytes, attempts.calls) == (0, [False])

        parked.offset = 2
        world.store.append(AppendRequest("Other", 0, b"a reply, and nothing behind it"))
        world.turn()
        assert dispatch.behind_bytes > 0
        world.loop.run_until_complete(until(lambda: not dispatch.behind_bytes, seconds=5))
        assert not dispatch._wake.is_set()  # the loop did it


def test_in_a_conversation_the_loop_dispatches_also_while_the_next_pull_is_on_its_way(
    tmp_path: Path,
) -> None:
    with BrokerWorld(tmp_path) as world:
        attempts, dispatch = Attempts(), world.store._dispatch
        park(world, world.connect(), attempts)
        world.append("T", b"answers the pull")
        assert (attempts.calls, world.context.long_poll.count) == ([False], 0)
        dispatch._wake.clear()

        world.store.append(AppendRequest("T", 0, b"before the next pull"))
        world.turn()
        assert not dispatch._wake.is_set()
        world.loop.run_until_complete(until(lambda: not dispatch.behind_bytes, seconds=5))
        assert not dispatch._wake.is_set()  # the loop did it


def test_who_parks_wakes_dispatch_only_for_messages_of_its_own_queue(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        thread = world.store._dispatch._no_linger
        world.store.append(AppendRequest("Other", 0, b"not dispatched"))
        world.store._dispatch._wake.clear()
        park(world, world.connect(), Attempts(answer=False))
        assert not thread.is_set()
        world.store.append(AppendRequest("T", 0, b"not dispatched either"))
        world.store._dispatch._wake.clear()

        park(world, world.connect(), Attempts(answer=False))

        assert thread.is_set()


def test_who_parks_ends_the_lingering_of_a_round_that_has_nothing_left_to_do(
    tmp_path: Path,
) -> None:
    """Else the next message, which somebody waits for, would wait with that round."""
    with BrokerWorld(tmp_path) as world:
        dispatch = world.store._dispatch
        world.store.append(AppendRequest("T", 0, b"nobody waits"))
        assert dispatch._wake.is_set()  # the thread lingers
        assert world.store.catch_up(CATCH_UP_BYTES)
        dispatch._no_linger.clear()

        park(world, world.connect(), Attempts(answer=False))

        assert dispatch._no_linger.is_set()


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


def test_deadlines_come_in_order(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        client, poll = world.connect(), world.context.long_poll
        early, late = Attempts(), Attempts()
        park(world, client, late, wait_ms=2_000)
        park(world, client, early, wait_ms=1_000)
        world.clock.advance(1_000)
        poll.deadlines.expire()
        assert (early.calls, late.calls, poll.count) == ([True], [], 1)


def test_answered_ones_are_forgotten_although_an_earlier_one_still_waits(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        client, poll = world.connect(), world.context.long_poll
        park(world, client, Attempts(), wait_ms=500, queue_id=1)
        for _ in range(3_000):
            park(world, client, Attempts())
            poll.wake("T", 0)
        assert poll.count == 1
        assert len(poll.deadlines._heap) < 2_000


def test_the_loops_own_timer_ends_a_wait(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        attempts = Attempts()
        park(world, world.connect(), attempts, wait_ms=0)
        world.loop.call_later(0.05, world.loop.stop)
        world.loop.run_forever()
        assert attempts.calls == [True]


def test_who_comes_later_and_waits_shorter_is_not_late(tmp_path: Path) -> None:
    with BrokerWorld(tmp_path) as world:
        patient, hasty = Attempts(), Attempts()
        park(world, world.connect(), patient, wait_ms=60_000)
        park(world, world.connect(), hasty, wait_ms=0)
        world.loop.call_later(0.05, world.loop.stop)
        world.loop.run_forever()
        assert (patient.calls, hasty.calls) == ([], [True])
