"""The process that is killed while timer messages wait, are put into the wheel, and come out of it.

Its clock runs ten times too fast and slots are a tenth of a second long, so that a life of a few hundred
milliseconds sees many slots; files of the timer log have 20 units.
"""

import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Final

from crash.writer import HurriedClock, config
from orbitmq.files.disk import Disk
from orbitmq.format.properties import encode_properties
from orbitmq.message import AppendRequest, AppendStatus
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.store.timer.timer_store import FlushPlan, TimerStore
from orbitmq.testing.power_cut import PowerCutDisk

HURRY: Final = 10
TOPIC: Final = "Orders"
WAIT_MS_MAX: Final = 4_000


def timer_config(root: Path) -> StoreConfig:
    return replace(
        config(root, "async"),
        timer_precision_ms=100,
        timer_log_file_bytes=20 * 52 + 16,
        timer_window_slots=15,  # of a tenth of a second: many messages are rolled
        segment_bytes=256 * 1024,
    )


def run(root: str, seed: int, first: int, acks: str, shadow: str = "") -> None:
    """Append, put into the wheel, deliver and save by turns; each acknowledgement is a line of `acks`."""
    fd = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    chance, clock = random.Random(f"timers {seed} {first}"), HurriedClock(HURRY)
    disk = PowerCutDisk(Path(root), shadow=Path(shadow)) if shadow else Disk()
    store = MessageStore.open(timer_config(Path(root)), disk=disk, clock=clock)
    timers = TimerStore.open(store, clock, disk)
    number = first
    plan: FlushPlan | None = None
    while True:
        for _ in range(chance.randrange(4)):
            due_ms = clock.now_ms() + chance.randrange(WAIT_MS_MAX)
            properties = encode_properties(
                {"UNIQ_KEY": f"k{number}", "TIMER_DELIVER_MS": str(due_ms)}
            )
            request = AppendRequest(TOPIC, 0, b"%d" % number, properties)
            if store.append(request).status is AppendStatus.PUT_OK:
                os.write(fd, f"{json.dumps([number, due_ms, store.max_log_offset])}\n".encode())
            number += 1
        timers.turn(chance.choice((1, 5, 50)), chance.choice((1, 5, 50)))
        if plan is None and chance.random() < 0.2:
            plan = timers.plan_flush()
        elif plan is not None and chance.random() < 0.5:
            timers.flush(plan)
            plan = None
