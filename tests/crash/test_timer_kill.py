"""Timer messages, and a process that is killed again and again: each comes, and none before its time.

ORBITMQ_TIMER_KILLS sets the number of kills (20 by default), ORBITMQ_CRASH_SEED other moments.
"""

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from crash.fork_server import ForkServer
from crash.lives import end
from crash.timer_writer import TOPIC, WAIT_MS_MAX, timer_config
from orbitmq.format.record import Record, decode_record
from orbitmq.message import TIMER_TOPIC
from orbitmq.store.store import MessageStore
from orbitmq.store.timer.timer_store import TimerStore
from orbitmq.testing.fake_clock import FakeClock

pytestmark = pytest.mark.crash

KILLS = int(os.environ.get("ORBITMQ_TIMER_KILLS", "20"))
LIFE = 1_000_000  # numbers of each life begin so far above those of the one before


@pytest.mark.timeout(60 + 3 * KILLS)
def test_every_timer_message_comes_and_none_before_its_time(
    server: ForkServer, seed: str, tmp_path: Path
) -> None:
    root, chance = tmp_path / "store", random.Random(seed)
    acks = tmp_path / "acks"
    for life in range(KILLS):
        job = {"act": "run_timers", "root": str(root), "seed": 0, "first": life * LIFE}
        pid = server.start({**job, "acks": str(acks)})
        _wait_for_some(acks, chance)
        time.sleep(chance.uniform(0, 0.1))  # sleep: any moment will do
        code = end(server, pid)
        assert code == -signal.SIGKILL, server.log.read_text()
    due = {number: due_ms for number, due_ms, _ in _acknowledged(acks)}
    assert len(due) > 10 * KILLS
    got = _deliver_the_rest(root, max(due.values()) - WAIT_MS_MAX)
    bodies = Counter(int(record.body) for record in got)
    assert not due.keys() - bodies.keys(), "lost"
    waited = [record for record in got if "TIMER_OUT_MS" in record.property_map]
    assert len(waited) > len(due) / 2
    for record in waited:
        assert record.store_ms >= int(record.property_map["TIMER_DELIVER_MS"]), "early"
    # Those of the slots since the last save come again; each kill is followed by one such time.
    again = sum(count - 1 for count in bodies.values())
    assert again < len(due) / 2, f"{again} of {len(due)} came again"


def _wait_for_some(acks: Path, chance: random.Random) -> None:
    wanted = (acks.stat().st_size if acks.exists() else 0) + chance.randrange(1, 6_000)
    deadline = time.monotonic() + 20
    while not acks.exists() or acks.stat().st_size < wanted:
        assert time.monotonic() < deadline, "the writer does not get on"
        time.sleep(0.001)


def _acknowledged(acks: Path) -> list[tuple[int, int, int]]:
    return [json.loads(line) for line in acks.read_text().splitlines()]


def _deliver_the_rest(root: Path, now_ms: int) -> list[Record]:
    clock = FakeClock(now_ms)  # the writers' clock, or a little behind it
    store = MessageStore.open(timer_config(root), clock=clock, background=False)
    timers = TimerStore.open(store, clock)
    for _ in range(2 * WAIT_MS_MAX // 100):
        clock.advance(100)
        while timers.turn(100, 100):
            store.wait_dispatched()
        store.wait_dispatched()
    assert timers.waiting() == 0
    assert timers.queue_offset == store.max_offset(TIMER_TOPIC, 0)
    found: list[Record] = []
    while len(found) < store.max_offset(TOPIC, 0):
        read = store.get(TOPIC, 0, len(found), 32)
        found += [decode_record(raw) for raw in read.records]
    timers.close()
    store.close()
    return found
