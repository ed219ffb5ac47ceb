"""Timer messages: never before their time, soon after it, in order, once, cancelled when asked to."""

from pathlib import Path

import pytest

from orbitmq.format.ordinary import is_ordinary_when_due
from orbitmq.format.properties import encode_properties
from orbitmq.message import TIMER_TOPIC, AppendRequest, AppendStatus, SysFlag
from orbitmq.store.timer.waiting import NEVER_ENQUEUED
from orbitmq.testing.fake_clock import FakeClock
from timer_world import TimerWorld

DAY_MS = 24 * 3600 * 1000


@pytest.mark.parametrize(
    "given", [{"deliver_ms": 1_700_000_005_400}, {"delay_ms": 5_000}, {"delay_s": 5}]
)
def test_a_message_comes_when_the_second_of_its_time_is_over(
    tmp_path: Path, given: dict[str, int]
) -> None:
    with TimerWorld(tmp_path) as world:  # it is 0.4 s past a second
        assert world.send(queue_id=3, TAGS="A", **given).status is AppendStatus.PUT_OK
        world.later(5_599)
        assert world.delivered(queue_id=3) == []
        world.later(1)
        (record,) = world.records(queue_id=3)
    properties = record.property_map
    assert record.body == b"hello"
    assert properties["TAGS"] == "A"
    assert properties["TIMER_OUT_MS"] == "1700000005000"
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("Orders", "3")
    assert properties["TIMER_ENQUEUE_MS"] == "1700000005000"  # nobody looked before
    assert properties["TIMER_DEQUEUE_MS"] == "1700000006000"
    assert properties.items() >= {next(iter(_as_sent(given)))}


def _as_sent(given: dict[str, int]) -> list[tuple[str, str]]:
    names = {"deliver_ms": "TIMER_DELIVER_MS", "delay_ms": "TIMER_DELAY_MS"}
    return [(names.get(name, "TIMER_DELAY_SEC"), str(value)) for name, value in given.items()]


def test_a_time_on_a_full_second_is_met_exactly(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        world.send(deliver_ms=1_700_000_003_000)
        world.work()
        world.later(2_599)
        assert world.delivered() == []
        world.later(1)
        assert world.delivered() == [b"hello"]
        (record,) = world.records()
        assert record.property_map["TIMER_ENQUEUE_MS"] == "1700000000000"


@pytest.mark.parametrize("precision_ms", [100, 200, 500, 1000])
def test_the_precision_is_what_a_message_may_be_late(tmp_path: Path, precision_ms: int) -> None:
    with TimerWorld(tmp_path, timer_precision_ms=precision_ms) as world:
        due = {}
        for number in range(60):
            due[b"%d" % number] = world.now + 137 * number + 1
            world.send(b"%d" % number, deliver_ms=due[b"%d" % number])
        came: dict[bytes, int] = {}
        for _ in range(200):
            world.later(50)
            for body in world.delivered():
                came.setdefault(body, world.now)
    late = [came[body] - at for body, at in due.items()]
    assert min(late) >= 0
    assert max(late) < precision_ms + 50


def test_a_time_that_has_come_is_no_reason_to_wait(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        world.send(b"past", deliver_ms=world.now - 1)
        world.send(b"now", deliver_ms=world.now)
        world.send(b"no delay", delay_ms=0)
        assert world.delivered() == [b"past", b"now", b"no delay"]
        assert world.in_wheel_topic() == []


class RunningClock(FakeClock):
    """Every look takes a millisecond."""

    def now_ms(self) -> int:
        self.advance(1)
        return super().now_ms()


def test_what_is_due_while_a_batch_is_appended_is_not_stored_before_its_time(
    tmp_path: Path,
) -> None:
    with TimerWorld(tmp_path, clock=RunningClock(1_700_000_000_400)) as world:
        start = world.clock.now_ms()
        times = [start + 10 + number for number in range(40)]
        world.store.append_many(
            [
                AppendRequest("Orders", 0, b"x", encode_properties({"TIMER_DELIVER_MS": str(due)}))
                for due in times
            ]
        )
        world.store.append_many([AppendRequest("Orders", 0, b"y")] * 3)
        world.store.wait_dispatched()
        records = world.records()
    timed = [record for record in records if record.body == b"x"]
    assert timed
    assert all(record.store_ms >= int(record.property_map["TIMER_DELIVER_MS"]) for record in timed)
    assert [one.store_ms for one in records] == sorted(one.store_ms for one in records)


def test_what_was_due_before_it_was_put_in_is_delivered_at_once(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        world.send(delay_ms=2_000)
        world.clock.advance(60_000)
        world.work()
        (record,) = world.records()
        assert record.property_map["TIMER_ENQUEUE_MS"] == str(NEVER_ENQUEUED)
        assert not (tmp_path / "timerlog").exists()


def test_those_of_one_slot_come_in_the_order_of_their_sends(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        bodies = [b"%d" % number for number in range(5000)]
        for body in bodies:
            world.send(body, deliver_ms=1_700_000_009_500)
        world.work()
        world.later(9_600)
        assert world.delivered() == bodies


def test_each_second_gets_its_own(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        for number in range(300):
            world.send(b"%d" % (number * 7 % 300), delay_ms=1000 + 1000 * (number * 7 % 300))
        for number in range(300):
            world.later(1_000)
            assert len(world.delivered()) == max(0, number)
        world.later(1_000)
        assert world.delivered() == [b"%d" % number for number in range(300)]


def test_a_long_wait_is_rolled_from_window_to_window(tmp_path: Path) -> None:
    with TimerWorld(tmp_path, timer_window_slots=100) as world:
        world.send(delay_s=1_000)
        waited = 0
        while not world.delivered():
            world.later(1_000)
            waited += 1
        (record,) = world.records()
        rolls = len(world.in_wheel_topic()) - 1
    assert waited == 1_001
    assert rolls == 9
    assert record.property_map["TIMER_ROLL_TIMES"] == str(rolls)
    assert record.property_map["TIMER_OUT_MS"] == "1700001000000"


def test_a_little_more_than_a_window_is_two_halves(tmp_path: Path) -> None:
    with TimerWorld(tmp_path, timer_window_slots=100) as world:
        world.send(delay_s=120)
        world.work()
        world.later(51_000)
        assert len(world.in_wheel_topic()) == 2
        world.later(70_600)
        assert world.delivered() == [b"hello"]
        assert len(world.in_wheel_topic()) == 2


def test_the_limit_of_a_delay(tmp_path: Path) -> None:
    with TimerWorld(tmp_path, timer_delay_max_ms=10_000) as world:
        assert world.send(delay_s=10).status is AppendStatus.PUT_OK
        refused = world.send(deliver_ms=world.now + 10_001)
        assert refused.status is AppendStatus.WHEEL_TIMER_MSG_ILLEGAL
        assert "10 s" in refused.reason


@pytest.mark.parametrize("text", ["soon", "", "1.5", "9" * 30, "１２"])
def test_what_is_no_time_is_refused(tmp_path: Path, text: str) -> None:
    with TimerWorld(tmp_path) as world:
        for name in ("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"):
            result = world.send(**{name: text})
            if text:
                assert result.status is AppendStatus.WHEEL_TIMER_MSG_ILLEGAL
            else:  # a property without value is none
                assert result.status is AppendStatus.PUT_OK


def test_seconds_win_over_milliseconds_and_both_over_a_time(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        world.send(b"ms", delay_ms=5_000, deliver_ms=world.now + 90_000)
        world.send(b"s", delay_s=2, delay_ms=50_000, deliver_ms=world.now + 90_000)
        world.later(2_600)
        assert world.delivered() == [b"s"]
        world.later(3_000)
        assert world.delivered() == [b"s", b"ms"]


def test_a_delay_level_wins_over_all(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        world.send(DELAY=3, delay_s=2)
        world.later(5_000)
        assert world.delivered() == []
        (record,) = world.records("SCHEDULE_TOPIC_XXXX", 2)
        assert "TIMER_DELAY_SEC" not in record.property_map


def test_a_slot_that_is_full_refuses(tmp_path: Path) -> None:
    with TimerWorld(tmp_path, timer_slot_count_max=10) as world:
        for _ in range(25):
            status = world.send(deliver_ms=1_700_000_050_000).status
            assert status in (AppendStatus.PUT_OK, AppendStatus.WHEEL_TIMER_FLOW_CONTROL)
            world.work()
        for _ in range(300):
            if world.send(deliver_ms=1_700_000_050_000).status is not AppendStatus.PUT_OK:
                break
            world.work()
        assert 11 <= world.timers.waiting() <= 21
        assert world.send(deliver_ms=1_700_000_051_000).status is AppendStatus.PUT_OK


# Cancelling


def test_a_cancelled_message_does_not_come(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        for key in "abc":
            world.send(key.encode(), key=key, deliver_ms=1_700_000_020_000)
        world.work()
        assert world.timers.metrics.count("Orders") == 3
        world.send(b"0", key="b", cancels="Orders+b", deliver_ms=1_700_000_019_001)
        world.work()
        assert world.timers.metrics.count("Orders") == 2
        world.later(20_000)
        assert world.delivered() == [b"a", b"c"]
        assert world.timers.metrics.count("Orders") == 0


def test_a_cancellation_of_another_topic_or_slot_cancels_nothing(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        world.send(b"a", key="a", deliver_ms=1_700_000_020_000)
        world.send(b"0", cancels="Payments+a", deliver_ms=1_700_000_019_001)
        world.send(b"0", cancels="Orders+a", deliver_ms=1_700_000_020_001)
        world.work()
        world.later(30_000)
        assert world.delivered() == [b"a"]
        assert world.timers.metrics.count("Orders") == 0


def test_a_cancellation_that_comes_too_late_is_refused(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        refused = world.send(b"0", cancels="Orders+a", deliver_ms=world.now)
        assert refused.status is AppendStatus.WHEEL_TIMER_MSG_ILLEGAL


def test_a_cancellation_is_never_delivered(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        world.send(b"0", cancels="Orders+a", delay_ms=3_000)
        world.clock.advance(60_000)
        world.work()
        assert world.delivered() == []


def test_a_late_cancellation_still_finds_what_waits_behind(tmp_path: Path) -> None:
    """Delivery is behind; what is cancelled meanwhile is not delivered, though its time is over."""
    with TimerWorld(tmp_path, timer_stop_dequeue=True) as world:
        world.send(b"a", key="a", deliver_ms=1_700_000_005_000)
        world.send(b"b", key="b", deliver_ms=1_700_000_005_000)
        world.work()
        world.send(b"0", cancels="Orders+a", deliver_ms=1_700_000_004_001)
        world.later(60_000)
        assert world.delivered() == []
        world.store.config = world.config = _with(world.config, timer_stop_dequeue=False)
        world.work()
        assert world.delivered() == [b"b"]


def _with(config, **values):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    return replace(config, **values)


def test_cancelling_works_across_windows(tmp_path: Path) -> None:
    with TimerWorld(tmp_path, timer_window_slots=100) as world:
        world.send(b"a", key="a", deliver_ms=1_700_000_900_000)
        world.later(33_000)
        world.send(b"0", cancels="Orders+a", deliver_ms=1_700_000_899_001)
        for _ in range(900):
            world.later(1_000)
        assert world.delivered() == []
        assert [record.body for record in world.in_wheel_topic()][:2] == [b"a", b"0"]


# What goes wrong


def test_a_store_that_takes_nothing_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TimerWorld(tmp_path) as world:
        for number in range(10):
            world.send(b"%d" % number, delay_ms=3_000)
        world.work()
        world.clock.advance(4_000)
        many = world.store.append_many_nowait

        def some(requests, **given):  # type: ignore[no-untyped-def]
            results = many(requests[:4], **given)
            return results + [
                result._replace(status=AppendStatus.OS_PAGE_CACHE_BUSY)
                for result in results[:1] * (len(requests) - len(results))
            ]

        monkeypatch.setattr(world.store, "append_many_nowait", some)
        assert world.timers.turn(100, 100) is not None  # the walk
        assert world.timers.turn(100, 100) is None
        monkeypatch.undo()
        world.work()
        assert sorted(world.delivered()) == [b"%d" % number for number in range(10)]


def test_a_message_that_can_never_be_delivered_does_not_stop_the_others(tmp_path: Path) -> None:
    with TimerWorld(tmp_path, message_bytes_max=4_000_000) as world:
        world.send(b"x" * 2_000, delay_ms=3_000)
        world.send(b"small", delay_ms=3_000)
        world.work()
        world.store.reconfigure(_with(world.store.config, message_bytes_max=1_000))
        world.later(4_000)
        assert world.delivered() == [b"small"]


def test_a_clock_that_is_set_back_makes_nothing_early_and_loses_nothing(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        world.send(b"first", delay_ms=2_000)
        world.later(60_000)
        world.clock.set_now_ms(world.now - 30_000)
        world.send(b"second", delay_ms=5_000)
        world.work()
        assert world.delivered() == [b"first"]
        world.later(10_000)
        world.later(30_000)
        assert world.delivered() == [b"first", b"second"]


def test_a_store_without_wheel_refuses(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        world.store.use_timer(None)  # type: ignore[arg-type]
        assert world.send(delay_ms=3_000).status is AppendStatus.WHEEL_TIMER_NOT_ENABLE


def test_figures(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        world.send(delay_ms=3_000)
        world.send(delay_ms=90_000, topic="Other")
        world.store.wait_dispatched()
        assert world.timers.queue_behind == 2
        world.work()
        assert (world.timers.queue_behind, world.timers.waiting()) == (0, 2)
        assert world.timers.first_needed() == 0
        world.later(4_000)
        assert (world.timers.enqueued, world.timers.delivered, world.timers.waiting()) == (2, 1, 1)
        assert world.timers.first_needed() == world.store.units(TIMER_TOPIC, 0, 1, 1)[0].log_offset
        counts = world.timers.metrics.snapshot()["timingCount"]
        assert {topic: row["count"] for topic, row in counts.items()} == {"Orders": 0, "Other": 1}


def test_the_quick_way_of_an_append_writes_what_the_long_one_writes(tmp_path: Path) -> None:
    with TimerWorld(tmp_path) as world:
        for number in range(4):
            world.send(b"same", queue_id=number % 2, delay_ms=3_000, TAGS="A")
        world.work()
        world.later(4_000)
        first, second = world.records(queue_id=0)  # the first of a queue goes the long way
        assert first.properties == second.properties
        assert (first.size, first.sys_flag, first.body) == (second.size, second.sys_flag, b"same")
        assert (first.queue_offset, second.queue_offset) == (0, 1)


@pytest.mark.parametrize(
    ("properties", "is_quick"),
    [
        (b"DELAY\x013\x02TIMER_OUT_MS\x015\x02", True),
        (b"INNER_NUM\x013\x02", False),
        (b"K\x01v\0\x02", False),
        (b"K\x01" + b"v" * 32_764 + b"\x02", True),
        (b"K\x01" + b"v" * 32_765 + b"\x02", False),
    ],
)
def test_what_may_go_the_quick_way_when_it_is_due(properties: bytes, is_quick: bool) -> None:
    assert is_ordinary_when_due(0, properties) is is_quick
    assert not is_ordinary_when_due(int(SysFlag.INNER_BATCH), properties)
