"""The checker of failovers finds what it is there for."""

import json

import pytest

from crash.failover_history import FailoverHistory, Told

RIGHT = {0: ["a-0", "b-0", "a-2"], 1: ["a-1"]}


def history() -> FailoverHistory:
    """Three are acknowledged, one was told not to be sure, one got no answer at all."""
    made = FailoverHistory()
    for body in ("a-0", "a-1", "a-2", "b-0", "b-1"):
        made.ask(body)
    made.tell("a-0", Told(0, 0, True))
    made.tell("a-1", Told(1, 0, True))
    made.tell("a-2", Told(0, 2, True))
    made.tell("b-0", Told(0, 1, False))
    return made


@pytest.mark.parametrize("read", [RIGHT, RIGHT | {2: ["b-1"]}])
def test_what_fits_together_has_no_problems(read: dict[int, list[str]]) -> None:
    assert list(history().problems(read)) == []


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        pytest.param({0: ["a-0", "b-0", "a-2"]}, "a-1: acknowledged as (1, 0)", id="lost"),
        pytest.param({0: ["b-0", "a-0", "a-2"], 1: ["a-1"]}, "a-0: acknowledged", id="moved"),
        pytest.param(RIGHT | {2: ["a-1"]}, "a-1: stored 2 times", id="doubled"),
        pytest.param(RIGHT | {2: ["b-1", "b-0"]}, "b-0 behind b-1", id="order"),
        pytest.param(RIGHT | {2: ["c-0"]}, "c-0: nobody sent it", id="foreign"),
    ],
)
def test_what_is_lost_doubled_moved_or_out_of_order_is_found(
    read: dict[int, list[str]], problem: str
) -> None:
    assert any(problem in found for found in history().problems(read))


def test_a_history_can_be_given_to_other_checkers() -> None:
    events = [json.loads(line) for line in history().lines()]
    assert [event["type"] for event in events].count("invoke") == 5
    assert [event["value"] for event in events if event["type"] == "ok"] == [
        ["a-0", 0, 0],
        ["a-1", 1, 0],
        ["a-2", 0, 2],
    ]
