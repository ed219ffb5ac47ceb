"""The slots of a timer wheel: what they cost while nothing waits."""

import subprocess
import sys
from pathlib import Path

from orbitmq.units import MiB

# In a process of its own: in this one, other threads may take memory at the same time.
THREE_WHEELS = """
import mmap, sys
from pathlib import Path
from orbitmq.files.disk import Disk
from orbitmq.store.timer.wheel import TimerWheel

def anonymous_bytes():
    pages = Path("/proc/self/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * mmap.PAGESIZE  # resident, without what is shared

before = anonymous_bytes()
wheels = [TimerWheel(Path(sys.argv[1]), Disk(), 1_000) for _ in range(3)]
assert all(wheel.waiting(0) == 0 for wheel in wheels)
print(anonymous_bytes() - before)
"""


def test_a_wheel_for_which_nothing_waits_takes_no_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", THREE_WHEELS, str(tmp_path / "timerwheel")]

    grown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    assert int(grown) < 16 * MiB  # written to, each would take 32
