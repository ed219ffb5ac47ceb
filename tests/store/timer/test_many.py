"""Timer messages many at once, by kernels, and one by one: the same files, byte for byte."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orbitmq.format.kernels import Kernels, compiled, plain
from orbitmq.format.properties import encode_properties
from orbitmq.format.timer_log import BLANK, BLANK_MAGIC, UNIT_BYTES
from orbitmq.format.timer_wheel import SLOT_DTYPE
from orbitmq.message import AppendRequest, AppendStatus, Host, SysFlag
from orbitmq.store.timer import due, enqueue
from orbitmq.store.timer.run import WaitingRun
from orbitmq.units import MiB
from timer_world import TimerWorld

NEVER = 10**9
ALWAYS = 1
Way = Callable[[int], None]


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Way:
    """Choose from how many on messages are handled together."""

    def choose(least: int) -> None:
        monkeypatch.setattr(due, "LEAST", least)
        monkeypatch.setattr(enqueue, "LEAST", least)
        monkeypatch.setattr(WaitingRun, "is_quick", True)

    return choose


def _request(chance: random.Random, now_ms: int, number: int) -> AppendRequest:
    """Return a timer message; one in five is a strange one."""
    delay = chance.choice([500, 1_500, 3_000, 30_000, 150_000])
    properties: dict[str, str] = {"UNIQ_KEY": f"K{number}"}
    kind = chance.choice([*["usual"] * 16, "recall", "zero", "inner", "ipv6"])
    if kind == "recall" and number:
        properties["TIMER_DEL_UNIQKEY"] = f"Orders+K{chance.randrange(number)}"
    if kind == "zero":
        properties["a"] = "\0b"
    if kind == "inner":
        properties["b"] = "INNER_"
    due_ms = now_ms // 1000 * 1000 + 400 + delay  # so that a recall finds its slot now and then
    properties["TIMER_DELIVER_MS"] = str(due_ms)
    host = Host(bytes(15) + b"\1", 9) if kind == "ipv6" else Host(b"\x0a\0\0\1", 9)
    return AppendRequest(
        chance.choice(["Orders", "Bills"]),
        chance.randrange(2),
        b"%d" % number * chance.choice([1, 100]),
        encode_properties(properties),
        sys_flag=chance.choice([0, int(SysFlag.COMPRESSED)]),
        born_ms=now_ms,
        born_host=host,
    )


def _work(world: TimerWorld) -> None:
    """Put in what there is, then deliver what is due, and so on: the order is the same on both ways."""
    done = 1
    while done:
        done = 0
        for stopped in ({"timer_stop_dequeue": True}, {"timer_stop_enqueue": True}):
            world.store.reconfigure(replace(world.config, **stopped))
            world.store.wait_dispatched()
            while handled := world.timers.turn(256, 100):
                done += handled
                world.store.wait_dispatched()


def _files(root: Path) -> dict[str, bytes]:
    names = ("commitlog", "timerlog", "timerwheel", "consumequeue")
    paths = [path for name in names for path in (root / name, *(root / name).rglob("*"))]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths if path.is_file()}


def _story(root: Path, seed: int, **config: Any) -> tuple[dict[str, bytes], Any]:
    chance = random.Random(seed)
    with TimerWorld(root, timer_window_slots=60, **config) as world:
        for number in range(12):
            requests = [
                _request(chance, world.now, 100 * number + one)
                for one in range(chance.choice([1, 20, 60]))
            ]
            for request in requests:
                status = world.store.append(request).status  # a recall may be late
                assert status in (AppendStatus.PUT_OK, AppendStatus.WHEEL_TIMER_MSG_ILLEGAL)
            if chance.random() < 0.8:
                _work(world)
            world.clock.advance(chance.choice([300, 1_000, 5_000]))
        for _ in range(40):
            _work(world)
            world.clock.advance(5_000)
        world.save()
        delivered, metrics = world.timers.delivered, world.timers.metrics.snapshot()
        counts = {topic: row["count"] for topic, row in metrics["timingCount"].items()}
    return _files(root), (delivered, counts)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kernels", [plain(), compiled()], ids=lambda kernels: kernels.name)
def test_both_ways_write_the_same(
    tmp_path: Path, way: Way, monkeypatch: pytest.MonkeyPatch, kernels: Kernels, seed: int
) -> None:
    way(NEVER)
    expected = _story(tmp_path / "few", seed)
    way(ALWAYS)
    used = _count_reads(monkeypatch, kernels)
    assert _story(tmp_path / "many", seed) == expected
    assert sum(used) > 100


def _count_reads(monkeypatch: pytest.MonkeyPatch, kernels: Kernels) -> list[int]:
    """Have runs use these kernels; return a list that fills with how many messages were read."""
    counts: list[int] = []
    read = WaitingRun.read

    def note(run: WaitingRun, *given: Any, **options: Any) -> int:
        monkeypatch.setattr(run._store._parts, "kernels", kernels)
        counts.append(read(run, *given, **options))
        return counts[-1]

    monkeypatch.setattr(WaitingRun, "read", note)
    return counts


def test_files_of_the_timer_log_and_segments_end_between_messages(tmp_path: Path, way: Way) -> None:
    """Several units in a file, several segments: the places of both are the same."""
    small = {"timer_log_file_bytes": 20 * 52 + 60, "segment_bytes": 24 * 1024}
    way(NEVER)
    expected = _story(tmp_path / "few", 3, **small)
    way(ALWAYS)
    assert _story(tmp_path / "many", 3, **small) == expected
    assert expected[1] == _story(tmp_path / "large", 3)[1]  # none is lost between two files
    files = sorted((tmp_path / "many" / "timerlog").iterdir())
    assert len(files) > 3
    assert BLANK.unpack_from(files[0].read_bytes(), 20 * 52) == (60, 0, BLANK_MAGIC)


def test_what_is_due_is_appended_without_a_request_for_each(
    tmp_path: Path, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way of the kernels is the usual one, also where the write position is near a limit."""
    way(8)
    with TimerWorld(tmp_path, segment_bytes=16 * MiB) as world:
        world.store.append(AppendRequest("Orders", 0, b"first", born_host=Host(b"\x0a\0\0\1", 9)))
        for number in range(1_000):
            world.send(b"%d" % number * 1_000, deliver_ms=1_700_000_005_000)
        world.work(2048, 1024)
        one_by_one: list[int] = []
        monkeypatch.setattr(
            world.store, "append_many_nowait", lambda requests: one_by_one.append(len(requests))
        )
        world.clock.advance(5_000)
        world.work(2048, 1024)
        assert world.timers.delivered == 1_000
        assert one_by_one == []


def test_a_cancelled_one_among_many(tmp_path: Path, way: Way) -> None:
    way(ALWAYS)
    with TimerWorld(tmp_path) as world:
        world.store.append(AppendRequest("Orders", 0, b"first"))
        for number in range(30):
            world.send(b"%d" % number, key=f"K{number}", deliver_ms=1_700_000_020_000)
        world.work()
        for number in (7, 8, 20):
            key = f"Orders+K{number}"
            world.send(b"0", key="x", cancels=key, deliver_ms=1_700_000_019_001)
        world.later(20_000)
        came = [b"%d" % number for number in range(30) if number not in (7, 8, 20)]
        assert world.delivered() == [b"first", *came]
        assert world.timers.metrics.count("Orders") == 0


def test_a_damaged_body_is_not_delivered(tmp_path: Path, way: Way) -> None:
    way(ALWAYS)
    with TimerWorld(tmp_path) as world:
        world.store.append(AppendRequest("Orders", 0, b"first"))
        results = [
            world.send(b"body %d" % number, deliver_ms=1_700_000_020_000) for number in range(3)
        ]
        world.work()
        segment = world.store._parts.log.segments.find(0)
        assert segment is not None
        segment.writable_mapping()[results[1].log_offset + 90] ^= 1
        world.later(20_000)
        assert world.delivered() == [b"first", b"body 0", b"body 2"]


def test_the_plain_kernels_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are a reference, and slow: until others are loaded messages are handled one by one."""
    used = _count_reads(monkeypatch, plain())
    with TimerWorld(tmp_path) as world:
        for number in range(50):
            world.send(b"%d" % number, delay_ms=2_000)
        world.later(4_000)
        assert len(world.delivered()) == 50
    assert used == []


def test_what_is_added_to_a_slot_by_many_turns(tmp_path: Path, way: Way) -> None:
    """The slot in the file: its first unit, its last, and how many messages wait."""
    way(ALWAYS)
    with TimerWorld(tmp_path) as world:
        for _ in range(3):
            for number in range(20):
                world.send(b"%d" % number, deliver_ms=1_700_000_020_000 - number // 10 * 1_000)
            world.work()
        assert world.timers.waiting() == 60
        world.save()
    slots = np.frombuffer((tmp_path / "timerwheel").read_bytes(), dtype=SLOT_DTYPE)
    found = slots[slots["time"] > 0]
    assert found["time"].tolist() == [1_700_000_018, 1_700_000_019]
    assert found["count"].tolist() == [30, 30]
    assert found["first"].tolist() == [10 * UNIT_BYTES, 0]
    assert found["last"].tolist() == [59 * UNIT_BYTES, 49 * UNIT_BYTES]


def test_a_late_cancellation_among_many_is_passed_over(tmp_path: Path, way: Way) -> None:
    way(ALWAYS)
    with TimerWorld(tmp_path) as world:
        world.store.append(AppendRequest("Orders", 0, b"first"))
        for number in range(30):
            recall = {"cancels": "Orders+K1"} if number in (12, 13) else {}
            world.send(b"%d" % number, key=f"X{number}", delay_ms=2_000, **recall)
        world.later(60_000)
        came = [b"%d" % number for number in range(30) if number not in (12, 13)]
        assert world.delivered() == [b"first", *came]
