"""Settings of timer messages, from a broker.conf to what they do."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from conf_store import broker_conf, wires
from orbitmq.format.timer_log import UNIT_BYTES
from orbitmq.message import AppendStatus
from timer_world import SMALL, TimerWorld

FAR_MS = 1_700_000_050_000


def world(folder: Path, given: Mapping[str, object]) -> TimerWorld:
    folder.mkdir(exist_ok=True)
    config = broker_conf(folder, given)
    names = [name for name in vars_of(config) if name.startswith("timer_")]
    timer = {name: getattr(config, name) for name in names}
    return TimerWorld(folder / "store", **SMALL, **timer)


def vars_of(config: object) -> list[str]:
    return [one.name for one in dataclasses.fields(config)]  # type: ignore[arg-type]


@wires("mappedFileSizeTimerLog")
@pytest.mark.parametrize(
    ("given", "size"), [({}, 104_857_600), ({"mappedFileSizeTimerLog": 5_216}, 5_216)]
)
def test_files_of_the_timer_log_have_this_size(tmp_path, given, size):
    with world(tmp_path, given) as case:
        case.send(delay_s=5)
        case.work()
        (file,) = (tmp_path / "store" / "timerlog").iterdir()
        assert file.stat().st_size == size


@wires("timerPrecisionMs")
@pytest.mark.parametrize(
    ("text", "precision_ms"),
    [(None, 1000), ("100", 100), ("50", 100), ("250", 200), ("999", 500), ("5000", 1000)],
)
def test_a_slot_is_so_long(tmp_path, text, precision_ms):
    with world(tmp_path, {} if text is None else {"timerPrecisionMs": text}) as case:
        case.send(deliver_ms=1_700_000_003_050)
        case.later(2_649 + precision_ms - 50)
        assert case.delivered() == []
        case.later(1)
        (record,) = case.records()
        slot_ms = 1_700_000_003_000
        assert record.property_map["TIMER_OUT_MS"] == str(slot_ms)
        assert record.property_map["TIMER_DEQUEUE_MS"] == str(slot_ms + precision_ms)


@wires("timerRollWindowSlot")
@pytest.mark.parametrize(
    ("given", "window"),
    [
        ({}, 172_800),
        ({"timerRollWindowSlot": 40}, 40),
        ({"timerRollWindowSlot": 1}, 604_740),  # makes no sense: as far as the wheel reaches
        ({"timerRollWindowSlot": 604_741}, 604_740),
    ],
)
def test_a_message_waits_so_many_slots_in_one_go(tmp_path, given, window):
    with world(tmp_path, {**given, "timerMaxDelaySec": 1_000_000}) as case:
        case.send(b"inside", deliver_ms=1_700_000_000_000 + window * 1_000)
        case.send(b"outside", deliver_ms=1_700_000_000_000 + window * 1_000 + 1)
        case.work()
        raw = (tmp_path / "store" / "timerlog" / "0".zfill(20)).read_bytes()
        magics = [int.from_bytes(raw[at + 12 : at + 16], "big") for at in (0, UNIT_BYTES)]
        assert magics == [1, 3]


@wires("timerMaxDelaySec")
@pytest.mark.parametrize(("given", "limit"), [({}, 259_200), ({"timerMaxDelaySec": 60}, 60)])
def test_a_message_may_wait_so_long(tmp_path, given, limit):
    with world(tmp_path, given) as case:
        assert case.send(delay_s=limit).status is AppendStatus.PUT_OK
        refused = case.send(delay_ms=limit * 1000 + 1)
        assert refused.status is AppendStatus.WHEEL_TIMER_MSG_ILLEGAL


@wires("timerCongestNumEachSlot")
@pytest.mark.parametrize(
    ("given", "taken"), [({}, 60), ({"timerCongestNumEachSlot": 10}, range(11, 21))]
)
def test_so_many_may_wait_for_one_moment(tmp_path, given, taken):
    with world(tmp_path, given) as case:
        for _ in range(60):
            case.send(deliver_ms=FAR_MS)
            case.work()
        waiting = case.timers.waiting()
        assert waiting == taken or waiting in taken


@wires("timerStopEnqueue", "timerStopDequeue")
@pytest.mark.parametrize(
    ("given", "enqueued", "delivered"),
    [({}, 1, 1), ({"timerStopEnqueue": True}, 0, 0), ({"timerStopDequeue": True}, 1, 0)],
)
def test_both_ends_of_the_wheel_can_be_stopped_and_go_on(tmp_path, given, enqueued, delivered):
    with world(tmp_path, given) as case:
        case.send(delay_s=2)
        case.work()
        assert case.timers.enqueued == enqueued
        case.later(10_000)
        assert len(case.delivered()) == delivered
        config = dataclasses.replace(
            case.store.config, timer_stop_enqueue=False, timer_stop_dequeue=False
        )
        case.store.reconfigure(config)  # both are live
        case.work()
        assert len(case.delivered()) == 1
