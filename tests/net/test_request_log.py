"""The log of requests: one line for each cause and second, with a count."""

import logging
from typing import Any

import pytest

from broker_world import FakeConnection
from orbitmq.net.request_log import CAUSES_MAX, NO_REFUSAL, RequestLog
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command


class World:
    """A log of requests under a fake clock, and its lines."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "orbitmq.net.request_log")
        self.clock, self._caplog = FakeClock(), caplog
        self.log = RequestLog(self.clock)

    def refuse(self, topic: str = "T", peer: str = "10.0.0.1:5000", code: int = 16) -> None:
        request = Command(RequestCode.PULL_MESSAGE, {"topic": topic, "consumerGroup": "G"})
        self.log.refused(FakeConnection(peer), request, request.answer(code, "no"))  # type: ignore[arg-type]

    def lines(self) -> list[tuple[Any, ...]]:
        """Return what was logged since the last call: topic, peer and count."""
        found = [
            (vars(r).get("topic"), vars(r).get("peer"), vars(r)["count"])
            for r in self._caplog.records
        ]
        self._caplog.clear()
        return found

    def tick_after(self, milliseconds: float) -> None:
        self.clock.advance(milliseconds)
        self.log.tick()


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> World:
    return World(caplog)


def test_the_first_is_told_at_once_and_those_of_the_same_second_as_a_number(world: World) -> None:
    for port in range(5):
        world.refuse(peer=f"10.0.0.1:{port}")
    assert world.lines() == [("T", "10.0.0.1:0", 1)]

    world.tick_after(999)
    assert world.lines() == []
    world.tick_after(1)
    assert world.lines() == [("T", "10.0.0.1:4", 4)]


def test_a_cause_that_goes_on_has_a_line_each_second(world: World) -> None:
    for _ in range(30):
        world.refuse()
        world.clock.advance(100)

    assert [count for _, _, count in world.lines()] == [1, 10, 10]


def test_a_cause_that_ended_is_forgotten(world: World) -> None:
    world.refuse()
    world.tick_after(1000)
    world.refuse()

    assert [count for _, _, count in world.lines()] == [1, 1]


def test_other_topics_other_hosts_and_other_answers_are_other_causes(world: World) -> None:
    world.refuse()
    world.refuse(topic="U")
    world.refuse(peer="10.0.0.2:5000")
    world.refuse(code=17)

    assert [count for _, _, count in world.lines()] == [1, 1, 1, 1]


def test_causes_that_a_peer_makes_up_are_limited_in_number_and_length(world: World) -> None:
    for number in range(CAUSES_MAX + 50):
        world.refuse(topic=f"{number}{'x' * 1000}")
    lines = world.lines()
    world.tick_after(1000)

    assert len(lines) == CAUSES_MAX
    assert max(len(topic) for topic, _, _ in lines) < 400
    assert world.lines() == [(None, None, 50)]


def test_what_was_counted_is_told_at_the_end(world: World) -> None:
    world.refuse()
    world.refuse()
    world.refuse()
    world.log.close()

    assert [count for _, _, count in world.lines()] == [1, 2]


@pytest.mark.parametrize("code", sorted(NO_REFUSAL))
def test_answers_that_every_client_gets_are_no_refusals(world: World, code: int) -> None:
    world.refuse(code=code)

    assert world.lines() == []


def test_names_and_reasons_are_fields(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.refuse(code=ResponseCode.NO_PERMISSION)
    (record,) = caplog.records

    told = {name: vars(record)[name] for name in ("request", "code", "topic", "group", "reason")}

    assert told == {
        "request": "PULL_MESSAGE",
        "code": "NO_PERMISSION",
        "topic": "T",
        "group": "G",
        "reason": "no",
    }
