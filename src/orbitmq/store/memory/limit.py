"""How much memory topics in memory may take when nobody says it."""

from pathlib import Path
from typing import Final

from orbitmq.units import MiB

SHARE: Final = 0.75  # of the memory that is available, for all topics in memory together
_UNKNOWN: Final = 512 * MiB
_MACHINE: Final = Path("/proc/meminfo")
_GROUP: Final = Path("/sys/fs/cgroup")


def default_limit() -> int:
    """Return 75 % of the memory that is available now, to the machine and to this container."""
    available = [int(line.split()[1]) * 1024 for line in _lines(_MACHINE) if "MemAvailable" in line]
    given, used = _lines(_GROUP / "memory.max"), _lines(_GROUP / "memory.current")
    if given and used and given[0].isdecimal():
        available.append(max(int(given[0]) - int(used[0]), 0))
    return int(min(available) * SHARE) if available else _UNKNOWN


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
