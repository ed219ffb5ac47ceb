"""`store check` of messages that wait for a time: wheel, timer log and checkpoint."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from golden_stores import settings, unpack
from orbitmq.format.kernels import plain
from orbitmq.format.timer_checkpoint import decode
from orbitmq.format.timer_log import UNIT, UNIT_BYTES
from orbitmq.format.timer_wheel import SLOT_BYTES, SLOT_DTYPE, WHEEL_SLOTS
from orbitmq.store.verify.check import CheckReport, check_store
from orbitmq.store.verify.findings import Kind
from timer_world import TimerWorld

START_MS = 1_700_000_000_400
DUE_MS = START_MS + 5_000
SLOT = DUE_MS // 1000 % WHEEL_SLOTS * SLOT_BYTES
UNITS = Path("timerlog", f"{0:020d}")


def waiting_store(root: Path) -> Path:
    """Return a store with two messages that wait for one slot."""
    with TimerWorld(root, timer_log_file_bytes=1040) as world:
        for _ in range(2):
            world.send(deliver_ms=DUE_MS)
        world.work()
        world.save()
    return root


def write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def checked(root: Path, given: dict[str, str] | None = None) -> CheckReport:
    sizes = {"maxHashSlotNum": "64", "maxIndexNum": "256"}
    return check_store(root, sizes if given is None else given, kernels=plain())


def found(root: Path) -> list[tuple[str, int, str]]:
    """Return file, position and cause of each finding of this kind; there is no other one."""
    findings = checked(root).findings
    assert {one.kind for one in findings} <= {Kind.TIMER}, findings
    assert all("Start the broker" in one.advice for one in findings)
    return [(one.path.name, one.position, one.cause) for one in findings]


def test_a_damaged_wheel_of_rocketmq_is_found(tmp_path: Path) -> None:
    root = unpack("timer", tmp_path)
    slots = np.fromfile(root / "timerwheel", dtype=SLOT_DTYPE)
    read_ms = decode((root / "config" / "timercheck").read_bytes()).read_ms
    waiting = np.flatnonzero(slots["time"] >= read_ms // 1000)
    assert len(waiting) > 1
    slots["last"][waiting[:2]] = 10**9, 1
    slots.tofile(root / "timerwheel")

    report = checked(root, settings("timer"))

    assert [one.kind for one in report.errors] == [Kind.TIMER] * 2


def slot_behind_the_end(root: Path) -> tuple[str, int, str]:
    write(root / "timerwheel", SLOT + 16, struct.pack(">q", 10 * UNIT_BYTES))
    time_ms = DUE_MS // 1000 * 1000
    return "timerwheel", SLOT, f"the slot of time {time_ms} leads to timer log offset 520: no unit"


def slot_of_another_time(root: Path) -> tuple[str, int, str]:
    time = DUE_MS // 1000 + 1
    write(root / "timerwheel", SLOT, struct.pack(">q", time))
    cause = f"leads to timer log offset 52: a unit that waits for {(time - 1) * 1000}"
    return "timerwheel", SLOT, f"the slot of time {time * 1000} {cause}"


def unit_without_record(root: Path) -> tuple[str, int, str]:
    unit = UNIT.unpack((root / UNITS).read_bytes()[UNIT_BYTES : 2 * UNIT_BYTES])
    write(root / UNITS, UNIT_BYTES + 28, struct.pack(">q", unit[5] + 1))
    cause = f"leads to log offset {unit[5] + 1}, where no record of {unit[6]} bytes is"
    return UNITS.name, UNIT_BYTES, cause


def link_that_goes_up(root: Path) -> tuple[str, int, str]:
    write(root / UNITS, 4, struct.pack(">q", UNIT_BYTES))
    return UNITS.name, 0, "leads to 52, which does not lie before it"


def checkpoint_ahead(root: Path) -> tuple[str, int, str]:
    write(root / "config" / "timercheck", 8, struct.pack(">q", 5_000))
    return "timercheck", 8, "says that the timer log has 5000 bytes; it ends at 104"


def wheel_cut(root: Path) -> tuple[str, int, str]:
    with (root / "timerwheel").open("r+b") as file:
        file.truncate(SLOT_BYTES)
    return "timerwheel", 0, f"has 32 bytes instead of {WHEEL_SLOTS * SLOT_BYTES}"


@pytest.mark.parametrize(
    "damage",
    [
        slot_behind_the_end,
        slot_of_another_time,
        unit_without_record,
        link_that_goes_up,
        checkpoint_ahead,
        wheel_cut,
    ],
)
def test_what_leads_nowhere_is_found(
    damage: Callable[[Path], tuple[str, int, str]], tmp_path: Path
) -> None:
    root = waiting_store(tmp_path)
    assert found(root) == []
    wanted = damage(root)
    assert found(root) == [wanted]
